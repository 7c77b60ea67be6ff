"""Interpreters on standby: exec'ed, torch imported, each waiting to become one worker. For where forking is not safe.

The first start is cold; then one interpreter for each local rank is made ready, one after the other, and again after
each use.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic_run.core.events import Event
from elastic_run.supervisor.child import Child
from elastic_run.supervisor.process import Processes, Start
from elastic_run.supervisor.warm import ANSWER_WAIT, FROZEN, READY_WAIT, Kind, request

QUIET = 3.0
"""Seconds after a start in which the machine belongs to the workers."""
MOST_REPLACED = 3
ROOM = 2 << 30
"""Bytes of memory that must be available before another one is made."""


@dataclass(slots=True)
class One:
    """An interpreter, and the start that it was given."""

    child: Child
    ready: bool = False
    key: int | None = None
    until: float = 0.0


@dataclass(slots=True)
class Standby:
    """`count`: as many as there are local ranks. The rest is as in template.py."""

    kind: Kind
    job: str
    count: int
    processes: Processes
    listen: Callable[[Child, Callable[[], list[Event]]], None]
    forget: Callable[[Child], None]
    say: Callable[[str], None]
    waiting: list[One] = field(default_factory=list)
    next_at: float | None = None
    """When the next one is made."""
    refused: bool = False
    short: bool = False
    """It was said that memory is short."""
    dead: int = 0
    """Interpreters that died or did not answer; a few are replaced, then workers start cold."""

    def takes(self, start: Start) -> bool:
        return any(one.ready and one.key is None for one in self.waiting) and not (
            set(self.kind.difference(start)[0]) & FROZEN
        )

    def spawn(self, key: int, start: Start) -> None:
        one = next(one for one in self.waiting if one.ready and one.key is None)
        one.key, one.until = key, time.monotonic() + ANSWER_WAIT
        one.child.send({"start": [request(self.kind, key, start)]}, start.fds)

    def flush(self) -> None:
        """Workers are about to start: nothing is made before they have had their time."""
        if not self.refused:
            self.next_at = time.monotonic() + QUIET

    def deadline(self) -> float | None:
        overdue = [one.until for one in self.waiting if one.key is not None or not one.ready]
        return min([*overdue, *([self.next_at] if self.next_at is not None else [])], default=None)

    def tick(self) -> None:
        now = time.monotonic()
        for one in [one for one in self.waiting if (one.key is not None or not one.ready) and one.until <= now]:
            self._lost(one, "an interpreter on standby does not answer")
        if self.next_at is not None and self.next_at <= now:
            self.next_at = None
            self._make()

    def close(self) -> None:
        for one in self.waiting:
            one.child.close(0.0)

    def _make(self) -> None:
        if len(self.waiting) >= self.count or self.refused:
            return
        if _available() < ROOM:
            if not self.short:
                self.say(f"less than {ROOM >> 30} GiB of memory are free: no interpreter on standby for now")
            self.short = True
            self.next_at = time.monotonic() + 10 * QUIET
            return
        one = One(self.kind.child(self.job, self.job, once=True), until=time.monotonic() + READY_WAIT)
        self.waiting.append(one)
        self.processes.serving.add(one.child.pid)
        self.listen(one.child, lambda: self._read(one))

    def _read(self, one: One) -> list[Event]:
        answer = one.child.receive()
        if answer is None:
            self._lost(one, "an interpreter on standby has died")
        elif answer.get("ready"):
            one.ready = True
            self.next_at = time.monotonic()  # for the next one
        elif answer.get("started"):
            self._let_go(one)
            assert one.key is not None
            return [self.processes.started(one.key, one.child.pid, "")]
        else:
            self.refused = True
            self._lost(one, f"workers start cold: {answer.get('why') or answer['refused']}")
        return []

    def _let_go(self, one: One) -> None:
        """It is a worker now, or dead."""
        self.waiting.remove(one)
        self.forget(one.child)
        one.child.link.close()
        self.processes.serving.discard(one.child.pid)

    def _lost(self, one: One, why: str) -> None:
        self.say(why)
        self.waiting.remove(one)
        self.forget(one.child)
        one.child.close(0.0)
        self.processes.serving.discard(one.child.pid)
        self.dead += 1
        self.refused = self.refused or self.dead > MOST_REPLACED
        if not self.refused:
            self.next_at = time.monotonic() + QUIET
        if one.key is not None:
            self.processes.start_cold(one.key)


def _available() -> int:
    """Bytes of memory that can be had without swapping; much where the kernel does not say."""
    try:
        with open("/proc/meminfo") as file:
            found = next(line.split()[1] for line in file if line.startswith("MemAvailable:"))
            return int(found) << 10
    except (OSError, StopIteration):
        return 1 << 62
