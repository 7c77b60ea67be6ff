"""events.jsonl: every fact and every order, one line each; what a fresh Agent needs to repeat the job's decisions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from elastic_run import __version__
from elastic_run.core import events as facts_module
from elastic_run.core.agent import Agent, Snapshot
from elastic_run.core.codec import decode, encode
from elastic_run.core.commands import Command, Spawn
from elastic_run.core.events import Event
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Site

FORMAT = 2
SEGMENT = 64 << 20
"""Bytes after which a new file is begun, with a snapshot, so that a replay needs only the last one."""


class Journal:
    """Gives each record to `append` as one line of JSON. `at` is monotonic, `wall` seconds since 1970.

    `rotate` puts the file aside, so that the next record begins a new one.
    """

    def __init__(
        self,
        append: Callable[[bytes], None],
        rotate: Callable[[], None],
        agent: Agent,
        segment: int = SEGMENT,
    ) -> None:
        self._append = append
        self._rotate = rotate
        self._agent = agent
        self._segment = segment
        self._size = 0

    def begin(self, at: float) -> None:
        """The agent is started at `at`."""
        self._start(at, None)

    def fact(self, fact: Event, at: float) -> None:
        """Record a fact that is about to be handled."""
        if self._size > self._segment and (past := self._agent.snapshot()) is not None:
            self._rotate()
            self._size = 0
            self._start(at, past)
        self._write({"fact": type(fact).__name__, "at": at, "wall": time.time(), **encode(fact)})

    def orders(self, orders: Iterable[Command], at: float) -> None:
        for order in orders:
            self._write({"order": type(order).__name__, "at": at, **_encoded(order)})

    def _start(self, at: float, past: Snapshot | None) -> None:
        head = {"format": FORMAT, "version": __version__, "policy": encode(self._agent.policy)}
        head |= {"site": encode(self._agent.site), "past": encode(past)}
        self._write({"start": head, "at": at, "wall": time.time()})

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        self._size += len(line)
        self._append(line)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The readable records of a journal; a torn line (a full disk, a power cut) is passed over."""
    with open(path, "rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay gives other orders than were recorded."""

    fact: str
    recorded: list[str]
    replayed: list[str]


def replay(path: Path) -> Difference | None:
    """Give the recorded facts of the last launch in the file to a fresh Agent and compare its orders.

    Returns:
        The first difference, or None if the decisions can be repeated exactly.

    Raises:
        ValueError: the file does not say how the launch began.
    """
    agent: Agent | None = None
    expected: list[str] = []
    got: list[str] = []
    cause = "start"
    for record in records(path):
        if "start" in record:
            head = record["start"]
            agent = Agent(decode(Policy, head["policy"]), decode(Site, head["site"]))
            expected, got, cause = [], [], "start"
            if head["past"] is None:
                got = _lines(agent.start(record["at"]))
            else:
                agent.resume(decode(Snapshot, head["past"]))
        elif "order" in record:
            body = {k: v for k, v in record.items() if k not in ("order", "at")}
            expected.append(f"{record['order']} {json.dumps(body, sort_keys=True)}")
        elif agent is not None and "fact" in record:
            if expected != got:
                return Difference(cause, expected, got)
            body = {k: v for k, v in record.items() if k not in ("fact", "at", "wall")}
            cause, fact = record["fact"], decode(getattr(facts_module, record["fact"]), body)
            expected, got = [], _lines(agent.handle(fact, record["at"]))
    if agent is None:
        raise ValueError(f"{path}: no record of a start")
    return Difference(cause, expected, got) if expected != got else None


def _lines(orders: Iterable[Command]) -> list[str]:
    return [f"{type(o).__name__} {json.dumps(_encoded(o), sort_keys=True)}" for o in orders]


def _encoded(order: Command) -> dict[str, Any]:
    """A Spawn names the round and the size of its assignment, whose ranks stand in RendezvousFinished or LeaderTold."""
    if not isinstance(order, Spawn):
        body: dict[str, Any] = encode(order)
        return body
    own = {field.name: getattr(order, field.name) for field in fields(order) if field.name != "assignment"}
    return {**own, "round": order.assignment.round, "world_size": order.assignment.world_size}
