"""A job whose incidents ClusterD decides, over a link that breaks: one real Agent, two real Controllers, no real time.

Here are the link, the server behind it, operators and devices; workers are simple. What an agent with one controller
that is always there must keep is in `world.py`. `python -m sim.link FIRST COUNT` runs seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from signal import SIGSEGV, SIGTERM

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.machine import Answered, Ended, LinksToSwitch, Out
from elastic_run.clusterd.states import State
from elastic_run.clusterd.terms import CLUSTERD, EMBEDDED, FAST, Terms
from elastic_run.core.agent import Agent
from elastic_run.core.commands import BeginRendezvous, Call, Command, Exit, Kill, Mark, Note, Renew, Spawn, Sweep
from elastic_run.core.dialogue import FaultRank, FaultReported, Ruler, SignalKind, StatusReported, Strategy
from elastic_run.core.events import (
    CallFinished,
    Event,
    LinkChanged,
    QuitRequested,
    RendezvousFinished,
    SignalReceived,
    Swept,
    Tick,
    WorkerExited,
    WorkerStarted,
)
from elastic_run.core.phases import Phase
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, ExitStatus, Site

NEVER = float("inf")
QUICK = replace(CLUSTERD, flush=0.1, release=1.0, calm=1.5, calm_poll=0.3, poll=0.5, listen=2.0, restart_all=3.0,
                run_again=5.0, report_wait=30.0, tick=0.2, report_valid=1.0, alarm_grace=1.0, hardware_grace=1.0,
                keep_alive=0.5)  # fmt: skip
"""ClusterD's waits, but shorter."""
LONGEST = 20_000.0
BEGINS = (SignalKind.STOP_TRAIN, SignalKind.SAVE_AND_EXIT, SignalKind.PAUSE_START, SignalKind.CONTINUE_START)
"""With an id of its own such a signal is no nonsense."""


class Broken(AssertionError):
    """The agent did what it must not."""


@dataclass(slots=True)
class Worker:
    rank: int
    incarnation: int
    round: int
    alive: bool = True


@dataclass(slots=True)
class LinkWorld:
    seed: int
    now: float = 0.0
    serial: int = 0
    heap: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    facts: list[tuple[Event, float]] = field(default_factory=list)
    orders: list[list[Command]] = field(default_factory=list)
    up: bool = False
    """The link, as it is."""
    known_up: bool = False
    """As the agent was told last."""
    known_session: int = 0
    changed_at: float = 0.0
    session: int = 0
    """Of the subscription; what an older one said is not heard any more."""
    wire_at: float = 0.0
    """When the last that was sent to us arrives; the stream keeps the order."""
    given: set[str] = field(default_factory=set)
    """Ids that this subscription was told."""
    calls_open: int = 0
    seq: int = 0
    workers: dict[int, Worker] = field(default_factory=dict)
    taken_over: bool = False
    chosen: bool = False
    """A controller said to recover."""
    sound: bool = True
    """Nobody of the present group has died."""
    opened: float | None = None
    incidents: int = 0
    done: Exit | None = None
    dice: Random = field(init=False)
    agent: Agent = field(init=False)
    embedded: Controller = field(init=False)
    server: Controller = field(init=False)
    ranks: int = field(init=False)
    work: float = field(init=False)
    odd: bool = False
    """The server decides what was not offered."""
    lag: float = field(init=False)

    def __post_init__(self) -> None:
        dice = self.dice = Random(self.seed)
        self.ranks, self.work = dice.choice((1, 2, 3)), dice.choice((5.0, 20.0))
        self.lag = dice.choice((0.0, 0.01, 0.1))
        policy = Policy(
            max_restarts=dice.choice((0, 1, 3, 6)), stop_grace=1.0, kill_grace=0.5, start_wait=5.0, signal_wait=5.0,
            clusterd=True, require_clusterd=dice.random() < 0.1, clusterd_timeout=dice.choice((1.0, 4.0)),
            clusterd_wait=dice.choice((8.0, 40.0)), culprit_wait=0.1,
        )  # fmt: skip
        self.agent = Agent(policy, Site(0, "node-0", self.ranks))
        here = Terms(ranks_per_node=self.ranks)
        self.embedded = Controller("here", here, EMBEDDED)
        self.embedded.subscribe(0.0)
        allowed = [Strategy.RECOVER, Strategy.RECOVER_IN_PLACE, Strategy.DUMP, Strategy.RETRY]
        strategies = tuple(s for s in allowed if dice.random() < 0.7)
        if dice.random() < 0.1:
            strategies = (Strategy.DUMP,)
        self.odd = dice.random() < 0.1
        terms = replace(here, strategies=strategies, scheduled=dice.random() < 0.5, reschedule_wait=30.0)
        self.server = Controller("there", terms, dice.choice((FAST, QUICK)))
        self._plan()

    def _plan(self) -> None:
        """What goes wrong, and when."""
        dice, at = self.dice, 0.0
        happenings = [self._fault, self._fault, self._break, self._break, self._restart, self._evict, self._device,
                      self._links, self._kill, self._quit, self._say_nonsense]  # fmt: skip
        if dice.random() < 0.9:
            self.later(dice.choice((0.0, 0.5, 3.0)), self._connect)
        for _ in range(dice.choice((0, 1, 2, 3, 5))):
            at += dice.choice((0.0, 0.02, 0.2, 1.0, 5.0))
            self.later(1.0 + at, dice.choice(happenings[: dice.choice((4, 4, 11))]))

    # -- time

    def run(self) -> None:
        self._obey(self.agent.start(0.0))
        while self.done is None:
            due = self.agent.deadline()
            comes = self.heap[0][0] if self.heap else NEVER
            if due is not None and due < comes:
                self.now = max(self.now, due)
                self.handle(Tick())
            elif self.heap:
                self.now, _, happen = heappop(self.heap)
                happen()
            else:
                raise Broken("nothing can happen any more, and the job goes on")
            self._ask("time goes on and on", self.now < LONGEST)
        again = Agent(self.agent.policy, self.agent.site)
        told = [again.start(0.0), *(again.handle(fact, at) for fact, at in self.facts)]
        self._ask("a replay gives other orders", told == self.orders)

    def later(self, seconds: float, happen: Callable[[], None]) -> None:
        self.serial += 1
        heappush(self.heap, (self.now + seconds, self.serial, happen))

    def handle(self, fact: Event) -> None:
        if self.done is not None:
            return
        if isinstance(fact, SignalReceived) and fact.uuid != "nobody":
            self.chosen |= fact.strategy in (Strategy.RECOVER, Strategy.CONTINUE)
        if isinstance(fact, LinkChanged):
            self.known_up, self.known_session, self.changed_at = fact.up, self.session, self.now
        self.facts.append((fact, self.now))
        self._obey(self.agent.handle(fact, self.now))
        self.agent.check()
        job = self.agent.job
        if job.incident is None:
            self.opened = None
        elif self.opened is None:
            self.opened, self.incidents = self.now, self.incidents + 1
        p = job.policy
        bound = 60.0 + 8 * (p.clusterd_wait + p.clusterd_timeout)
        self._ask("an incident without end", self.opened is None or self.now < self.opened + bound)

    def _ask(self, wrong: str, good: bool) -> None:
        if not good:
            raise Broken(wrong)

    def _delay(self) -> float:
        return self.dice.random() * self.lag

    # -- the link

    def _connect(self) -> None:
        if self.up or self.done is not None:
            return
        self.up = True
        self._subscribe()

    def _subscribe(self) -> None:
        self.session += 1
        session = self.session
        self.given = set()
        self._told(self.server.subscribe(self.now))
        self._post(session, LinkChanged(True, "there"))

    def _post(self, session: int, fact: Event) -> None:
        def arrive() -> None:
            if session == self.session and self.up:
                if isinstance(fact, SignalReceived):
                    self.given.add(fact.uuid)
                self.handle(fact)

        self.wire_at = max(self.wire_at, self.now + self._delay())
        self.later(self.wire_at - self.now, arrive)

    def _break(self) -> None:
        if not self.up:
            return
        self.up = False
        self.session += 1
        self.later(self.dice.choice((0.0, 1.0)), self._forget_if_down)
        self.later(self._delay(), lambda: self.handle(LinkChanged(False, "broken")))
        self.later(self.dice.choice((0.2, 2.0, 10.0, 100.0)), self._connect)

    def _forget_if_down(self) -> None:
        if not self.up:
            self._told(self.server.unsubscribe(self.now))

    def _restart(self) -> None:
        """The server ends and comes back; it knows nothing of incidents."""
        self._break()
        old = self.server
        self.server = Controller(f"again{self.serial}", old.terms, old.timing)

    def _evict(self) -> None:
        """Our stream ends well: somebody else subscribed for a moment."""
        if self.up:
            self._subscribe()

    def _told(self, told: list[Out]) -> None:
        session = self.session
        for out in told:
            match out:
                case SignalReceived(kind=SignalKind.KEEP_ALIVE):
                    pass
                case SignalReceived() if self.up:
                    if self.odd and out.strategy is Strategy.RECOVER:
                        out = replace(out, strategy=Strategy.SCALE_IN)
                    self._post(session, replace(out, source=Ruler.CLUSTERD))
                case Answered(ticket=ticket) if ticket:
                    self._answer(ticket, out.code)
                case Ended() if self.up:
                    self.later(self._delay(), self._evict)
                case LinksToSwitch():
                    self.later(0.5, lambda: self._told(self.server.links_switched(self.dice.random() < 0.5, self.now)))
        if (due := self.server.deadline()) is not None:
            self.later(max(0.0, due - self.now), lambda: self._told(self.server.tick(self.now)))

    def _answer(self, ticket: int, code: int) -> None:
        self.later(self._delay(), lambda: self._finished(ticket, code))

    def _finished(self, ticket: int, code: int) -> None:
        if ticket == self.seq and self.calls_open:
            self.calls_open -= 1
            self.handle(CallFinished(ticket, code))

    # -- what happens

    def _fault(self) -> None:
        alive = [w for w in self.workers.values() if w.alive]
        if alive:
            self._die(self.dice.choice(alive), ExitStatus(signal=SIGSEGV))

    def _device(self) -> None:
        rank = self.dice.randrange(self.ranks)
        self._told(self.server.devices(frozenset({FaultRank(rank)}), frozenset(), self.now))
        self.later(5.0, lambda: self._told(self.server.devices(frozenset(), frozenset(), self.now)))

    def _links(self) -> None:
        self._told(self.server.switch_links(((0, True),), self.now)[1])

    def _kill(self) -> None:
        self._post(self.session, SignalReceived("", SignalKind.KILL_MASTER, source=Ruler.CLUSTERD))

    def _quit(self) -> None:
        self.handle(QuitRequested(SIGTERM))

    def _say_nonsense(self) -> None:
        kind = self.dice.choice([kind for kind in SignalKind if kind not in BEGINS])
        strategy = self.dice.choice([None, Strategy.RECOVER, *Strategy])
        self._post(self.session, SignalReceived("nobody", kind, (), strategy, source=Ruler.CLUSTERD))

    # -- workers

    def _die(self, worker: Worker, status: ExitStatus) -> None:
        if worker.alive:
            worker.alive = False
            self.sound = self.sound and status.ok
            self.later(0.001, lambda: self.handle(WorkerExited(worker.rank, worker.incarnation, status, oom_kills=0)))

    def _spawn(self, order: Spawn) -> None:
        worker = self.workers[order.rank] = Worker(order.rank, order.incarnation, order.assignment.round)
        self.sound = True
        self.later(0.05, lambda: self.handle(WorkerStarted(order.rank, order.incarnation, 1000 + self.serial, 0)))
        self.later(0.06 + self.work, lambda: self._succeed(worker))

    def _succeed(self, worker: Worker) -> None:
        job = self.agent.job
        quiet = self.now - max(job.training_since, self.changed_at) > 3.0 and not self.calls_open
        if quiet and job.phase is Phase.TRAINING and self.up and self.known_session == self.session:
            self._ask(f"we train, and ClusterD is to {self.server.state.value}", self.server.state is State.INIT)
        if self.sound and self.workers[worker.rank] is worker:
            self._die(worker, ExitStatus(code=0))

    # -- orders

    def _obey(self, orders: list[Command]) -> None:
        self.orders.append(orders)
        for order in orders:
            match order:
                case Note():
                    self._noted(order)
                case Mark():
                    self._entered(order.phase)
                case Spawn():
                    self._ask("a rank has two lives", not any(w.alive for w in self.workers.values()
                                                              if w.rank == order.rank))  # fmt: skip
                    self._spawn(order)
                case Kill():
                    worker = self.workers[order.rank]
                    if worker.incarnation == order.incarnation:
                        self._die(worker, ExitStatus(signal=order.signum))
                case Sweep():
                    self.later(0.001, lambda seq=order.seq: self.handle(Swept(seq, 0)))  # type: ignore[misc]
                case BeginRendezvous():
                    ranks = tuple(range(self.ranks))
                    found = Assignment(order.round, 0, ranks, self.ranks, "127.0.0.1", 29500 + order.round)
                    self.later(0.01, lambda r=order.round, a=found: self.handle(RendezvousFinished(r, a)))  # type: ignore[misc]
                case Call():
                    self._call(order)
                case Renew():
                    self._ask("renewed in an incident", self.agent.job.incident is None)
                    self._evict()
                case Exit():
                    self._left(order)

    def _noted(self, order: Note) -> None:
        """ClusterD is never silent for long here, but it may be away; meet its own incidents as it comes back."""
        self._ask("a word of ClusterD was missed, or one of ours", not order.text.startswith("ClusterD said nothing"))
        self.taken_over |= order.text.endswith("the embedded controller decides this incident")
        if "out of reach" in order.text and self.dice.random() < 0.5:
            self.later(self.dice.choice((0.0, 0.01, 0.05)), self._connect)
            self.later(self.dice.choice((0.05, 0.1, 0.5)), self._links)

    def _entered(self, phase: Phase) -> None:
        if phase is Phase.RECOVERING:
            self._ask("nobody chose to recover", self.chosen)
        self.chosen = self.chosen and phase in (Phase.RECOVERING, Phase.DIAGNOSED)
        if phase in (Phase.STOPPED, Phase.DIAGNOSED) and self.dice.random() < 0.1:
            self.later(0.0, self._say_nonsense)

    def _call(self, order: Call) -> None:
        self._ask("two calls in flight", self.calls_open == 0)
        self._ask("calls out of order", order.seq == self.seq + 1)
        if self.taken_over:
            self._ask("taken over, and ClusterD is asked", order.to is Ruler.EMBEDDED)
            self.taken_over = not isinstance(order.report, StatusReported)
        self.seq, self.calls_open = order.seq, 1
        if order.to is Ruler.EMBEDDED:
            self.later(0.0, lambda: self._here(order))
            return
        self._ask("a report to a link that is known to be down", self.known_up)
        unaware = not self.up or self.known_session != self.session  # it could not know that all is forgotten
        fault = isinstance(order.report, FaultReported)
        self._ask("a report about what ClusterD has not said", fault or unaware or order.uuid in {*self.given, ""})
        if isinstance(order.report, StatusReported):
            self._ask("a status of nobody's order", unaware or order.uuid in self.given)
        session = self.session
        self.later(self._delay(), lambda: self._there(order, session))

    def _here(self, order: Call) -> None:
        for out in self.embedded.report(order.report, self.now, order.seq):
            match out:
                case SignalReceived():
                    self.later(0.0, lambda s=out: self.handle(s))  # type: ignore[misc]
                case Answered():
                    self._answer(out.ticket, out.code)
                case Ended():
                    self.embedded.subscribe(self.now)

    def _there(self, order: Call, session: int) -> None:
        if not self.up:
            self._answer(order.seq, -1)
        else:
            self._told(self.server.report(order.report, self.now, order.seq))
            self.later(10.0, lambda: self._finished(order.seq, -1))  # its deadline

    def _left(self, order: Exit) -> None:
        self.done = order
        self._ask("the embedded controller is always there", "the controller said nothing" not in order.because)
        if order.code == 0:
            self._ask("success, and somebody has not succeeded", self.sound or self.agent.job.quits > 0)
        self._ask("it left, and somebody lives", not any(w.alive for w in self.workers.values()))


def failure(seed: int) -> tuple[str, LinkWorld] | None:
    world = LinkWorld(seed)
    try:
        world.run()
    except Exception as wrong:  # an agent that raises is as wrong as one that breaks a rule
        return f"{type(wrong).__name__}: {wrong}", world
    return None


def main(first: int, count: int) -> int:
    for seed in range(first, first + count):
        if found := failure(seed):
            print(seed, found[0].splitlines()[0])
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
