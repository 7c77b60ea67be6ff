"""Job: one incident from fault to recovered; the dialogue with the controller, and how a job ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from signal import SIGTERM

from elastic_run.core import ending, forming, rule
from elastic_run.core.budget import Budget, Verdict
from elastic_run.core.commands import Command, Exit, Explain, Mark, Note, ReadProgress, Severity
from elastic_run.core.crew import Crew
from elastic_run.core.dialogue import (
    Offer,
    Report,
    Ruler,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.ending import NOBODYS, Ending
from elastic_run.core.events import (
    CallFinished,
    Event,
    LauncherFrozen,
    LinkChanged,
    NodeJoined,
    NodeLost,
    NodeReported,
    ProgressRead,
    QuitRequested,
    RendezvousFinished,
    SignalReceived,
    StoreLost,
)
from elastic_run.core.hearing import hear
from elastic_run.core.incident import OWN_DEATH, Incident
from elastic_run.core.node import Node
from elastic_run.core.outbox import Outbox
from elastic_run.core.phases import PHASE_MOVES, UNBOUNDED, Phase
from elastic_run.core.policy import Policy
from elastic_run.core.strategy import offer
from elastic_run.core.vocabulary import Assignment, Blame, ExitStatus, Fault, FaultKind, Origin, Rank, signal_name
from elastic_run.errors import ExitCode


@dataclass(slots=True)
class Job:
    policy: Policy
    crew: Crew
    out: list[Command]
    outbox: Outbox
    budget: Budget
    phase: Phase = Phase.STARTING
    until: float | None = None
    began: float = 0.0
    round: int = 0
    restarts: int = 0
    asked_round: int = -1
    assignment: Assignment | None = None
    spawned: bool = False
    training_since: float = 0.0
    incident: Incident | None = None
    incidents: int = 0
    ending: Ending | None = None
    quits: int = 0
    looks: int = 0
    link_up: bool = False
    """ClusterD listens."""
    forgone: bool = False
    """ClusterD never will."""
    renew: bool = False
    """ClusterD has begun an incident that it does not rule."""
    recovered: str = ""
    """What the last incident was that the job came back from."""
    uuids: set[str] = field(default_factory=set)
    """Of all incidents so far; a late stop of an old one does not name the new one."""

    grow_at: float | None = None
    """When the group forms anew with the nodes that have joined since."""

    # -- facts

    def begin(self, at: float) -> None:
        self.began = self.training_since = at
        waits = self.policy.require_clusterd
        self.until = at + (self.policy.clusterd_timeout if waits else forming.patience(self))
        self.out.append(Mark(0, self.phase))

    def record(self, fact: Event, at: float) -> None:
        """A fact about more than a local worker."""
        match fact:
            case RendezvousFinished():
                forming.met(self, fact, at)
            case StoreLost():
                self.store_lost(fact, at)
            case NodeJoined():
                forming.joined(self, fact, at)
            case NodeReported():
                forming.reported(self, fact, at)
            case NodeLost():
                forming.lost(self, fact, at)
            case SignalReceived():
                hear(self, fact, at)
            case LinkChanged():
                rule.link_changed(self, fact, at)
            case CallFinished():
                self.outbox.answered(fact)
            case ProgressRead():
                self.progress(fact)
            case QuitRequested():
                self.quit(fact.signum, at)
            case LauncherFrozen():
                self.frozen(at)
            case _:
                pass  # nothing happened until the deadline, or of a leader, who is nobody else here

    def fault(self, fault: Fault | None, at: float) -> None:
        """A worker of this job failed (None: it did not); what it means depends on the phase."""
        if fault is None:
            return
        own = fault.blame in OWN_DEATH
        if self.ending is not None and self.ending.origin is Origin.SIGNAL:
            ending.not_saved(self, fault)
        elif self.phase in (Phase.STARTING, Phase.TRAINING):
            self.open(fault, at)
            self._announce(fault)
        elif self.incident is not None and self.phase not in (Phase.LEAVING, Phase.DONE):
            self.incident.add(fault)
            if fault.blame is Blame.CULPRIT:
                self.incident.culprit_by = None
            if self.phase is Phase.RECOVERING and own:
                self._fault_while_recovering(fault, at)

    def store_lost(self, fact: StoreLost, at: float) -> None:
        """A new group could not be formed in this round: a new round, and no rank is to blame."""
        if fact.round == self.round and self.assignment is not None:
            because, status = "its process has ended", ExitStatus(code=ExitCode.UNAVAILABLE)
            rank = self.assignment.ranks[0]
            fault = Fault(rank, self.node.site.node, FaultKind.STORE_LOST, Blame.CULPRIT, because, at, status)
            if self.phase in (Phase.STARTING, Phase.TRAINING, Phase.RECOVERING):
                self.fault(replace(fault, restarts=self.restarts), at)

    def progress(self, fact: ProgressRead) -> None:
        incident = self.incident
        if incident and incident.progress_by is not None and fact.seq == incident.progress_seq:
            incident.progress_by = None
            self.budget.observe(fact.token or "", incident.uptime)

    def quit(self, signum: int, at: float) -> None:
        """First signal: pass it on and wait for the grace. Second: kill."""
        self.quits += 1
        if self.quits > 1:
            self.note(Severity.WARNING, f"{signal_name(signum)} again: killing all workers now")
            self.crew.kill(at)
        elif self.phase is Phase.LEAVING:
            self.note(Severity.WARNING, f"{signal_name(signum)}: already stopping; once more kills at once")
        else:
            grace = f"{self.policy.stop_grace:g} s grace"
            self.note(Severity.WARNING, f"{signal_name(signum)} received, passed on to the workers ({grace})")
            self.ending = Ending(f"stopped by {signal_name(signum)}", Origin.SIGNAL, None, signum)
            self._enter_leaving(at)

    def frozen(self, at: float) -> None:
        """The guard has ended the workers; the time in which this launcher could not act counts for nothing."""
        if self.phase is Phase.LEAVING:
            self.until = at + 2 * self._stop_bound()
        else:
            because = "the launcher was suspended (SIGSTOP) and its guard ended the workers; please requeue"
            self.leave(because, Origin.LAUNCHER, ExitCode.REQUEUE, at)
        self.crew.kill(at)
        self.node.wait_again(at)

    def leave(self, because: str, origin: Origin, code: int, at: float) -> None:
        self.ending = Ending(because, origin, code)
        self._enter_leaving(at)

    @property
    def node(self) -> Node:
        """The leader's own."""
        return self.crew.here

    @property
    def first_rank(self) -> Rank:
        """Of this node; before the first rendezvous it is taken for the first node."""
        return self.assignment.ranks[0] if self.assignment is not None else 0

    def report(self, report: Report) -> None:
        """To the one who rules the open incident, unless it has forgotten it."""
        incident = self.incident
        assert incident is not None
        if not incident.forgotten:
            self.outbox.put(incident.uuid, report, incident.ruler)

    def report_failure(self, strategy: Strategy) -> None:
        """Once for each strategy of a dialogue: the order may come twice."""
        incident = self.incident
        assert incident is not None
        if strategy not in incident.failed:
            incident.failed.add(strategy)
            self.report(StatusReported(1, strategy))

    # -- conclusions

    def settle(self, at: float) -> None:
        """Do what the recorded facts call for in this phase. Idempotent; called until nothing changes."""
        incident = self.incident
        if incident and incident.progress_by is not None and at >= incident.progress_by:
            incident.progress_by = None
            self.budget.observe(None, incident.uptime)
        self.crew.look_at = None
        stuck = self.node.stuck(at)  # of another node: it is lost (forming.reported)
        if stuck is not None:
            self._exit(ExitCode.RECYCLE_HOST, Origin.LAUNCHER, f"{stuck}; this host must be recycled")
        elif self.until is not None and at >= self.until:
            self._overdue(at)
        else:
            match self.phase:
                case Phase.STARTING | Phase.RECOVERING:
                    forming.settle(self, at)
                case Phase.TRAINING:
                    if self.crew.succeeded:
                        self.leave("", Origin.WORKERS, ExitCode.OK, at)
                    elif self.grow_at is not None and at >= self.grow_at:
                        forming.grow(self, at)
                case Phase.REPORTED:
                    self._settle_reported(at)
                case Phase.STOPPING:
                    self._settle_stopping(at)
                case Phase.STOPPED:
                    if self.incident and self.incident.global_told:
                        self._diagnose(self.incident, at)
                case Phase.DIAGNOSED:
                    self._settle_diagnosed(at)
                case Phase.LEAVING:
                    self._settle_leaving(at)
                case Phase.DONE:  # pragma: no cover - nothing is settled after the end; mypy wants the row
                    pass

    def flush(self) -> None:
        """Reports leave last."""
        self.outbox.settle()

    def deadlines(self) -> list[float]:
        incident = self.incident
        times = [self.until, self.crew.look_at, self.grow_at if self.phase is Phase.TRAINING else None]
        if incident is not None:
            times += [incident.progress_by, incident.culprit_by if self.phase is Phase.REPORTED else None]
        return [t for t in times if t is not None]

    # -- one incident, in the order of its phases

    def open(self, fault: Fault, at: float) -> None:
        self.incidents += 1
        uptime = at - self.training_since if self.phase is Phase.TRAINING else 0.0
        self.incident = Incident(self.incidents, at, uptime, [fault], fault)
        if fault.kind in NOBODYS:
            pass  # it says nothing about the program's progress
        elif self.policy.progress_known:
            self.looks += 1
            self.incident.progress_seq = self.looks
            self.incident.progress_by = at + self.policy.progress_wait
            self.out.append(ReadProgress(self.looks))
        else:
            self.budget.observe(None, uptime)
        if fault.blame is Blame.VICTIM:
            self.incident.culprit_by = at + self.policy.culprit_wait
        self.incident.ruler = rule.who(self)
        self.enter(Phase.REPORTED, at, rule.patience(self))

    def _announce(self, fault: Fault) -> None:
        hung = fault.kind is FaultKind.HUNG  # it lives still
        others = self.crew.alive - hung
        tail = f"; stopping the {others} other{'s' if others > 1 else ''}" if others else ""
        self.note(Severity.ERROR, f"{self.name(fault)}: {fault.because}{tail}")

    def _settle_reported(self, at: float) -> None:
        incident = self.incident
        assert incident is not None
        rule.report_deaths(self, incident)
        if incident.culprit_by is not None and (at >= incident.culprit_by or self.crew.quiet):
            incident.culprit_by = None
        if incident.stop_told and incident.culprit_by is None:
            self.enter(Phase.STOPPING, at, self._stop_bound())
            self.crew.stop(SIGTERM, at)

    def _settle_stopping(self, at: float) -> None:
        assert self.incident is not None
        if not self.crew.quiet:
            return
        self.crew.sweep(at, gently=False)
        if self.crew.swept and self.incident.progress_by is None:
            self.enter(Phase.STOPPED, at, rule.patience(self))
            if self.incident.save:
                self._saved(self.incident, at)
            else:
                rule.report_deaths(self, self.incident)
                self.report(StopCompleted())

    def _saved(self, incident: Incident, at: float) -> None:
        """Whoever was asked to stop has saved if it then exited 0."""
        lost = [fault for fault in incident.faults if fault.blame not in OWN_DEATH]
        incident.verdict = Verdict(False, "workers were to save and exit")
        incident.offer = Offer((Strategy.EXIT,), incident.verdict.because)
        self.enter(Phase.DIAGNOSED, at, rule.patience(self))
        self.report(StatusReported(1 if lost else 0, Strategy.DUMP))

    def _diagnose(self, incident: Incident, at: float) -> None:
        incident.verdict = self._verdict(incident, at, spend=False)
        incident.offer = offer(incident.verdict)
        self.enter(Phase.DIAGNOSED, at, rule.patience(self))
        self.report(StrategiesOffered(incident.offer.strategies))

    def _settle_diagnosed(self, at: float) -> None:
        assert self.incident is not None
        choice, self.incident.choice = self.incident.choice, None
        if choice in (Strategy.RECOVER, Strategy.CONTINUE):
            self.incident.verdict = self._verdict(self.incident, at, spend=True)
            if self.incident.verdict.allowed:
                self._restart(at)
                self.explain(f"restarting {self.group()} ({self.incident.verdict.because})")
            else:
                self._recovery_failed(self.incident.verdict, at)
        elif choice is Strategy.EXIT:
            ending.give_up(self, self.incident, self._why_exit(self.incident), at)

    def _why_exit(self, incident: Incident) -> str:
        assert incident.verdict is not None
        chose = incident.verdict.allowed  # although there was another way
        return f"{incident.ruler.value} chose exit" if chose else incident.verdict.because

    def _verdict(self, incident: Incident, at: float, *, spend: bool) -> Verdict:
        """May the group be restarted? `spend`: it will be."""
        if incident.culprit.kind is FaultKind.STORE_LOST:
            verdict = self.budget.forgive()
            self.budget.forgiven += spend and verdict.allowed
            return verdict
        if incident.culprit.kind is FaultKind.NODE_JOINED:
            return Verdict(True, "for the nodes that have joined")
        if incident.pause:
            return Verdict(True, "training paused for an operator")
        return self.budget.spend(at) if spend else self.budget.verdict(at)

    def _restart(self, at: float) -> None:
        """Begin a new round; leftovers of the old one end first, in `_settle_start`."""
        self.round += 1
        self.restarts += 1
        self.assignment, self.spawned, self.grow_at = None, False, None
        bound = self._stop_bound() + forming.patience(self)
        if self.phase is Phase.RECOVERING:
            self.until = at + bound
        else:
            self.enter(Phase.RECOVERING, at, bound)

    def form_anew(self, at: float) -> None:
        """Somebody of the group that is being formed is gone; nothing runs yet."""
        self.round += 1
        self.assignment = None
        self.until = at + forming.patience(self)

    def _fault_while_recovering(self, fault: Fault, at: float) -> None:
        assert self.incident is not None
        self.incident.announced = fault
        self.note(Severity.ERROR, f"{self.name(fault)}: {fault.because}, while recovering")
        self.crew.stop(SIGTERM, at)
        if fault.kind not in NOBODYS:
            self.budget.observe(None, 0.0)
        self.incident.verdict = self._verdict(self.incident, at, spend=True)
        if self.incident.verdict.allowed:
            self._restart(at)
        else:
            self._recovery_failed(self.incident.verdict, at)

    def _recovery_failed(self, verdict: Verdict, at: float) -> None:
        assert self.incident is not None
        self.incident.verdict = verdict
        self.incident.offer = Offer((Strategy.EXIT,), verdict.because)
        if self.incident.forgotten:
            self.incident.forgotten = False
            rule.begin_again(self, at)
        else:
            self.enter(Phase.DIAGNOSED, at, rule.patience(self))
            self.report_failure(self.way(self.incident))

    def way(self, incident: Incident) -> Strategy:
        return Strategy.CONTINUE if incident.pause else Strategy.RECOVER

    # -- the end

    def _enter_leaving(self, at: float) -> None:
        assert self.ending is not None
        self.enter(Phase.LEAVING, at, 2 * self._stop_bound())
        self.crew.stop(self.ending.signum, at)

    def _settle_leaving(self, at: float) -> None:
        assert self.ending is not None
        if not self.crew.quiet:
            return
        self.crew.sweep(at, gently=True)
        if self.crew.swept or not self.crew.ranks:
            self._exit(*ending.final(self, at))

    def _overdue(self, at: float) -> None:
        """A phase lasted longer than it may."""
        self.until = None
        if self.phase is Phase.RECOVERING:
            self._recovery_failed(Verdict(False, "the workers did not start again in time"), at)
        elif self.phase is Phase.STARTING and self.asked_round < 0:
            because = f"ClusterD was not reached within {self.policy.clusterd_timeout:g} s (--require-clusterd)"
            self.leave(because, Origin.LAUNCHER, ExitCode.UNAVAILABLE, at)
        elif self.phase is Phase.STARTING:
            self.leave("the workers did not start in time", Origin.LAUNCHER, ExitCode.UNAVAILABLE, at)
        elif self.phase in (Phase.STOPPING, Phase.LEAVING):
            because = "the workers could not be stopped in time; this host must be recycled"
            self._exit(ExitCode.RECYCLE_HOST, Origin.LAUNCHER, because)
        elif self.incident is not None and self.incident.ruler is Ruler.CLUSTERD:
            rule.silent(self, at)
        else:
            because = f"the controller said nothing for {self.policy.signal_wait:g} s ({self.phase.value})"
            self.leave(because, Origin.LAUNCHER, ExitCode.UNAVAILABLE, at)

    def _exit(self, code: int, origin: Origin, because: str) -> None:
        self._move(Phase.LEAVING)
        self._move(Phase.DONE)
        self.until = None
        self.crew.disband(code, origin, because)
        self.out.append(Exit(code, origin, because))

    # -- words and moves

    def name(self, fault: Fault) -> str:
        if fault.kind is FaultKind.STORE_LOST:
            return f"the workers' store on {self.node.site.host}"
        if fault.kind is FaultKind.TOLD:
            return "ClusterD"
        host = fault.host or self.node.site.host
        if fault.kind in (FaultKind.NODE_LOST, FaultKind.NODE_JOINED):
            return f"the node on {host}" if fault.kind is FaultKind.NODE_LOST else "new nodes"
        pid = f" (pid {fault.pid})" if fault.pid is not None else ""
        return f"rank {fault.rank} on {host}{pid}"

    def group(self) -> str:
        """What starts again; how many ranks that will be is not known where nodes come and go."""
        return "the group" if self.policy.nodes_max > 1 else self.all_ranks()

    def all_ranks(self) -> str:
        count = self.crew.ranks
        return f"all {count} ranks" if count > 1 else "the one rank"

    def explain(self, decision: str) -> None:
        assert self.incident is not None
        fault = self.incident.culprit
        announced = fault is self.incident.announced
        self.out.append(Explain(fault, fault.restarts, decision, announced))

    def note(self, severity: Severity, text: str) -> None:
        self.out.append(Note(severity, text))

    def _stop_bound(self) -> float:
        """Longest time in which everything is gone or known to be stuck: workers, then leftovers."""
        return self.policy.stop_grace + 2 * self.policy.kill_grace + 1.0

    def enter(self, phase: Phase, at: float, lasts: float | None) -> None:
        self._move(phase)
        self.until = None if lasts is None else at + lasts
        assert (self.until is None) == (phase in UNBOUNDED)
        self.out.append(Mark(self.incident.ordinal if self.incident else 0, phase))

    def _move(self, phase: Phase) -> None:
        if phase is not self.phase:
            assert phase in PHASE_MOVES[self.phase], f"{self.phase.value} -> {phase.value}"
            self.phase = phase
