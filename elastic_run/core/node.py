"""Node: lives of the local workers and of what they leave behind; start, ask to stop, kill, escalate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from signal import SIGKILL, SIGTERM

from elastic_run.core.commands import Command, Kill, Spawn, Sweep
from elastic_run.core.events import SpawnFailed, Swept, WorkerExited, WorkerHung, WorkerStarted
from elastic_run.core.faults import classify
from elastic_run.core.phases import LIFE_MOVES, Life
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, Blame, ExitStatus, Fault, FaultKind, Rank, Site

SWEEP_PAUSE_MAX = 0.5
COUNT_ONLY = 0
"""kill(2)'s signal 0: leftovers hear SIGTERM once, later searches only look whether they are gone."""


@dataclass(slots=True)
class Worker:
    """One rank's process, alive or not. Times in monotonic seconds."""

    rank: Rank
    local_rank: int
    incarnation: int = 0
    restarts: int = 0
    """Of the group, before this incarnation was started."""
    life: Life = Life.EXITED
    since: float = 0.0
    pid: int | None = None
    oom_kills: int | None = None
    status: ExitStatus | None = None
    stop_signal: int | None = None
    """Last signal we sent to this incarnation, or owe it while its start is under way."""
    hard_at: float | None = None
    """When it gets SIGKILL."""
    stuck_at: float | None = None
    """When an unanswered SIGKILL means that it cannot be killed."""


@dataclass(slots=True)
class Sweeping:
    """A search for leftovers that goes on until none is left."""

    signum: int
    hard_at: float
    stuck_at: float
    pause: float
    seq: int = 0
    asked_at: float = float("-inf")
    """When the last search began; an answer tells what lived then."""
    next_at: float | None = None
    """None while an answer is awaited."""
    left: int | None = None


@dataclass(slots=True)
class Node:
    policy: Policy
    site: Site
    out: list[Command]
    workers: dict[Rank, Worker] = field(default_factory=dict)
    sweeping: Sweeping | None = None
    sweeps: int = 0
    stop_began: float | None = None
    """When this round was first asked to stop; one grace covers workers and leftovers."""

    # -- what is so

    @property
    def alive(self) -> list[Worker]:
        return [w for w in self.workers.values() if w.life is not Life.EXITED]

    @property
    def running(self) -> bool:
        """Every worker has started, and runs or has succeeded."""
        return bool(self.workers) and all(
            w.life is Life.RUNNING or (w.life is Life.EXITED and w.status is not None and w.status.ok)
            for w in self.workers.values()
        )

    @property
    def succeeded(self) -> bool:
        return bool(self.workers) and all(w.status is not None and w.status.ok for w in self.workers.values())

    @property
    def swept(self) -> bool:
        return self.sweeping is not None and self.sweeping.left == 0

    def stuck(self, at: float) -> str | None:
        """What cannot be killed, in words."""
        for worker in self.alive:
            if worker.stuck_at is not None and at >= worker.stuck_at:
                if worker.pid is None:
                    return f"the start of rank {worker.rank} never ends"
                return f"rank {worker.rank} (pid {worker.pid}) survives SIGKILL"
        sweep = self.sweeping
        if sweep and sweep.left and sweep.next_at is not None and sweep.asked_at >= sweep.stuck_at:
            return f"{sweep.left} process(es) left by workers survive SIGKILL"
        return None

    def deadlines(self) -> list[float]:
        times = [t for w in self.alive for t in (w.hard_at, w.stuck_at)]
        sweep = self.sweeping
        if sweep and sweep.left != 0:
            # While a search is not answered there is nothing to escalate; the phase's bound notices one that hangs.
            gentle = sweep.next_at is not None and sweep.signum != SIGKILL
            times += [sweep.next_at, sweep.hard_at if gentle else None]
        return [t for t in times if t is not None]

    # -- facts

    def current(self, rank: Rank, incarnation: int) -> Worker | None:
        """The worker a fact is about, or None if the fact is about an earlier life: the one fence for workers."""
        worker = self.workers.get(rank)
        return worker if worker and worker.incarnation == incarnation and worker.life is not Life.EXITED else None

    def started(self, fact: WorkerStarted, at: float) -> None:
        worker = self.current(fact.rank, fact.incarnation)
        if worker is None or worker.pid is not None:
            return
        worker.pid, worker.oom_kills = fact.pid, fact.oom_kills
        if worker.stop_signal is not None:
            self.out.append(Kill(worker.rank, worker.incarnation, worker.stop_signal))
            if worker.stuck_at is not None:
                worker.stuck_at = at + self.policy.kill_grace
        else:
            self._move(worker, Life.RUNNING, at)

    def exited(self, fact: WorkerExited, at: float) -> Fault | None:
        worker = self.current(fact.rank, fact.incarnation)
        if worker is None:
            return None
        stopped = worker.stop_signal is not None
        self._move(worker, Life.EXITED, at)
        worker.status, worker.hard_at, worker.stuck_at = fact.status, None, None
        if fact.status.ok:
            return None
        oom = worker.oom_kills
        fault = classify(fact, node=self.site.node, pid=worker.pid, stopped=stopped, oom_before=oom, at=at)
        return replace(fault, restarts=worker.restarts)

    def spawn_failed(self, fact: SpawnFailed, at: float) -> Fault | None:
        worker = self.current(fact.rank, fact.incarnation)
        if worker is None:
            return None
        blame = Blame.CULPRIT if worker.stop_signal is None else Blame.STOPPED
        self._move(worker, Life.EXITED, at)
        worker.status, worker.hard_at, worker.stuck_at = ExitStatus(code=126), None, None
        because = f"could not be started: {fact.why}"
        fault = Fault(worker.rank, self.site.node, FaultKind.NOT_STARTED, blame, because, at, worker.status, worker.pid)
        return replace(fault, restarts=worker.restarts)

    def hung(self, fact: WorkerHung, at: float) -> Fault | None:
        """It is ended with the signal of the fact, and SIGKILL after the grace, before the others are asked to stop."""
        worker = next((w for w in self.alive if w.pid == fact.pid and w.life is not Life.DYING), None)
        if worker is None:
            return None
        self._end(worker, fact.signum, at)
        status = ExitStatus(signal=fact.signum)
        fault = Fault(worker.rank, self.site.node, FaultKind.HUNG, Blame.CULPRIT, fact.because, at, status, worker.pid)
        return replace(fault, restarts=worker.restarts)

    def device_broken(self, rank: Rank, at: float) -> Fault | None:
        """Its process can neither go on nor save: it is killed."""
        worker = self.workers.get(rank)
        if worker is None or worker.life in (Life.EXITED, Life.DYING):
            return None
        self._end(worker, SIGKILL, at)
        because, status = "its device is broken (ClusterD)", ExitStatus(signal=SIGKILL)
        fault = Fault(rank, self.site.node, FaultKind.DEVICE, Blame.CULPRIT, because, at, status, worker.pid)
        return replace(fault, restarts=worker.restarts)

    def found(self, fact: Swept, at: float) -> None:
        sweep = self.sweeping
        if sweep is None or fact.seq != sweep.seq or sweep.next_at is not None:
            return
        sweep.left, sweep.next_at = fact.left, at + sweep.pause
        sweep.pause = min(sweep.pause * 2, SWEEP_PAUSE_MAX)

    # -- deeds

    def start(self, assignment: Assignment, restarts: int, at: float) -> None:
        """Give every rank of the assignment a new life; this node may hold other ranks than before."""
        assert not self.alive, f"{len(self.alive)} workers of the last round live"
        life = 1 + max((worker.incarnation for worker in self.workers.values()), default=0)
        self.workers = {}
        for local_rank, rank in enumerate(assignment.ranks):
            self.workers[rank] = worker = Worker(rank, local_rank, life, restarts)
            self._move(worker, Life.STARTING, at)
            self.out.append(Spawn(rank, local_rank, life, restarts, assignment))
        self.sweeping = self.stop_began = None

    def stop(self, signum: int, at: float) -> None:
        """Ask everyone who has not been asked yet; SIGKILL follows after the grace."""
        if self.stop_began is None:
            self.stop_began = at
        for worker in self.alive:
            if worker.life is not Life.DYING:
                self._end(worker, signum, at)

    def kill(self, at: float) -> None:
        """SIGKILL everything now, leftovers too, also those found later."""
        self.stop_began = float("-inf")
        for worker in self.alive:
            if worker.life is not Life.DYING:
                self._move(worker, Life.DYING, at)
            if worker.stuck_at is None:
                worker.hard_at = at
        if self.sweeping and self.sweeping.signum != SIGKILL:
            self.sweeping.hard_at = at

    def wait_again(self, at: float) -> None:
        """Whoever has had SIGKILL gets the whole grace once more before it counts as stuck."""
        for worker in self.alive:
            if worker.stuck_at is not None:
                worker.stuck_at = at + self.policy.kill_grace

    def sweep(self, at: float, *, gently: bool) -> None:
        """Search for leftovers until none is left; gently gives them SIGTERM and the grace first."""
        if self.sweeping is None:
            began = at if self.stop_began is None else self.stop_began
            hard_at = max(at, began + self.policy.stop_grace) if gently else at
            self.sweeping = Sweeping(
                signum=SIGTERM if gently else SIGKILL,
                hard_at=hard_at,
                stuck_at=hard_at + self.policy.kill_grace,
                pause=self.policy.sweep_every,
                next_at=at,
            )

    def settle(self, at: float) -> None:
        """Escalate what is due. Idempotent."""
        for worker in self.alive:
            if worker.hard_at is not None and at >= worker.hard_at:
                worker.hard_at, worker.stuck_at = None, at + self.policy.kill_grace
                self._send(worker, SIGKILL)
        self._settle_sweep(at)

    def _settle_sweep(self, at: float) -> None:
        sweep = self.sweeping
        if sweep is None or sweep.left == 0 or sweep.next_at is None:
            return
        escalate = sweep.signum != SIGKILL and at >= sweep.hard_at
        if escalate or at >= sweep.next_at:
            if escalate:
                sweep.signum, sweep.stuck_at = SIGKILL, at + self.policy.kill_grace
                sweep.pause = self.policy.sweep_every
            self.sweeps += 1
            sweep.seq, sweep.asked_at, sweep.next_at = self.sweeps, at, None
            self.out.append(Sweep(sweep.seq, sweep.signum))
            if sweep.signum == SIGTERM:
                sweep.signum = COUNT_ONLY

    def _end(self, worker: Worker, signum: int, at: float) -> None:
        self._move(worker, Life.DYING, at)
        if signum == SIGKILL:
            worker.hard_at = at
        else:
            worker.hard_at = at + self.policy.stop_grace
            self._send(worker, signum)

    def _send(self, worker: Worker, signum: int) -> None:
        worker.stop_signal = signum
        if worker.pid is not None:
            self.out.append(Kill(worker.rank, worker.incarnation, signum))

    def _move(self, worker: Worker, life: Life, at: float) -> None:
        assert life in LIFE_MOVES[worker.life], f"rank {worker.rank}: {worker.life.value} -> {life.value}"
        worker.life, worker.since = life, at
