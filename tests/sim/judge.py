"""What must hold at every step, judged from the world's truth and from the orders alone, never from the agent's state.

The judge keeps its own account of the budget, the incident and the ending, written from the documents and not from
the core, and compares.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING

from elastic_run.clusterd.states import State
from elastic_run.core.agent import Agent, Snapshot
from elastic_run.core.commands import (
    BeginRendezvous,
    Call,
    Command,
    Exit,
    Explain,
    Kill,
    Mark,
    ReadProgress,
    Spawn,
    Sweep,
)
from elastic_run.core.dialogue import (
    FaultReported,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.events import (
    Event,
    LauncherFrozen,
    QuitRequested,
    RendezvousFinished,
    SignalReceived,
    SpawnFailed,
    StoreLost,
    Tick,
    WorkerExited,
    WorkerHung,
    WorkerStarted,
)
from elastic_run.core.phases import PHASE_MOVES, UNBOUNDED, Phase
from elastic_run.core.vocabulary import ExitStatus, Origin
from elastic_run.errors import ExitCode

from .ledger import Ledger

if TYPE_CHECKING:
    from .world import World

TICKS_PER_SECOND = 40
SAYINGS: dict[Phase, tuple[SignalKind, Strategy | None]] = {
    Phase.STOPPING: (SignalKind.STOP_TRAIN, None),
    Phase.DIAGNOSED: (SignalKind.GLOBAL_FAULT, None),
    Phase.RECOVERING: (SignalKind.CHANGE_STRATEGY, Strategy.RECOVER),
}
"""The word of the controller that each of these phases needs."""
SLACK = 2.0
"""Seconds a bound may be missed by: pauses between searches, delays of the wire."""


class Broken(AssertionError):
    """The agent or the controller did what it must not."""


@dataclass(frozen=True, slots=True)
class Death:
    """A failure as the agent heard of it; `kind` 0 own doing, 1 failing as it was stopped, 2 victim, 3 stopped."""

    kind: int
    at: float
    rank: int
    incarnation: int
    status: ExitStatus
    wall: float | None
    store: bool = False
    """Of the workers' store: no rank is to blame."""


@dataclass(slots=True)
class Judge:
    world: World
    phase: Phase = Phase.STARTING
    entered: float = 0.0
    exited: Exit | None = None
    known: set[tuple[int, int]] = field(default_factory=set)
    """Lives whose start the agent has heard of, and not their end."""
    sent: Counter[tuple[tuple[int, int], bool]] = field(default_factory=Counter)
    """Signals per life, soft and hard apart."""
    hung: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    """Lives that were seen to hang: when, and the signal that is to end them."""
    stop_at: float | None = None
    """When this round was first asked to stop."""
    stop_signum: int = SIGTERM
    rounds: list[int] = field(default_factory=list)
    opened: float | None = None
    incident_restarts: int = 0
    deaths: list[Death] = field(default_factory=list)
    reported: set[int] = field(default_factory=set)
    own_dead: set[int] = field(default_factory=set)
    said: set[tuple[str, type]] = field(default_factory=set)
    told_of: list[SignalReceived] = field(default_factory=list)
    """What the controller said, as it said it."""
    heard: set[tuple[str, SignalKind, Strategy | None]] = field(default_factory=set)
    """What of it has arrived."""
    seq: int = 0
    training_at: float = 0.0
    may: bool = True
    """The budget allowed a restart when the incident was diagnosed."""
    failed: bool = False
    """A recovery failed for good."""
    expect_restart: bool | None = None
    no_rendezvous: bool = False
    met: int = -1
    """The newest round whose rendezvous is finished."""
    spawned: int = -1
    """The newest round whose workers were asked for."""
    quits: list[int] = field(default_factory=list)
    frozen: bool = False
    cause: str = ""
    """`quit` or `frozen`, where that is what ended the job."""
    left_from: Phase = Phase.STARTING
    left_after: float = 0.0
    soft_sweeps: int = 0
    hard_sweeps: int = 0
    snapshots: dict[int, tuple[int, Snapshot]] = field(default_factory=dict)
    """One of each round, and how many facts came before it."""
    ticks: Counter[int] = field(default_factory=Counter)
    steps: int = 0
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.world.setup.policy)

    @property
    def now(self) -> float:
        return self.world.now

    @property
    def hurry(self) -> bool:
        return len(self.quits) > 1 or self.frozen

    def claim(self, holds: bool, what: str) -> None:
        if not holds:
            raise Broken(f"{self.now:.3f} {what}")

    # -- facts, before the agent has them

    def hears(self, fact: Event, echo: bool) -> None:
        self.steps += 1
        self.claim(self.steps < 20_000, "the job never ends")
        self.expect_restart = None
        self.ledger.hears(fact, self.now, leaving=self.phase is Phase.LEAVING)
        if echo:
            return
        match fact:
            case Tick():
                self.ticks[int(self.now)] += 1
                self.claim(self.ticks[int(self.now)] <= TICKS_PER_SECOND, "the loop spins")
            case WorkerStarted():
                if not self.world.processes[fact.rank, fact.incarnation].told:
                    self.known.add((fact.rank, fact.incarnation))
            case WorkerExited():
                self.known.discard((fact.rank, fact.incarnation))
                self.world.processes[fact.rank, fact.incarnation].told = True
                self._death(fact)
            case SpawnFailed():
                self._death(fact)
            case WorkerHung():
                self._hangs(fact)
            case StoreLost():
                self._loses_store(fact)
            case SignalReceived():
                self.heard.add((fact.uuid, fact.kind, fact.strategy))
            case RendezvousFinished():
                if fact.round == len(self.ledger.restarts):
                    self.no_rendezvous = fact.assignment is None
                    self.met = fact.round if fact.assignment is not None else self.met
            case QuitRequested():
                self.quits.append(fact.signum)
                if self.phase is not Phase.LEAVING:
                    self.cause = "quit"
            case LauncherFrozen():
                self.frozen = True
                if self.phase is not Phase.LEAVING:
                    self.cause = "frozen"

    def _death(self, fact: WorkerExited | SpawnFailed) -> None:
        status = fact.status if isinstance(fact, WorkerExited) else ExitStatus(code=126)
        if status.ok or (fact.rank, fact.incarnation) in self.hung:
            return
        words = fact.tail if isinstance(fact, WorkerExited) else ""
        wall = fact.error.wall_time if isinstance(fact, WorkerExited) and fact.error else None
        if self.stop_at is not None:
            kind = 1 if "Traceback" in words and "peer" not in words else 3
        else:
            kind = 2 if "peer" in words else 0
        self._failed(Death(kind, self.now, fact.rank, fact.incarnation, status, wall))

    def _hangs(self, fact: WorkerHung) -> None:
        life = next(((p.rank, p.incarnation) for p in self.world.processes.values() if p.pid == fact.pid), None)
        if life in self.known and life not in self.hung and self.stop_at is None:
            self.hung[life] = (self.now, fact.signum)
            self._failed(Death(0, self.now, *life, ExitStatus(signal=fact.signum), None))

    def _loses_store(self, fact: StoreLost) -> None:
        starts = self.phase in (Phase.STARTING, Phase.TRAINING, Phase.RECOVERING)
        if starts and fact.round == len(self.ledger.restarts) == self.met:
            status = ExitStatus(code=ExitCode.UNAVAILABLE)
            self._failed(Death(0, self.now, 0, fact.round + 1, status, None, store=True))

    def _failed(self, death: Death) -> None:
        if self.phase is not Phase.LEAVING:  # by then it is decided who was to blame
            self.deaths.append(death)
        if self.stop_at is None:
            self.own_dead.add(death.rank)
            if self.phase is Phase.RECOVERING:
                self.stop_at, self.stop_signum = self.now, SIGTERM
                if not death.store:
                    self.ledger.observe(None, 0.0)
                self.expect_restart = self._allows()
                self.failed |= not self.expect_restart
                if self.expect_restart:
                    self._restarted()

    # -- orders, before they are carried out

    def sees(self, orders: list[Command]) -> None:
        spawned = [o for o in orders if isinstance(o, Spawn)]
        if spawned:
            self._spawned(spawned)
        for order in orders:
            self.claim(self.exited is None, f"an order after Exit: {order}")
            match order:
                case Mark():
                    self._entered(order.phase)
                case Kill():
                    self._killed(order)
                case Sweep():
                    self._swept(order)
                case Call():
                    self._called(order)
                case BeginRendezvous():
                    self.claim(order.round == len(self.ledger.restarts), f"round {order.round} is not the next one")
                    self.claim(order.round not in self.rounds, "a round began twice")
                    self.rounds.append(order.round)
                case ReadProgress():
                    self.ledger.looks += 1
                case Explain() if self.cause == "quit":
                    told = [p.told and p.status for p in self.world.processes.values() if p.rank == order.fault.rank]
                    self.claim(order.fault.status in told, "a failure to stop that did not happen")
                case Explain():
                    names = {(d.rank, d.incarnation - 1) for d in self._culprits()}
                    self.claim((order.fault.rank, order.restarts) in names, f"the culprit is one of {names}")
                case Exit():
                    self.exited = order
                    self._ended(order)
        if self.expect_restart is not None and self.exited is None and self.phase is not Phase.LEAVING:
            expected = Phase.RECOVERING if self.expect_restart else Phase.DIAGNOSED
            self.claim(self.phase is expected, f"a fault while recovering leads to {expected.value}")

    def _spawned(self, orders: list[Spawn]) -> None:
        ranks = tuple(o.rank for o in orders)
        world = self.world
        self.claim(ranks == tuple(range(world.setup.ranks)), f"spawned {ranks} and not everyone")
        self.claim(not any(p.alive for p in world.processes.values()), "two lives of a rank")
        self.claim(not any(x.alive for x in world.leftovers), "spawned while a leftover lives")
        self.claim(all(p.told for p in world.processes.values()), "spawned before the last one's end was known")
        for order in orders:
            self.claim((order.rank, order.incarnation) not in world.processes, "an incarnation was used twice")
            self.claim(order.assignment.round == self.rounds[-1], "an assignment of another round")
            self.claim(order.restarts == len(self.ledger.restarts), "restarts are miscounted")
        self.claim(self.phase in (Phase.STARTING, Phase.RECOVERING), f"spawned while {self.phase.value}")
        self.stop_at, self.soft_sweeps, self.hard_sweeps = None, 0, 0
        self.spawned = orders[0].assignment.round

    def _entered(self, phase: Phase) -> None:
        before, self.phase = self.phase, phase
        legal = phase is before or phase in PHASE_MOVES[before]
        self.claim(legal and not (phase is before and self.now > 0.0), f"{before.value} -> {phase.value}")
        if phase is Phase.LEAVING:
            self.left_from, self.left_after = before, self.now - self.entered
        if phase in SAYINGS and before is not Phase.RECOVERING:
            said = (self.world.open_id, *SAYINGS[phase])
            self.claim(self.world.muted or said in self.heard, f"{phase.value} before it was told so")
        match phase:
            case Phase.REPORTED:
                self._opened(before)
            case Phase.STOPPED:
                self._quiet()
            case Phase.STOPPING if self._only_victims() and self.known:
                patient = self.now >= (self.opened or 0.0) + self.world.setup.policy.culprit_wait - 1e-9
                self.claim(patient, "the culprit was not waited for")
                self.stop_at, self.stop_signum = self.now, SIGTERM
            case Phase.STOPPING | Phase.LEAVING if self.stop_at is None:
                self.stop_at = self.now
                self.stop_signum = self.quits[0] if self.cause == "quit" else SIGTERM
            case Phase.DIAGNOSED if before is Phase.STOPPED:
                self.claim(self.ledger.look is None, "diagnosed before progress was known")
                self.may = self._allows()
            case Phase.DIAGNOSED:
                bound = self._stop_bound() + self.world.setup.policy.start_wait
                late = self.now >= self.ledger.restarts[-1] + bound - 1e-9
                self.claim(self.failed or late, "a recovery was given up while it could go on")
                self.failed = True
            case Phase.RECOVERING:
                self.claim(self._allows(), "a restart over the budget")
                self._restarted()
            case Phase.TRAINING:
                self._trains()
        self.entered = self.now

    def _restarted(self) -> None:
        if self._store_is_to_blame():
            self.ledger.forgiven.add(len(self.ledger.restarts))
        self.ledger.restarts.append(self.now)
        self.incident_restarts += 1

    def _allows(self) -> bool:
        return self.ledger.forgives() if self._store_is_to_blame() else self.ledger.allows(self.now)

    def _store_is_to_blame(self) -> bool:
        return any(death.store for death in self._culprits())

    def _only_victims(self) -> bool:
        return self.stop_at is None and all(death.kind == 2 for death in self.deaths)

    def _quiet(self) -> None:
        self.claim(not any(p.alive for p in self.world.processes.values()), "stopped, and a worker lives")
        self.claim(not any(x.alive for x in self.world.leftovers), "stopped, and a leftover lives")

    def told(self, signal: SignalReceived) -> None:
        """The controller speaks: each thing once, in order, not before its time."""
        timing, now = self.world.setup.timing, self.now
        past = [s for s in self.told_of if s.uuid == signal.uuid]
        order = {SignalKind.STOP_TRAIN: 0, SignalKind.GLOBAL_FAULT: 1, SignalKind.CHANGE_STRATEGY: 2}
        if signal.kind is not SignalKind.CHANGE_STRATEGY:
            self.claim(len(past) == order[signal.kind], f"the controller says {signal.kind.value} out of turn")
        if signal.kind is SignalKind.GLOBAL_FAULT:
            patient = now >= self.world.stopped_at + timing.flush + timing.release - 1e-9
            self.claim(patient, "the controller did not gather late faults")
        self.told_of.append(signal)

    def _opened(self, before: Phase) -> None:
        uptime = self.now - self.training_at if before is Phase.TRAINING else 0.0
        self.opened, self.incident_restarts, self.may, self.failed = self.now, 0, True, False
        self.reported = set()
        if not self.deaths[-1].store:
            self.ledger.failed(self.now, uptime)

    def _trains(self) -> None:
        self.opened, self.training_at, self.deaths = None, self.now, []
        self.own_dead = set()

    def _killed(self, order: Kill) -> None:
        life = (order.rank, order.incarnation)
        hard = order.signum == SIGKILL
        policy = self.world.setup.policy
        self.sent[life, hard] += 1
        self.claim(life in self.known, f"a signal to {life}, which is not known to live")
        self.claim(self.sent[life, hard] == 1, f"{life} got the same signal twice")
        at, signum = self.hung.get(life, (self.stop_at, self.stop_signum))
        self.claim(at is not None, f"a signal to {life} while {self.phase.value}")
        assert at is not None
        if hard:
            patient = self.now >= at + policy.stop_grace - 1e-9 or signum == SIGKILL
            self.claim(self.hurry or patient, f"SIGKILL to {life} before the grace was over")
        else:
            self.claim(order.signum == signum, f"{life} got signal {order.signum}")

    def _swept(self, order: Sweep) -> None:
        self.claim(not any(p.alive for p in self.world.processes.values()), "a search while workers live")
        if order.signum == SIGKILL:
            gentle = self.phase is Phase.LEAVING and not self.hard_sweeps and not self.hurry
            begun = self.now if self.stop_at is None else self.stop_at
            patient = self.now >= begun + self.world.setup.policy.stop_grace - 1e-9
            self.claim(not gentle or patient, "leftovers got SIGKILL before the grace was over")
            self.hard_sweeps += 1
        else:
            self.claim(not self.hurry, "a gentle search when everything must be killed now")
            self.soft_sweeps += order.signum != 0
            self.claim(self.soft_sweeps <= 1, "leftovers got SIGTERM twice")

    def _called(self, order: Call) -> None:
        world, report = self.world, order.report
        self.claim(world.calls_open == 0, "two calls in flight")
        self.claim(order.seq == self.seq + 1, "calls out of order")
        self.seq = order.seq
        if isinstance(report, FaultReported):
            self.claim(bool(report.ranks), "a fault of nobody")
            ranks = {fault.rank for fault in report.ranks}
            self.claim(ranks <= self.own_dead, f"ranks {ranks} did not all die")
            self.reported |= ranks
            return
        once = (order.uuid, type(report))
        self.claim(once not in self.said, f"{type(report).__name__} twice for {order.uuid}")
        self.said.add(once)
        self.claim(order.uuid == world.open_id, f"a report for {order.uuid}, which is not open")
        match report:
            case StopCompleted():
                self.claim(self.own_dead <= self.reported, f"{self.own_dead - self.reported} not reported")
            case StrategiesOffered():
                self.claim(
                    (Strategy.RECOVER in report.strategies) == self.may,
                    "the offer is not what the budget allows",
                )
            case StatusReported():
                self.claim((report.code != 0) == self.failed, "the status is not how it went")

    # -- after the orders of one fact

    def rules(self) -> None:
        agent, world = self.world.agent, self.world
        agent.check()
        due = agent.deadline()
        self.claim(due is None or due > self.now, "a deadline that has passed")
        if self.exited is not None:
            self.claim(due is None, "a deadline after Exit")
            return
        self.claim((due is not None) or self.phase in UNBOUNDED, f"no deadline while {self.phase.value}")
        told = (world.open_id, SignalKind.STOP_TRAIN, None) in self.heard
        told = told and world.controller.state is State.WAIT_STOP
        waits = self.phase is Phase.REPORTED and told and not self._only_victims()
        self.claim(not waits, "the culprit is known, and the others are not asked to stop")
        if self.stop_at is not None:
            self._stopping(self.stop_at)
        if self.phase is Phase.TRAINING:
            round_now = len(self.rounds)
            if world.setup.seed % 4 == 0 and round_now not in self.snapshots and (snapshot := agent.snapshot()):
                self.snapshots[round_now] = (len(world.facts), snapshot)
            self.claim(len({p.round for p in world.processes.values() if p.alive}) <= 1, "workers of two rounds")
            quiet = not world.calls_open and not world.muted and self.now - self.entered > 2 * SLACK
            self.claim(not quiet or world.controller.state is State.INIT, "the controller still waits")
        if self.opened is not None:
            self.claim(self.now <= self.opened + self._bound(), "an incident without end")
        if self.phase is Phase.LEAVING:
            self.claim(
                self.now <= max(self.entered, self.world.frozen_until) + 2 * self._stop_bound() + SLACK,
                "leaving without end",
            )

    def _stopping(self, since: float) -> None:
        grace = self.world.setup.policy.stop_grace
        for life in self.known:
            hard = self.sent[life, True]
            self.claim(bool(hard or self.sent[life, False]), f"{life} was not asked to stop")
            self.claim(bool(hard) or self.now < since + grace, f"{life} got no SIGKILL after the grace")
            self.claim(bool(hard) or not self.hurry, f"{life} was to be killed at once")

    def _stop_bound(self) -> float:
        policy = self.world.setup.policy
        return policy.stop_grace + 2 * policy.kill_grace + 1.0

    def _bound(self) -> float:
        policy, stop = self.world.setup.policy, self._stop_bound()
        frozen = max(self.world.frozen_until - (self.opened or 0.0), 0.0)
        recover = (self.incident_restarts + 1) * (stop + policy.start_wait)
        return 4 * policy.signal_wait + 3 * stop + recover + policy.culprit_wait + SLACK + frozen

    # -- the end

    def _culprits(self) -> list[Death]:
        """Deaths that may be blamed; more than one where nothing outside tells which came first."""
        newest = max(d.incarnation for d in self.deaths if d.kind in (0, 2))
        wave = [d for d in self.deaths if d.incarnation == newest]
        key = min((d.kind, d.at) for d in wave)
        tied = [d for d in wave if (d.kind, d.at) == key]
        if signalled := [d for d in tied if d.status.signal is not None]:
            return signalled
        if walls := [d.wall for d in tied if d.wall is not None]:
            return [d for d in tied if d.wall == min(walls)]
        return tied

    def _ended(self, order: Exit) -> None:
        world = self.world
        last = [p for p in world.group if p.round == self.spawned]
        succeeded = len(last) == world.setup.ranks and all(p.status is not None and p.status.ok for p in last)
        living = any(p.alive for p in world.processes.values()) or any(x.alive for x in world.leftovers)
        self.claim(not living or order.code == ExitCode.RECYCLE_HOST, "something lives at Exit")
        if order.code == ExitCode.RECYCLE_HOST and order.origin is Origin.LAUNCHER:
            self.claim(self._stuck(), "nothing is stuck, and the host must be recycled")
        elif self.cause == "quit":
            told = ExitCode.REQUEUE if world.setup.policy.requeue_on_stop else 0 if succeeded else 128 + self.quits[0]
            self.claim((order.code, order.origin) == (told, Origin.SIGNAL), f"{order.code} instead of {told}")
        elif self.cause == "frozen":
            self.claim((order.code, order.origin) == (75, Origin.LAUNCHER), f"{order.code} instead of 75")
        elif order.origin is Origin.WORKERS:
            self._ended_by_workers(order.code, succeeded)
        elif order.code == ExitCode.DO_NOT_REQUEUE:
            self.claim(self.ledger.crash_loop, "93 without a crash loop")
        else:
            self.claim(order.code == ExitCode.UNAVAILABLE, f"{order.code} has no reason")
            lost = any(d.store for d in self.deaths) and (self.failed or not self.may)
            self.claim(lost or self.no_rendezvous or self._unanswered(), "69 although everyone answered")

    def _ended_by_workers(self, code: int, succeeded: bool) -> None:
        if code == 0:
            self.claim(succeeded, "success without success")
            return
        codes = {1 if d.kind == 1 and d.status.signal else d.status.shell_code for d in self._culprits()}
        self.claim(code in codes, f"{code} instead of the culprit's {codes}")
        self.claim(not self.may or self.failed, "gave up although the budget allows a restart")
        self.claim(not self.ledger.crash_loop or code == ExitCode.DO_NOT_REQUEUE, "a crash loop that is not called so")

    def _stuck(self) -> bool:
        world, grace = self.world, self.world.setup.policy.kill_grace - 1e-9
        killed = [p.killed_at for p in world.processes.values() if p.alive]
        killed += [x.killed_at for x in world.leftovers if x.alive]
        unstarted = [p for p in world.group if not p.told and p.starts_at >= self.now]
        silent = [at for at in world.sweeps_open.values() if self.now - at >= grace]
        hung = world.search_hung or bool(unstarted) or bool(silent)
        return hung or any(self.now - at >= grace for at in killed)

    def _unanswered(self) -> bool:
        policy, world = self.world.setup.policy, self.world
        if self.left_from is Phase.STARTING:
            return self.left_after >= policy.start_wait - 1e-9
        silent = world.muted or world.frozen_until >= self.now - self.left_after
        return silent and self.left_after >= policy.signal_wait - 1e-9

    def replay(self) -> None:
        """The facts alone make a fresh agent give the same orders, also one that begins with a snapshot."""
        world = self.world
        agent = Agent(world.setup.policy, world.agent.site)
        orders = [agent.start(0.0)] + [agent.handle(fact, at) for fact, at in world.facts]
        self.claim(orders == world.orders, "the same facts gave other orders")
        for since, snapshot in self.snapshots.values():
            agent = Agent(world.setup.policy, world.agent.site)
            agent.resume(snapshot)
            orders = [agent.handle(fact, at) for fact, at in world.facts[since:]]
            self.claim(orders == world.orders[since + 1 :], "the facts since a snapshot gave other orders")
