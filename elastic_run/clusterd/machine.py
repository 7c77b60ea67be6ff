"""PURE: how a controller moves: its state, its waits, the places of its reports; a reset forgets an incident."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_run.clusterd.case import Case, LinksToSwitch, RanksToTest
from elastic_run.clusterd.states import WAITS, State
from elastic_run.clusterd.terms import EMBEDDED, Terms, Timing
from elastic_run.core.dialogue import Action, FaultRank, Report, SignalKind, Strategy
from elastic_run.core.events import SignalReceived
from elastic_run.core.vocabulary import NodeId

OK = 0
INNER = 599


@dataclass(frozen=True, slots=True)
class Answered:
    """The report that was given with `ticket` has this answer."""

    ticket: int
    code: int
    info: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The stream of the present subscriber ends well; it may subscribe again."""


@dataclass(frozen=True, slots=True)
class OperatorTold:
    """For the operator who asked for a switch of links or a stress test: how it went."""

    text: str


Out = SignalReceived | Answered | Ended | LinksToSwitch | RanksToTest | OperatorTold


@dataclass(slots=True)
class Machine:
    """`name` is the prefix of incident ids. Times are seconds of whatever clock the caller uses; they never go back."""

    name: str
    terms: Terms = field(default_factory=Terms)
    timing: Timing = EMBEDDED
    state: State = State.INIT
    until: float | None = None
    looked_at: float = 0.0
    incident: int = 0
    subscribed: bool = False
    alive_at: float | None = None
    """When the next sign of life is due."""
    running: bool = True
    """The cluster runs the job."""
    paused: bool = False
    """Recovery was switched off at the end of an incident and not on again: no retry, nothing in place."""
    switchable: bool = True
    """No exchange of a node has failed yet."""
    hardware: set[NodeId] = field(default_factory=set)
    """Nodes with a device that shows a fault now."""
    case: Case = field(default_factory=Case)
    out: list[Out] = field(default_factory=list)

    def wait(self, state: State, at: float) -> None:
        self.state, self.looked_at = state, at
        wait = WAITS.get(state)
        self.until = at + getattr(self.timing, wait.bound) if wait else None

    def begin(self) -> str:
        """A new id, and the number of incidents."""
        self.incident += 1
        return f"{self.name}-{self.incident}"

    def reset(self) -> None:
        """Forget the incident; whose report nobody read hears so."""
        self.out += [Answered(ticket, INNER, "chan closed") for ticket, _ in self.case.blocked]
        self.case, self.state, self.until = Case(), State.INIT, None

    def finish(self) -> None:
        """The end of every incident is the end of the stream."""
        self.reset()
        if self.subscribed:
            self.out.append(Ended())
        self.subscribed, self.alive_at = False, None

    def tell(
        self,
        kind: SignalKind,
        *actions: Action,
        ranks: tuple[FaultRank, ...] = (),
        nodes: set[NodeId] | frozenset[NodeId] = frozenset(),
        strategy: Strategy | None = None,
        timeout: float = 0.0,
        in_place: bool = False,
        last: bool = False,
        uuid: str | None = None,
    ) -> None:
        """A signal for the subscriber; without one it is lost."""
        if self.subscribed:
            name = self.case.uuid if uuid is None else uuid
            known = tuple(sorted(node for node in nodes if node < self.terms.nodes))
            self.out.append(SignalReceived(name, kind, ranks, strategy, actions, known, timeout, in_place, last))

    # -- the places of reports

    def keep(self, report: Report, ticket: int) -> None:
        """Each kind has one place; a second one waits, unanswered, until the first was read.

        While the job trains nobody will ever read one: it is answered and forgotten.
        """
        if type(report) in self.case.kept:
            self.case.blocked.append((ticket, report))
            return
        if self.state is not State.INIT:
            self.case.kept[type(report)] = report
        self.out.append(Answered(ticket, OK))

    def take(self, kind: type[Report] | None) -> Report | None:
        if kind is None or (report := self.case.kept.pop(kind, None)) is None:
            return None
        for place, (ticket, blocked) in enumerate(self.case.blocked):
            if type(blocked) is kind:
                del self.case.blocked[place]
                self.case.kept[kind] = blocked
                self.out.append(Answered(ticket, OK))
                break
        return report

    # -- looks at the cluster

    def next_look(self) -> float | None:
        wait = WAITS.get(self.state)
        pause = getattr(self.timing, wait.poll) if wait and wait.poll else 0.0
        return self.looked_at + pause if pause else None

    def look_due(self, at: float) -> bool:
        """Looks are due at multiples of the pause; without a pause always."""
        due = self.next_look()
        if due is not None and at < due:
            return False
        self.looked_at = at if due is None else due
        return True
