"""PURE: ClusterD's side of one job. Reports in, signals out; every wait has an end in `Timing`.

Here is the path of a software fault: stop train, global fault, change strategy, status. What depends on devices, pods
and the wire is not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from elastic_run.core.events import SignalReceived
from elastic_run.core.vocabulary import (
    FaultReported,
    Rank,
    Report,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Waits in seconds. `EMBEDDED` has none that is artificial."""

    flush: float = 0.0
    """From stop complete until late faults are gathered."""
    release: float = 0.0
    """For nodes to give back what the dead ranks held."""
    report_wait: float = 900.0
    """For each report of the job."""


EMBEDDED = Timing()


class State(Enum):
    INIT = "init"
    WAIT_STOP = "wait for stop complete"
    SETTLING = "gather late faults"
    WAIT_STRATEGIES = "wait for strategies"
    WAIT_STATUS = "wait for status"


PREFERENCE = (Strategy.RECOVER, Strategy.EXIT)
"""Best first. Exit needs no offer."""

AWAITED: dict[State, type[Report]] = {
    State.WAIT_STOP: StopCompleted,
    State.WAIT_STRATEGIES: StrategiesOffered,
    State.WAIT_STATUS: StatusReported,
}


@dataclass(slots=True)
class Controller:
    """`job` is the prefix of incident ids. Times are seconds of whatever clock the caller uses."""

    job: str
    timing: Timing = EMBEDDED
    state: State = State.INIT
    until: float | None = None
    incident: int = 0
    ranks: set[Rank] = field(default_factory=set)
    kept: dict[type[Report], Report] = field(default_factory=dict)
    """One place for each kind of report; an early one waits here until its state is reached."""
    out: list[SignalReceived] = field(default_factory=list)

    @property
    def uuid(self) -> str:
        return f"{self.job}-{self.incident}"

    def report(self, report: Report, at: float) -> list[SignalReceived]:
        """The job reports; the answer to the report itself is always 0 here."""
        if isinstance(report, FaultReported):
            self._fault(report, at)
        else:
            self.kept[type(report)] = report
        return self._settled(at)

    def tick(self, at: float) -> list[SignalReceived]:
        """Time has passed; call at `deadline()` at the latest."""
        return self._settled(at)

    def deadline(self) -> float | None:
        return self.until

    def _fault(self, report: FaultReported, at: float) -> None:
        if self.state is State.INIT:
            self.incident += 1
            self.kept.clear()
            self.ranks = set(report.ranks)
            self._tell(SignalKind.STOP_TRAIN)
            self._wait(State.WAIT_STOP, at)
        else:
            self.ranks |= set(report.ranks)

    def _settled(self, at: float) -> list[SignalReceived]:
        while self._step(at):
            pass
        told, self.out[:] = list(self.out), []
        return told

    def _step(self, at: float) -> bool:
        """Make one move if the facts allow one."""
        if self.state is State.INIT:
            return False
        due = self.until is not None and at >= self.until
        if self.state is State.SETTLING:
            if due:
                self._tell(SignalKind.GLOBAL_FAULT)
                self._wait(State.WAIT_STRATEGIES, at)
            return due
        kept = self.kept.pop(AWAITED[self.state], None)
        match kept:
            case StopCompleted():
                self.state, self.until = State.SETTLING, at + self.timing.flush + self.timing.release
            case StrategiesOffered():
                self._decide(kept.strategies, at)
            case StatusReported() if kept.code == 0:
                self._finish()
            case StatusReported():
                self._decide((Strategy.EXIT,), at)
            case None if due:
                self._decide((Strategy.EXIT,), at)
            case _:
                return False
        return True

    def _decide(self, offered: tuple[Strategy, ...], at: float) -> None:
        choice = next(s for s in PREFERENCE if s in offered or s is Strategy.EXIT)
        self._tell(SignalKind.CHANGE_STRATEGY, choice)
        if choice is Strategy.EXIT:
            self._finish()
        else:
            self._wait(State.WAIT_STATUS, at)

    def _finish(self) -> None:
        self.state, self.until = State.INIT, None
        self.ranks.clear()

    def _wait(self, state: State, at: float) -> None:
        self.state, self.until = state, at + self.timing.report_wait

    def _tell(self, kind: SignalKind, strategy: Strategy | None = None) -> None:
        self.out.append(SignalReceived(self.uuid, kind, tuple(sorted(self.ranks)), strategy))
