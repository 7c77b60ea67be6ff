"""Agent: routes a fact to Node and Job and settles to a fixed point; deadline(), check(), story()."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from elastic_run.core.budget import Budget
from elastic_run.core.commands import Command, Exit, Explain, Mark, Note
from elastic_run.core.crew import Crew, Peer
from elastic_run.core.events import Event, SpawnFailed, Swept, WorkerExited, WorkerHung, WorkerStarted
from elastic_run.core.job import Job
from elastic_run.core.member import Member
from elastic_run.core.node import Node, Worker
from elastic_run.core.outbox import Outbox
from elastic_run.core.phases import UNBOUNDED, Life, Phase
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, NodeId, Site
from elastic_run.errors import InvariantBroken


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a training job's agent remembers; a journal that begins with one can be replayed without its past."""

    now: float
    workers: tuple[Worker, ...]
    assignment: Assignment | None
    round: int
    restarts: int
    incidents: int
    began: float
    training_since: float
    spent: tuple[float, ...]
    futile: int
    progress: str | None
    sweeps: int
    looks: int
    forgiven: int
    calls: int
    uuids: tuple[str, ...]
    recovered: str
    peers: tuple[Peer, ...] = ()
    slots: tuple[NodeId, ...] = ()


MAX_ROUNDS = 10
"""A settle that goes on longer is a livelock."""
STORY_LENGTH = 200


@dataclass(slots=True)
class Agent:
    policy: Policy
    site: Site
    now: float = 0.0
    out: list[Command] = field(default_factory=list)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))
    node: Node = field(init=False)
    job: Job | Member = field(init=False)

    def __post_init__(self) -> None:
        self.node = Node(self.policy, self.site, self.out)
        if self.site.leads:
            crew = Crew(self.policy, self.node, self.out)
            self.job = Job(self.policy, crew, self.out, Outbox(self.out), Budget(self.policy))
        else:
            self.job = Member(self.policy, self.node, self.out)

    def start(self, at: float) -> list[Command]:
        self.now = at
        self.job.begin(at)
        return self._settled("start", at)

    def handle(self, fact: Event, at: float) -> list[Command]:
        """Record a fact received at `at` (monotonic seconds) and return the orders it calls for."""
        if self.job.phase is Phase.DONE:
            return []
        self.now = at = max(at, self.now)
        self._record(fact, at)
        return self._settled(repr(fact), at)

    def deadline(self) -> float | None:
        """When to be woken by a Tick at the latest."""
        if self.job.phase is Phase.DONE:
            return None
        return min([*self.job.deadlines(), *self.node.deadlines()], default=None)

    def snapshot(self) -> Snapshot | None:
        """What a fresh agent must know to go on from here; None except while training with nothing under way."""
        job = self.job
        if isinstance(job, Member) or job.phase is not Phase.TRAINING or job.outbox.waiting:
            return None
        budget = job.budget
        return Snapshot(
            self.now, tuple(replace(w) for w in self.node.workers.values()), job.assignment, job.round, job.restarts,
            job.incidents, job.began, job.training_since, tuple(budget.spent), budget.futile, budget.progress,
            self.node.sweeps, job.looks, budget.forgiven, job.outbox.seq, tuple(sorted(job.uuids)), job.recovered,
            tuple(replace(p) for p in job.crew.peers.values()), tuple(job.crew.slots),
        )  # fmt: skip

    def resume(self, past: Snapshot) -> None:
        """Take over a snapshot instead of `start`."""
        job, node = self.job, self.node
        assert isinstance(job, Job)
        self.now, job.phase, job.until, job.spawned = past.now, Phase.TRAINING, None, True
        job.assignment, job.round, job.asked_round, job.restarts = (
            past.assignment,
            past.round,
            past.round,
            past.restarts,
        )
        job.incidents, job.began, job.training_since = past.incidents, past.began, past.training_since
        job.budget.spent, job.budget.futile, job.budget.progress = (
            list(past.spent),
            past.futile,
            past.progress,
        )
        job.looks, job.outbox.seq, job.uuids = past.looks, past.calls, set(past.uuids)
        job.recovered, job.budget.forgiven = past.recovered, past.forgiven
        job.crew.peers, job.crew.slots = {p.node: replace(p) for p in past.peers}, list(past.slots)
        node.workers, node.sweeps = {w.rank: replace(w) for w in past.workers}, past.sweeps

    def check(self) -> None:
        """Raise InvariantBroken where the recorded state contradicts itself."""
        job, node = self.job, self.node
        claims = {
            "who is dying will be killed or is being killed": all(
                (w.hard_at is not None or w.stuck_at is not None) == (w.life is Life.DYING)
                for w in node.workers.values()
            ),
            "an exited worker has a status": all(
                w.status is not None for w in node.workers.values() if w.life is Life.EXITED
            ),
            "nothing that is due was left undone": (
                job.phase is Phase.DONE or all(t > self.now for t in [*job.deadlines(), *node.deadlines()])
            ),
        }
        if isinstance(job, Job):
            claims |= self._claims(job)
        broken = [claim for claim, holds in claims.items() if not holds]
        if broken:
            raise InvariantBroken(f"{'; '.join(broken)}\n{self.story()}")

    def _claims(self, job: Job) -> dict[str, bool]:
        """What holds where this agent leads."""
        return {
            "every phase but training has an end": (job.until is None) == (job.phase in UNBOUNDED),
            "an incident is open exactly in its phases": (
                (job.incident is not None) == (job.phase not in (Phase.STARTING, Phase.TRAINING))
                or job.phase in (Phase.LEAVING, Phase.DONE)
            ),
            "nobody is asked to stop while training": (
                job.phase is not Phase.TRAINING or all(w.life is not Life.DYING for w in self.node.alive)
            ),
            "a limited budget is not overdrawn": (
                self.policy.max_restarts is None
                or self.policy.window is not None
                or len(job.budget.spent) <= self.policy.max_restarts
            ),
        }

    def story(self) -> str:
        """The last facts and orders, one a line, oldest first."""
        return "\n".join(self.lines)

    def _record(self, fact: Event, at: float) -> None:
        match fact:
            case WorkerStarted():
                self.node.started(fact, at)
            case WorkerExited():
                self.job.fault(self.node.exited(fact, at), at)
            case WorkerHung():
                self.job.fault(self.node.hung(fact, at), at)
            case SpawnFailed():
                self.job.fault(self.node.spawn_failed(fact, at), at)
            case Swept():
                self.node.found(fact, at)
            case _:
                self.job.record(fact, at)

    def _settled(self, cause: str, at: float) -> list[Command]:
        """Run the conclusions until neither the phase nor the orders change, then hand the orders out."""
        self.lines.append(f"{at:.3f} {cause}")
        for _ in range(MAX_ROUNDS):
            before = (self.job.phase, len(self.out))
            self.job.settle(at)  # first: what it wants of node and outbox shows as their orders in this round
            if self.job.phase is Phase.DONE:
                break  # Exit is the last order
            self.node.settle(at)
            self.job.flush()
            if (self.job.phase, len(self.out)) == before:
                break
        else:
            raise InvariantBroken(f"no fixed point after {MAX_ROUNDS} rounds\n{self.story()}")
        orders, self.out[:] = list(self.out), []
        self.lines.extend(f"    {_word(order)}" for order in orders)
        return orders


def _word(order: Command) -> str:
    match order:
        case Mark():
            return f"-> {order.phase.value}"
        case Note():
            return f"say: {order.text}"
        case Explain():
            return f"explain: {order.decision}"
        case Exit():
            return f"exit {order.code} ({order.origin.value}): {order.because}"
        case _:
            return repr(order)
