"""Inbox: how any thread hands a fact to the loop."""

from __future__ import annotations

import os
from queue import Empty, SimpleQueue

from elastic_run.core.events import Event


class Inbox:
    """`post` may be called from any thread and from a signal handler (SimpleQueue.put is reentrant)."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Event] = SimpleQueue()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def post(self, fact: Event) -> None:
        self._queue.put(fact)
        os.eventfd_write(self._fd, 1)

    def read(self) -> list[Event]:
        """All facts posted so far, in order."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return []
        facts: list[Event] = []
        while True:
            try:
                facts.append(self._queue.get_nowait())
            except Empty:
                return facts
