"""The launcher's side of the template: workers are forked from a process that has imported torch.

Whatever goes wrong here costs time and no worker: what the template does not start is started cold, and one line says
why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic_run.core.events import Event
from elastic_run.supervisor.child import Child
from elastic_run.supervisor.process import Processes, Start
from elastic_run.supervisor.warm import ANSWER_WAIT, BUSY_WAIT, FROZEN, READY_WAIT, Kind, request

MOST_REPLACED = 3
MANY = 64
"""Starts in one message: the kernel takes 253 descriptors."""


@dataclass(slots=True)
class Template:
    """`processes` is told what became of each `spawn`. `listen` and `forget`: the loop's sources."""

    kind: Kind
    job: str
    """Mark of the job; a worker is born with that of its template, `<job>.t<number>`, too."""
    processes: Processes
    listen: Callable[[Child, Callable[[], list[Event]]], None]
    forget: Callable[[Child], None]
    say: Callable[[str], None]
    child: Child | None = None
    ready: bool = False
    busy: bool = False
    """It imports something for later, and does not listen."""
    made: int = 0
    missed: bool = False
    """A worker was started before there was a template."""
    until: float | None = None
    """When the answer that is waited for is overdue."""
    collected: list[tuple[int, Start]] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)

    def warm(self) -> None:
        """Make one, beside the work; nothing waits for it before the first `flush`."""
        self.made += 1
        self.child = self.kind.child(self.job, self._mark, once=False)
        self.processes.serving.add(self.child.pid)
        self.ready = self.busy = False
        self.until = time.monotonic() + READY_WAIT
        self.listen(self.child, self.read)

    @property
    def _mark(self) -> str:
        return f"{self.job}.t{self.made}"

    def takes(self, start: Start) -> bool:
        """Whether there is a template, and the start differs from it in nothing that cannot be changed any more."""
        self.missed = self.missed or self.child is None
        return self.child is not None and not set(self.kind.difference(start)[0]) & FROZEN

    def spawn(self, key: int, start: Start) -> None:
        """Collect a start; `flush` asks for all of them at once."""
        self.collected.append((key, start))

    def flush(self) -> None:
        if self.made == 0 and self.missed:
            self.warm()  # beside the first start, which was cold; the next will not be
        while self.collected and self.child is not None:
            now, self.collected = self.collected[:MANY], self.collected[MANY:]
            self.asked |= {key for key, _ in now}
            starts = [request(self.kind, key, start) for key, start in now]
            self.child.send({"start": starts}, [fd for _, start in now for fd in start.fds])
            if self.ready:
                self.until = time.monotonic() + (BUSY_WAIT if self.busy else ANSWER_WAIT)

    def host_store(self, listening: int, life: int, address: str, port: int) -> bool:
        """Let a fork host the workers' store on a listening socket; False: there is no template to do it."""
        if self.child is None:
            return False
        self.child.send({"store": {"address": address, "port": port}}, [listening, life])
        return True

    def read(self) -> list[Event]:
        """What it answers; end of file: it has died."""
        assert self.child is not None
        answer = self.child.receive()
        if answer is None:
            self._lost("the template of the workers has died")
            if self.made < MOST_REPLACED:
                self.warm()
        elif answer.get("busy"):
            self.busy = True
        elif answer.get("ready"):
            self.ready, self.busy = True, False
            self.until = time.monotonic() + ANSWER_WAIT if self.asked else None
        elif answer.get("why") or answer.get("refused"):
            self._lost(f"workers start cold: {answer.get('why') or answer['refused']}")
        else:
            self.until = None
            self.asked -= {key for key, _ in answer["started"]}
            return [self.processes.started(key, pid, "the template could not fork") for key, pid in answer["started"]]
        return []

    def deadline(self) -> float | None:
        return self.until

    def tick(self) -> None:
        busy = self.busy
        what = "is still importing" if busy else "does not answer"
        self._lost(f"workers start cold: their template {what}")
        if busy and self.made < MOST_REPLACED:
            self.warm()

    def close(self) -> None:
        if self.child is not None:
            self.child.close(0.0)

    def _lost(self, why: str) -> None:
        """Let it go with whatever it forked unheard, and start cold what it was asked for."""
        assert self.child is not None
        self.say(why)
        child, self.child, self.until = self.child, None, None
        self.forget(child)
        child.close(0.0)
        self.processes.serving.discard(child.pid)
        self.processes.kill_unheard(self._mark)
        asked, self.asked = sorted(self.asked | {key for key, _ in self.collected}), set()
        self.collected.clear()
        for key in asked:
            self.processes.start_cold(key)
