"""Watches for workers that stay in uninterruptible sleep (state D): a driver or a file system does not answer them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from signal import SIGKILL

from elastic_run.core.events import Event, WorkerHung
from elastic_run.supervisor import orphans

LOOK_EVERY = 1.0


class Blocked:
    """A clock of the loop: looks every second at most, and tells once of a process that sleeps longer than `limit`.

    State D comes and goes with ordinary disk access; a process counts as blocked only where every look finds it so.
    """

    def __init__(self, limit: float, pids: Callable[[], Iterable[int]], post: Callable[[Event], None]) -> None:
        self._limit = limit
        self._every = min(LOOK_EVERY, limit / 4)
        self._pids = pids
        self._post = post
        self._since: dict[int, float] = {}
        self._told: set[int] = set()
        self._next = time.monotonic()

    def deadline(self) -> float | None:
        return self._next

    def tick(self) -> None:
        now = time.monotonic()
        self._next = now + self._every
        asleep = {pid for pid in self._pids() if (seen := orphans.stat_of(pid)) is not None and seen.state == "D"}
        self._since = {pid: self._since.get(pid, now) for pid in asleep}
        self._told &= asleep
        for pid, since in self._since.items():
            if now - since >= self._limit and pid not in self._told:
                self._told.add(pid)
                why = f"in uninterruptible sleep (state D) for {now - since:.3g} s: a driver or disk does not answer"
                self._post(WorkerHung(pid, why, SIGKILL))  # in the kernel nobody hears SIGTERM
