"""PURE: ClusterD's side of one job. Reports and facts of the cluster in, signals out; every wait has an end in Timing.

The way of a fault is in `recovery`, what devices show in `intake`, what operators ask for in `operations`, the
exchange of a node in `migration`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_run.clusterd import migration, operations, recovery
from elastic_run.clusterd.intake import Intake
from elastic_run.clusterd.machine import OK, Answered, Machine, Out
from elastic_run.clusterd.states import WAITS, State
from elastic_run.core.dialogue import FaultRank, FaultReported, FaultType, Report, SignalKind, Strategy
from elastic_run.core.vocabulary import NodeId, Rank


@dataclass(slots=True)
class Controller(Machine):
    intake: Intake = field(default_factory=Intake)

    # -- the job

    def subscribe(self, at: float) -> list[Out]:
        """A subscriber, the only one: an incident under way is forgotten. The caller ends an older one's stream."""
        self.reset()
        self.subscribed = True
        self.alive_at = at + self.timing.keep_alive if self.timing.keep_alive else None
        return self._settled(at)

    def unsubscribe(self, at: float) -> list[Out]:
        """The subscriber is gone."""
        self.reset()
        self.subscribed, self.alive_at = False, None
        return self._settled(at)

    def report(self, report: Report, at: float, ticket: int = 0) -> list[Out]:
        """The answer may come later: when the place that its kind of report has is free."""
        if isinstance(report, FaultReported):
            self.out.append(Answered(ticket, OK))
            self._fault(report, at)
        else:
            self.keep(report, ticket)
        return self._settled(at)

    def links_switched(self, done: bool, at: float) -> list[Out]:
        operations.links_switched(self, done, at)
        return self._settled(at)

    def stress_tested(self, results: dict[Rank, set[str]], at: float) -> list[Out]:
        """The codes of each rank's tests."""
        operations.stress_tested(self, results, at)
        return self._settled(at)

    # -- the cluster

    def devices(self, faults: frozenset[FaultRank], ailing: frozenset[Rank], at: float) -> list[Out]:
        """All faults that the job's devices show now, and the ranks whose device is not quite healthy."""
        grace = ailing if self.terms.grace_exit and self.terms.dump_only else frozenset()
        self.intake.show(faults | {FaultRank(rank) for rank in grace}, at, self.timing)
        if self.terms.hot_switch and self.switchable and self.state is State.INIT:
            migration.begin(self, ailing, at)
        return self._settled(at)

    def node_back(self, node: NodeId, at: float) -> list[Out]:
        """A node was started anew, in the place of the old one or beside it: it waits for the job."""
        self.case.replaced.add(node)
        return self._settled(at)

    def node_gone(self, node: NodeId, at: float) -> list[Out]:
        """A node that was exchanged is gone."""
        if self.state is State.WAIT_OLD_NODE:
            migration.old_node_gone(self, at)
        return self._settled(at)

    def runs(self, running: bool, at: float) -> list[Out]:
        """Whether the cluster runs the job."""
        self.running = running
        return self._settled(at)

    # -- operators; the answers are codes of the protocol

    def switch_links(self, ranks: tuple[tuple[Rank, bool], ...], at: float) -> tuple[int, list[Out]]:
        code = operations.switch_links(self, ranks, at)
        return code, self._settled(at)

    def stress_test(self, tests: tuple[tuple[Rank, tuple[int, ...]], ...], at: float) -> tuple[int, list[Out]]:
        code = operations.stress_test(self, tests, at)
        return code, self._settled(at)

    # -- time

    def tick(self, at: float) -> list[Out]:
        """Time has passed; call at `deadline()` at the latest."""
        return self._settled(at)

    def deadline(self) -> float | None:
        times = [self.until, self.alive_at, self.next_look(), self.intake.deadline()]
        if self.state is State.WAIT_RECOVER and not self.timing.poll:
            times.append(self.case.reschedule_by)
        return min((t for t in times if t is not None), default=None)

    # -- how it moves

    def _fault(self, report: FaultReported, at: float) -> None:
        """Without a subscriber a report is lost. What only a retry could cure and no retry may is an ordinary fault."""
        if not self.subscribed:
            return
        retry = Strategy.RETRY in self.terms.strategies and not self.paused
        faults = report.ranks if retry else tuple(FaultRank(fault.rank) for fault in report.ranks)
        if any(fault.type is FaultType.OTHER for fault in faults):
            self.case.merge((*faults, *self.intake.broken))
            recovery.fault_occurred(self, at)
        elif faults:
            self.intake.report(faults, at, self.timing)

    def _settled(self, at: float) -> list[Out]:
        while self._step(at):
            pass
        if self.alive_at is not None and at >= self.alive_at:
            self.alive_at = at + self.timing.keep_alive
            self.tell(SignalKind.KEEP_ALIVE)
        told, self.out[:] = list(self.out), []
        return told

    def _step(self, at: float) -> bool:
        """Make one move if the facts allow one."""
        if self.intake.settle(self, at):
            return True
        wait = WAITS.get(self.state)
        if wait is None:
            return self.state is State.SCALED_IN and recovery.scale_out(self, at)
        flow = FLOWS.get(self.state, recovery)
        report = self.take(wait.report)
        if report is not None:
            flow.heard(self, report, at)
            return True
        state = self.state
        if wait.poll and self.look_due(at):
            flow.look(self, at)
            if self.state is not state:
                return True
        if self.until is not None and at >= self.until:
            flow.overdue(self, at)
            return True
        return False


FLOWS = {
    **dict.fromkeys((State.WAIT_PAUSE, State.WAIT_NIC, State.WAIT_STRESS, State.WAIT_CONTINUE), operations),
    **dict.fromkeys((State.WAIT_NEW_NODE, State.WAIT_MIGRATION, State.WAIT_OLD_NODE, State.WAIT_MIGRATED), migration),
}
"""Who knows what a state waits for; the others are of `recovery`."""
