"""events.jsonl: every fact and every order, one line each; what a fresh Agent needs to repeat the job's decisions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_run import __version__
from elastic_run.core import events as facts_module
from elastic_run.core.agent import Agent
from elastic_run.core.commands import Command
from elastic_run.core.events import Event
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Site
from elastic_run.observe.codec import decode, encode

FORMAT = 1


class Journal:
    """Gives each record to `append` as one line of JSON. `at` is monotonic, `wall` seconds since 1970."""

    def __init__(self, append: Callable[[bytes], None], policy: Policy, site: Site, at: float) -> None:
        self._append = append
        head = {"format": FORMAT, "version": __version__, "policy": encode(policy), "site": encode(site)}
        self._write({"start": head, "at": at, "wall": time.time()})

    def fact(self, fact: Event, at: float) -> None:
        self._write({"fact": type(fact).__name__, "at": at, "wall": time.time(), **encode(fact)})

    def orders(self, orders: Iterable[Command], at: float) -> None:
        for order in orders:
            self._write({"order": type(order).__name__, "at": at, **encode(order)})

    def _write(self, record: dict[str, Any]) -> None:
        self._append(json.dumps(record, separators=(",", ":")).encode() + b"\n")


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
    """
    agent: Agent | None = None
    expected: list[str] = []
    got: list[str] = []
    cause = "start"
    for record in records(path):
        if "start" in record:
            head = record["start"]
            agent = Agent(decode(Policy, head["policy"]), decode(Site, head["site"]))
            expected, got, cause = [], _lines(agent.start(record["at"])), "start"
        elif "order" in record:
            body = {k: v for k, v in record.items() if k not in ("order", "at")}
            expected.append(f"{record['order']} {json.dumps(body, sort_keys=True)}")
        elif agent is not None and "fact" in record:
            if expected != got:
                return Difference(cause, expected, got)
            body = {k: v for k, v in record.items() if k not in ("fact", "at", "wall")}
            cause, fact = record["fact"], decode(getattr(facts_module, record["fact"]), body)
            expected, got = [], _lines(agent.handle(fact, record["at"]))
    return Difference(cause, expected, got) if expected != got else None


def _lines(orders: Iterable[Command]) -> list[str]:
    return [f"{type(o).__name__} {json.dumps(encode(o), sort_keys=True)}" for o in orders]
