"""Shell.execute(): one `match` over Command. It has no memory but the order to leave; its ports are Protocols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elastic_run.core.commands import (
    Answer,
    BeginRendezvous,
    Call,
    Command,
    Exit,
    Explain,
    Kill,
    Mark,
    Note,
    ReadProgress,
    Renew,
    Spawn,
    Sweep,
    Tell,
)
from elastic_run.core.events import Event, RendezvousFinished, SpawnFailed, Swept
from elastic_run.core.goals import Goal, NodeReport
from elastic_run.core.vocabulary import NodeId, Rank


class Reporter(Protocol):
    """The way to the controllers, ClusterD and embedded."""

    def send(self, call: Call) -> None: ...
    def renew(self) -> None: ...


class Fleet(Protocol):
    """The way to the other nodes of the job."""

    def tell(self, node: NodeId, goal: Goal) -> None: ...
    def answer(self, report: NodeReport) -> None: ...


class Rendezvous(Protocol):
    def begin(self, round: int) -> RendezvousFinished | None:
        """None: it is not finished yet, and posted later."""


class Workers(Protocol):
    def spawn(self, order: Spawn) -> None: ...
    def kill(self, rank: Rank, incarnation: int, signum: int) -> None: ...
    def sweep(self, seq: int, signum: int) -> Swept: ...
    def flush(self) -> None:
        """The orders of this turn have been given; workers may be started together."""


class Progress(Protocol):
    """Looks at the progress file without blocking; a ProgressRead is posted later."""

    def look(self, seq: int) -> None: ...


class People(Protocol):
    """Whoever watches."""

    def note(self, order: Note) -> None: ...
    def explain(self, order: Explain) -> None: ...
    def mark(self, order: Mark) -> None: ...


@dataclass(slots=True)
class Shell:
    workers: Workers
    reporter: Reporter
    rendezvous: Rendezvous
    progress: Progress
    people: People
    post: Callable[[Event], None]
    fleet: Fleet
    left: Exit | None = None
    """The order to leave, once it is given."""

    def execute(self, orders: list[Command]) -> None:
        for order in orders:
            self._execute(order)
        self.workers.flush()

    def _execute(self, order: Command) -> None:
        match order:
            case Spawn():
                try:
                    self.workers.spawn(order)
                except OSError as error:
                    self.post(SpawnFailed(order.rank, order.incarnation, str(error)))
            case Kill():
                self.workers.kill(order.rank, order.incarnation, order.signum)
            case Sweep():
                self.post(self.workers.sweep(order.seq, order.signum))
            case BeginRendezvous():
                met = self.rendezvous.begin(order.round)
                if met is not None:
                    self.post(met)
            case Call():
                self.reporter.send(order)
            case Tell():
                self.fleet.tell(order.node, order.goal)
            case Answer():
                self.fleet.answer(order.report)
            case Renew():
                self.reporter.renew()
            case ReadProgress():
                self.progress.look(order.seq)
            case Note():
                self.people.note(order)
            case Explain():
                self.people.explain(order)
            case Mark():
                self.people.mark(order)
            case Exit():
                self.left = order
