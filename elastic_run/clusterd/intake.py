"""PURE: faults that devices show, and reports of faults that a retry may cure: when they become an incident."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_run.clusterd.machine import Machine
from elastic_run.clusterd.recovery import fault_occurred
from elastic_run.clusterd.states import State
from elastic_run.clusterd.terms import Timing
from elastic_run.core.dialogue import Action, FaultRank, FaultType, SignalKind, Strategy
from elastic_run.core.vocabulary import Rank


@dataclass(slots=True)
class Intake:
    """What it has seen survives a reset: a fault of a device is told once, until it vanishes and comes again."""

    alarms: dict[FaultRank, float] = field(default_factory=dict)
    """What devices show now, and since when."""
    covered: set[FaultRank] = field(default_factory=set)
    """Alarms that the job itself has reported: a retry is on its way."""
    reports: dict[FaultRank, float] = field(default_factory=dict)
    """What the job reported, and until when that counts."""
    seen: set[FaultRank] = field(default_factory=set)
    held: set[Rank] = field(default_factory=set)
    """New on devices; the job may report their dead processes itself."""
    held_until: float = 0.0
    look_at: float | None = None

    @property
    def broken(self) -> tuple[FaultRank, ...]:
        """Devices known to be beyond a retry."""
        return tuple(fault for fault in self.seen if fault.type is FaultType.OTHER)

    def show(self, faults: frozenset[FaultRank], at: float, timing: Timing) -> None:
        self.alarms = {fault: self.alarms.get(fault, at) for fault in faults}
        self.covered &= faults
        self._look_within(timing.tick, at)

    def report(self, faults: tuple[FaultRank, ...], at: float, timing: Timing) -> None:
        self.reports |= dict.fromkeys(faults, at + timing.report_valid)
        self._look_within(timing.tick, at)

    def deadline(self) -> float | None:
        times = [self.look_at, self.held_until if self.held else None]
        return min((t for t in times if t is not None), default=None)

    def settle(self, m: Machine, at: float) -> bool:
        """Look, if it is time; whether anything may have come of it."""
        if self.held and (m.state is not State.INIT or at >= self.held_until):
            self._end_processes(m)
            return True
        if self.look_at is None or at < self.look_at:
            return False
        self._look(m, at)
        return True

    def _look_within(self, tick: float, at: float) -> None:
        self.look_at = at + tick if self.look_at is None else min(at + tick, self.look_at)

    def _look(self, m: Machine, at: float) -> None:
        self.reports = {fault: until for fault, until in self.reports.items() if until >= at}
        shown = self._shown(m, at)
        new, self.seen = shown - self.seen, shown
        if not m.timing.report_valid:  # the same fault reported again is news
            self.reports, self.seen = {}, {fault for fault in shown if fault.type is FaultType.OTHER}
        m.hardware = {fault.rank // m.terms.ranks_per_node for fault in self.broken}
        self.look_at = at + m.timing.tick if m.timing.tick and (self.reports or self.alarms) else self._next(m, at)
        m.case.merge((*new, *self.broken) if new else ())
        if new and all(fault.type is not FaultType.OTHER for fault in new):
            fault_occurred(m, at)
        elif new:
            self.held |= {fault.rank for fault in new}
            self.held_until = at + m.timing.hardware_grace

    def _shown(self, m: Machine, at: float) -> set[FaultRank]:
        """A retry may cure what the job reported; a device's word alone counts after a while as a broken device."""
        may_retry = Strategy.RETRY in m.terms.strategies and not m.paused
        self.covered |= self.reports.keys() & self.alarms.keys()
        shown = set(self.reports)
        for fault, since in self.alarms.items():
            if fault.type is FaultType.OTHER:
                shown.add(fault)
            elif fault not in self.covered and (not may_retry or at >= since + m.timing.alarm_grace):
                shown.add(FaultRank(fault.rank))
        return shown

    def _next(self, m: Machine, at: float) -> float | None:
        """Without a tick: when the next hidden alarm will show."""
        hidden = [since + m.timing.alarm_grace for fault, since in self.alarms.items() if fault not in self.covered]
        return min((t for t in hidden if t > at), default=None)

    def _end_processes(self, m: Machine) -> None:
        ranks = tuple(FaultRank(rank) for rank in sorted(self.held))
        nodes = {rank // m.terms.ranks_per_node for rank in self.held} - m.case.replaced
        self.held.clear()
        if any(node < m.terms.nodes for node in nodes):
            m.tell(SignalKind.PRE_EXIT, Action.PRE_EXIT, ranks=ranks, nodes=nodes, uuid=m.begin())
