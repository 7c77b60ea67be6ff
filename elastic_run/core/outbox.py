"""Outbox: reports to the controller leave in order, one in flight, until each is answered."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from elastic_run.core.commands import Call, Command, Note, Severity
from elastic_run.core.dialogue import Report, Ruler
from elastic_run.core.events import CallFinished


@dataclass(slots=True)
class Outbox:
    out: list[Command]
    waiting: deque[tuple[str, Report, Ruler]] = field(default_factory=deque)
    seq: int = 0
    in_flight: bool = False

    def put(self, uuid: str, report: Report, to: Ruler = Ruler.EMBEDDED) -> None:
        self.waiting.append((uuid, report, to))

    def drop(self) -> None:
        """Who was to be told has forgotten what it was about; what is on its way cannot be called back."""
        while len(self.waiting) > self.in_flight:
            self.waiting.pop()

    def answered(self, fact: CallFinished) -> None:
        if not self.in_flight or fact.seq != self.seq:
            return
        self.in_flight = False
        _, report, to = self.waiting.popleft()
        if fact.code != 0:
            text = f"{to.value} answered {type(report).__name__} with code {fact.code} {fact.info}".rstrip()
            self.out.append(Note(Severity.WARNING, text))

    def settle(self) -> None:
        if self.waiting and not self.in_flight:
            self.seq += 1
            self.in_flight = True
            self.out.append(Call(self.seq, *self.waiting[0]))
