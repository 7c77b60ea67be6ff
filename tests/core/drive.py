"""An agent on a test bench: facts go in at a time the test chooses, orders come out, `check()` holds after each."""

from __future__ import annotations

from typing import Any

from elastic_run.core.agent import Agent
from elastic_run.core.commands import Command, Note
from elastic_run.core.dialogue import SignalKind, Strategy
from elastic_run.core.events import (
    CallFinished,
    Event,
    LeaderTold,
    NodeJoined,
    NodeLost,
    NodeReported,
    RendezvousFinished,
    SignalReceived,
    Swept,
    Tick,
    WorkerExited,
    WorkerStarted,
)
from elastic_run.core.goals import Aim, Goal, NodeReport
from elastic_run.core.phases import Phase
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, ExitStatus, Site

OK = ExitStatus(code=0)
SEGV = ExitStatus(signal=11)
TERM = ExitStatus(signal=15)


class Bench:
    def __init__(self, ranks: int = 2, **policy: Any) -> None:
        self.ranks = tuple(range(ranks))
        self.agent = Agent(Policy(stop_grace=10.0, kill_grace=5.0, **policy), Site(0, "host", ranks))
        self.at = 100.0
        self.first = self.agent.start(self.at)
        self.agent.check()

    @property
    def job(self) -> Any:
        return self.agent.job

    @property
    def phase(self) -> Phase:
        return self.agent.job.phase

    def give(self, fact: Event, after: float = 0.0) -> list[Command]:
        self.at += after
        orders = self.agent.handle(fact, self.at)
        self.agent.check()
        return orders

    def says(self, fact: Event, after: float = 0.0) -> list[str]:
        """The notes among the orders."""
        return [order.text for order in self.give(fact, after) if isinstance(order, Note)]

    def place(self, round: int = 0) -> Assignment:
        return Assignment(round, 0, self.ranks, len(self.ranks), "127.0.0.1", 1000 + round)

    def meet(self, round: int = 0) -> list[Command]:
        return self.give(RendezvousFinished(round, self.place(round)))

    def started(self, life: int = 1, *ranks: int) -> list[Command]:
        out: list[Command] = []
        for rank in ranks or self.ranks:
            out += self.give(WorkerStarted(rank, life, 10 * life + rank, 0))
        return out

    def train(self) -> Bench:
        self.meet()
        self.started()
        return self

    def exit(
        self, rank: int, status: ExitStatus = SEGV, life: int = 1, after: float = 0.0, **more: Any
    ) -> list[Command]:
        return self.give(WorkerExited(rank, life, status, **more), after)

    def answer(self) -> list[Command]:
        return self.give(CallFinished(self.agent.job.outbox.seq, 0))

    def stop_told(self, uuid: str = "u") -> list[Command]:
        return self.give(SignalReceived(uuid, SignalKind.STOP_TRAIN))

    def global_told(self, uuid: str = "u") -> list[Command]:
        return self.give(SignalReceived(uuid, SignalKind.GLOBAL_FAULT))

    def chosen(self, strategy: Strategy, uuid: str = "u") -> list[Command]:
        return self.give(SignalReceived(uuid, SignalKind.CHANGE_STRATEGY, (), strategy))

    def swept(self, left: int = 0) -> list[Command]:
        sweep = self.agent.node.sweeping
        assert sweep is not None
        return self.give(Swept(sweep.seq, left))

    def wake(self) -> list[Command]:
        """Nothing happens until the deadline."""
        deadline = self.agent.deadline()
        assert deadline is not None
        self.at = deadline
        return self.give(Tick())

    def to_diagnosed(self, uuid: str = "u", life: int = 1) -> list[Command]:
        """From training: rank 1 dies, the others are stopped, all is clean, the global fault is told."""
        self.exit(1, life=life)
        self.answer()
        self.stop_told(uuid)
        for rank in self.ranks:
            if rank != 1:
                self.exit(rank, TERM, life)
        self.swept()
        self.answer()
        return self.global_told(uuid)

    def all_stopped(self) -> None:
        """From a fault of nobody: every rank is stopped, all is clean, the global fault is told and answered."""
        self.answer()
        self.stop_told()
        for rank in self.ranks:
            self.exit(rank, TERM)
        self.swept()
        self.answer()
        self.global_told()
        self.answer()

    def to_recovering(self, uuid: str = "u", life: int = 1) -> list[Command]:
        self.to_diagnosed(uuid, life)
        self.answer()
        return self.chosen(Strategy.RECOVER, uuid)


class Leading(Bench):
    """The agent that leads; its own node holds one rank."""

    def __init__(self, least: int = 2, most: int = 2, **policy: Any) -> None:
        super().__init__(ranks=1, nodes_min=least, nodes_max=most, max_restarts=policy.pop("max_restarts", 1), **policy)

    def peer(self, node: int = 1) -> Any:
        return self.job.crew.peers[node]

    def join(self, node: int = 1, workers: int = 1, place: int | None = None, host: str = "") -> list[Command]:
        return self.give(NodeJoined(node, host or f"host{node}", workers, place))

    def report(self, node: int = 1, **fields: Any) -> list[Command]:
        """How things stand there, about the newest goal."""
        return self.give(NodeReported(node, NodeReport(**{"seq": self.peer(node).goal.seq, **fields})))

    def lose(self, node: int = 1, after: float = 0.0) -> list[Command]:
        return self.give(NodeLost(node, "gone"), after)

    def together(self, *nodes: int, round: int = 0) -> Leading:
        """These nodes join, and all train."""
        for node in nodes or (1,):
            self.join(node)
        self.meet(round)
        self.started()
        for node in nodes or (1,):
            self.report(node, alive=1, running=True)
        return self

    def all_quiet(self, *nodes: int) -> None:
        """From REPORTED: the controller stops training; everybody stops and cleans up, and recover is chosen."""
        self.answer()
        self.stop_told()
        self.exit(0, TERM)
        for node in nodes:
            self.report(node)
        self.swept()
        for node in nodes:
            self.report(node, swept=True)
        self.answer()
        self.global_told()
        self.answer()
        self.chosen(Strategy.RECOVER)


class Following(Bench):
    """The agent of a member with two ranks, 2 and 3."""

    def __init__(self) -> None:
        self.ranks = (2, 3)
        self.agent = Agent(Policy(stop_grace=10.0, kill_grace=5.0), Site(1, "host", 2, leads=False))
        self.at, self.seq = 100.0, 0
        self.first = self.agent.start(self.at)
        self.agent.check()

    def told(self, aim: Aim, after: float = 0.0, **more: Any) -> list[Command]:
        self.seq += 1
        return self.give(LeaderTold(Goal(self.seq, aim, **more)), after)

    def run(self, restarts: int = 0) -> list[Command]:
        place = Assignment(restarts, 1, self.ranks, 4, "leader", 1000, nodes=2)
        return self.told(Aim.RUN, assignment=place, restarts=restarts)

    def train(self) -> Following:
        self.run()
        self.started()
        return self
