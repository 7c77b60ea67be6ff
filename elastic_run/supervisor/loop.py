"""Loop.run(): select, collect facts, agent.handle, shell.execute. Idle it does not wake at all."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elastic_run.core.agent import Agent
from elastic_run.core.commands import Command, Exit
from elastic_run.core.events import Event, Tick
from elastic_run.supervisor.shell import Shell

LONGEST_SLEEP = 86_400.0
"""epoll takes at most 2^31 ms."""


class Journal(Protocol):
    """Hears of everything: each fact before it is handled, each order before it is carried out."""

    def begin(self, at: float) -> None: ...
    def fact(self, fact: Event, at: float) -> None: ...
    def orders(self, orders: list[Command], at: float) -> None: ...


class Clock(Protocol):
    """A port with a deadline of its own, such as the embedded controller."""

    def deadline(self) -> float | None: ...
    def tick(self) -> None: ...


class Source(Protocol):
    def fileno(self) -> int: ...


class Sources:
    """What the loop waits for: anything with a descriptor, and the function that reads facts from it."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()

    def listen(self, source: Source | int, read: Callable[[], list[Event]]) -> None:
        self.selector.register(source, selectors.EVENT_READ, read)

    def forget(self, source: Source | int) -> None:
        self.selector.unregister(source)


@dataclass(slots=True)
class Loop:
    agent: Agent
    shell: Shell
    journals: list[Journal]
    collect: Callable[[], list[Event]]
    clocks: list[Clock]
    sources: Sources

    def run(self) -> Exit:
        """Until the agent orders to leave; times are CLOCK_MONOTONIC in seconds."""
        at = time.monotonic()
        for journal in self.journals:
            journal.begin(at)
        self._obey(self.agent.start(at), at)
        while self.shell.left is None:
            facts: list[Event] = []
            for key, _ in self.sources.selector.select(self._patience()):
                facts += key.data()
            facts += self.collect()
            self._tick_clocks()
            for fact in facts or [Tick()]:
                at = time.monotonic()
                for journal in self.journals:
                    journal.fact(fact, at)
                self._obey(self.agent.handle(fact, at), at)
        return self.shell.left

    def _obey(self, orders: list[Command], at: float) -> None:
        if orders:
            for journal in self.journals:
                journal.orders(orders, at)
            self.shell.execute(orders)

    def _patience(self) -> float | None:
        times = [t for t in (self.agent.deadline(), *(c.deadline() for c in self.clocks)) if t is not None]
        return min(max(0.0, min(times) - time.monotonic()), LONGEST_SLEEP) if times else None

    def _tick_clocks(self) -> None:
        for clock in self.clocks:
            due = clock.deadline()
            if due is not None and time.monotonic() >= due:
                clock.tick()
