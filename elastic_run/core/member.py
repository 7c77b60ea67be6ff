"""Member: a node of a job that another one leads; it brings about what the leader asks, and tells how things stand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from signal import SIGTERM

from elastic_run.core.commands import Answer, Command, Exit, Mark, Note, Severity
from elastic_run.core.events import Event, LauncherFrozen, LeaderLost, LeaderTold, QuitRequested
from elastic_run.core.goals import NO_REPORT, NOTHING, Aim, Goal, NodeReport
from elastic_run.core.node import Node
from elastic_run.core.phases import Phase
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Blame, Fault, Origin, signal_name
from elastic_run.errors import ExitCode

TOLD_WAIT = 5.0
"""Seconds for the leader to stop the job after this launcher was told to stop; then it stops by itself."""


@dataclass(slots=True)
class Member:
    """The same outside as Job's, as far as an agent and whoever watches need it."""

    policy: Policy
    node: Node
    out: list[Command]
    phase: Phase = Phase.STARTING
    goal: Goal = NOTHING
    said: NodeReport = NO_REPORT
    faults: list[Fault] = field(default_factory=list)
    """Not told to the leader yet."""
    quits: int = 0
    quit_signal: int = 0
    quit_by: float | None = None
    alone: bool = False
    """There is nobody to report to."""
    restarts: int = 0
    incidents: int = 0
    incident: None = None

    # -- facts

    def begin(self, at: float) -> None:
        self.out.append(Mark(0, self.phase))

    def record(self, fact: Event, at: float) -> None:
        match fact:
            case LeaderTold():
                self._told(fact.goal, at)
            case LeaderLost():
                self._lost(fact, at)
            case QuitRequested():
                self._quit(fact.signum, at)
            case LauncherFrozen():
                because = "the launcher was suspended (SIGSTOP) and its guard ended the workers; please requeue"
                self._lost(LeaderLost(because, ExitCode.REQUEUE), at)
                self.node.wait_again(at)
            case _:
                pass  # of a controller, a store or a progress file, which the leader has

    def fault(self, fault: Fault | None, at: float) -> None:
        """A worker here failed; what follows is decided by the leader."""
        if fault is None or self.alone:
            return
        if fault.blame is not Blame.STOPPED and self.phase is Phase.TRAINING:
            host = self.node.site.host
            pid = f" (pid {fault.pid})" if fault.pid is not None else ""
            self.out.append(Note(Severity.ERROR, f"rank {fault.rank} on {host}{pid}: {fault.because}"))
        self.faults.append(fault)

    def _told(self, goal: Goal, at: float) -> None:
        if self.phase in (Phase.LEAVING, Phase.DONE):
            return
        self.goal = goal
        match goal.aim:
            case Aim.RUN:
                assert goal.assignment is not None
                self.restarts = goal.restarts
                self.node.start(goal.assignment, goal.restarts, at)
                self._enter(Phase.RECOVERING if goal.restarts else Phase.STARTING)
            case Aim.STOP:
                self.node.stop(goal.signum, at)
                self._enter(Phase.STOPPING)
            case Aim.END:
                for rank in goal.ranks:
                    self.fault(self.node.device_broken(rank, at), at)
            case Aim.KILL:
                self.node.kill(at)
                self._enter(Phase.STOPPING)
            case Aim.CLEAN:
                self.node.sweep(at, gently=goal.gently)
                self._enter(Phase.STOPPED)
            case Aim.LEAVE:
                self._enter(Phase.LEAVING)
            case Aim.WAIT:  # pragma: no branch - mypy checks that no aim is missing
                pass

    def _lost(self, fact: LeaderLost, at: float) -> None:
        """Whoever is cut off cannot know whether the job goes on elsewhere: no worker may live on here."""
        if self.phase is Phase.DONE or self.alone or self.goal.aim is Aim.LEAVE:
            return
        self.alone = True
        self.goal = replace(self.goal, aim=Aim.LEAVE, code=fact.code, because=fact.because, origin=Origin.LAUNCHER)
        self.node.kill(at)
        self._enter(Phase.LEAVING)

    def _quit(self, signum: int, at: float) -> None:
        """First signal: the leader stops the whole job. Second: kill what runs here."""
        self.quits += 1
        if self.quits > 1:
            self.out.append(Note(Severity.WARNING, f"{signal_name(signum)} again: killing all workers now"))
            self.node.kill(at)
        elif self.phase is not Phase.LEAVING:
            self.out.append(Note(Severity.WARNING, f"{signal_name(signum)} received; the leader stops the job"))
            self.quit_signal, self.quit_by = signum, at + TOLD_WAIT

    # -- conclusions

    def settle(self, at: float) -> None:
        stuck = self.node.stuck(at)
        if stuck is not None:
            self._report(stuck)
            self._exit(Exit(ExitCode.RECYCLE_HOST, Origin.LAUNCHER, f"{stuck}; this host must be recycled"))
            return
        if self.quit_by is not None and at >= self.quit_by:
            self.quit_by = None
            if self.phase is not Phase.LEAVING and self.goal.aim in (Aim.WAIT, Aim.RUN, Aim.END):
                because = f"stopped by {signal_name(self.quit_signal)}; the leader did not answer"
                self._lost(LeaderLost(because, 128 + self.quit_signal), at)
        if self.phase is Phase.LEAVING:
            self._settle_leaving(at)
        elif self.goal.aim is Aim.RUN and self.node.running and self.phase is not Phase.TRAINING:
            self._enter(Phase.TRAINING)

    def _settle_leaving(self, at: float) -> None:
        if self.node.alive:
            self.node.stop(SIGTERM, at)
            return
        self.node.sweep(at, gently=not self.alone)
        if self.node.swept or not self.node.workers:
            goal = self.goal
            self._exit(Exit(goal.code, goal.origin, goal.because))

    def flush(self) -> None:
        """Tell the leader what has changed."""
        if not self.alone and self.phase is not Phase.DONE:
            self._report("")

    def _report(self, stuck: str) -> None:
        node = self.node
        report = NodeReport(
            seq=self.goal.seq,
            alive=len(node.alive),
            running=node.running,
            succeeded=node.succeeded,
            swept=node.swept,
            stuck=stuck,
            quit=self.quit_signal,
        )
        if report != self.said or self.faults:
            self.said = report
            self.out.append(Answer(replace(report, faults=tuple(self.faults))))
            self.faults.clear()

    def deadlines(self) -> list[float]:
        return [] if self.quit_by is None else [self.quit_by]

    def _exit(self, order: Exit) -> None:
        self.phase = Phase.DONE
        self.quit_by = None
        self.out.append(order)

    def _enter(self, phase: Phase) -> None:
        if phase is not self.phase:
            self.phase = phase
            self.out.append(Mark(0, phase))
