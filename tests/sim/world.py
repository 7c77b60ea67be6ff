"""A fake world around one real Agent and the real Controller: a heap of things to come and a virtual clock.

Here are the processes, the operating system, the wire and the mishaps of a `Setup`. What must hold is in `judge.py`.
`python -m sim.world FIRST COUNT` runs seeds and prints the first one that fails (tests/ on the path).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from signal import SIGABRT, SIGKILL, SIGSEGV, SIGTERM

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.machine import Ended, Out
from elastic_run.clusterd.states import State
from elastic_run.clusterd.terms import Terms
from elastic_run.core.agent import Agent
from elastic_run.core.commands import (
    BeginRendezvous,
    Call,
    Command,
    Exit,
    Kill,
    Mark,
    ReadProgress,
    Spawn,
    Sweep,
)
from elastic_run.core.dialogue import Report, StopCompleted
from elastic_run.core.events import (
    CallFinished,
    Event,
    LauncherFrozen,
    ProgressRead,
    QuitRequested,
    RendezvousFinished,
    SignalReceived,
    SpawnFailed,
    StoreLost,
    Swept,
    Tick,
    WorkerExited,
    WorkerHung,
    WorkerStarted,
)
from elastic_run.core.vocabulary import Assignment, ExitStatus, Site, WorkerError

from .dice import (
    NEVER,
    Echo,
    Freeze,
    Habit,
    Mishap,
    Mute,
    Noise,
    Press,
    Refuse,
    Resent,
    Setup,
    Slow,
    StoreDies,
    Strike,
    When,
    draw,
)
from .judge import Broken, Judge

TRACEBACK = "Traceback (most recent call last):\n  ...\nRuntimeError: its own"
PEER_GONE = "Traceback (most recent call last):\n  ...\nRuntimeError: Connection closed by peer"
UNREPEATED = (Tick, QuitRequested, LauncherFrozen)
"""Facts that mean something new each time."""


@dataclass(slots=True)
class Process:
    """One worker's process, as it really is."""

    rank: int
    incarnation: int
    round: int
    pid: int
    traits: frozenset[str]
    starts_at: float
    alive: bool = True
    up: bool = False
    """It got as far as user code."""
    told: bool = False
    """The agent has heard of its end."""
    status: ExitStatus | None = None
    guilt: float = NEVER
    lingers: bool = False
    killed_at: float = NEVER


@dataclass(slots=True)
class Leftover:
    """A process that a worker left behind."""

    traits: frozenset[str]
    alive: bool = True
    killed_at: float = NEVER


@dataclass(slots=True)
class World:
    setup: Setup
    now: float = 0.0
    serial: int = 0
    heap: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    facts: list[tuple[Event, float]] = field(default_factory=list)
    orders: list[list[Command]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    aimed: dict[tuple[str, int], list[Mishap]] = field(default_factory=dict)
    slow: dict[tuple[str, int], float] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    habits: list[Habit] = field(default_factory=list)
    noise: Noise | None = None
    resent: float = 0.0
    mute_from: int = sys.maxsize
    muted: bool = False
    frozen_until: float = 0.0
    processes: dict[tuple[int, int], Process] = field(default_factory=dict)
    group: list[Process] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    calls_open: int = 0
    wire_at: float = 0.0
    wire_lost: float = 0.0
    """Seconds that calls took."""
    stopped_at: float = NEVER
    """When the controller heard that nobody trains any more."""
    sweeps_open: dict[int, float] = field(default_factory=dict)
    search_hung: bool = False
    met: int = -1
    """The newest round whose rendezvous is finished."""
    progress: int = 0
    oom_kills: int = 0
    done: bool = False
    dice: Random = field(init=False)
    agent: Agent = field(init=False)
    controller: Controller = field(init=False)
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        setup = self.setup
        self.dice = Random(setup.seed + 1)
        self.agent = Agent(setup.policy, Site(0, "node-0", setup.ranks))
        self.controller = Controller("job", Terms(ranks_per_node=setup.ranks), setup.timing)
        self.controller.subscribe(0.0)
        for mishap in setup.mishaps:
            match mishap:
                case Slow():
                    self.slow[mishap.what, mishap.nth] = mishap.by
                case Refuse():
                    self.refused.add((mishap.what, mishap.nth))
                case Mute():
                    self.mute_from = min(self.mute_from, mishap.nth)
                case Habit():
                    self.habits.append(mishap)
                case Noise():
                    self.noise = mishap
                case Resent():
                    self.resent = mishap.chance
                case _:
                    self.aimed.setdefault((mishap.when.what, mishap.when.nth), []).append(mishap)
        self.judge = Judge(self)

    # -- time

    def run(self) -> None:
        """Until the agent exits; raises Broken when it does what it must not."""
        self.cue("")
        self._obey(self.agent.start(0.0))
        while not self.done:
            due = self.agent.deadline()
            comes = self.heap[0][0] if self.heap else NEVER
            wakes = NEVER if due is None else max(self.now, due, self.frozen_until) + self.setup.tick_lag
            if wakes < comes or (self.frozen_until < wakes == comes < NEVER and self.dice.random() < 0.5):
                self.now = wakes
                self.handle(Tick())
            elif self.heap:
                self.now, _, happen = heappop(self.heap)
                happen()
            else:
                raise Broken("nothing can happen any more, and the job goes on")
        if self.setup.seed % 4 == 0:
            self.judge.replay()

    def later(self, seconds: float, happen: Callable[[], None]) -> None:
        if seconds < NEVER:
            self.serial += 1
            heappush(self.heap, (self.now + seconds, self.serial, happen))

    def tell(self, seconds: float, fact: Event) -> None:
        self.later(seconds, lambda: self.handle(fact))

    def handle(self, fact: Event, echo: bool = False) -> None:
        """Give the agent a fact, the judge both sides of it, and everyone the orders."""
        if self.done:
            return
        if self.now < self.frozen_until:
            self.later(self.frozen_until - self.now, lambda: self.handle(fact, echo))
            return
        self.facts.append((fact, self.now))
        if isinstance(fact, CallFinished) and not echo:
            self.calls_open -= 1
        elif isinstance(fact, RendezvousFinished) and not echo:
            self.met = fact.round if fact.assignment is not None else self.met
        elif isinstance(fact, Swept) and not echo:
            took = self.now - self.sweeps_open.pop(fact.seq)
            self.search_hung |= took >= self.setup.policy.kill_grace / 2
        self.judge.hears(fact, echo)
        self._obey(self.agent.handle(fact, self.now))
        if self.noise and not echo and not isinstance(fact, UNREPEATED) and self.dice.random() < self.noise.chance:
            self.later(self.dice.random() * self.noise.within, lambda: self.handle(fact, echo=True))
        self.cue(type(fact).__name__)

    @property
    def open_id(self) -> str:
        """Id of the incident that the controller has open, or had last."""
        return f"job-{self.controller.incident}"

    def lag(self) -> float:
        return self.dice.random() * self.setup.lag

    # -- mishaps

    def cue(self, what: str) -> int:
        """Something appears once more: start what is aimed at it."""
        nth = self.seen[what] = self.seen.get(what, 0) + 1
        for mishap in self.aimed.get((what, nth), ()):
            self._arm(mishap, mishap.when)  # type: ignore[union-attr]  # only those with a `when` are aimed
        return nth

    def _arm(self, mishap: Mishap, when: When) -> None:
        match mishap:
            case Strike():
                self.later(when.after, lambda: self._strike(mishap))
            case Press():
                self.tell(when.after, QuitRequested(mishap.signum))
            case Freeze():
                self.later(when.after, lambda: self._freeze(mishap))
            case StoreDies():
                self.later(when.after, lambda: self.handle(StoreLost(self.met)))
            case Echo():
                self.later(when.after, lambda: self._echo(mishap))

    def _strike(self, strike: Strike) -> None:
        hit = [p for r in strike.ranks for p in self.group if p.rank == r and p.alive and p.starts_at < NEVER]
        for nth, process in enumerate(hit):
            process.guilt = self.now + nth * 1e-6
            if strike.how == "linger":
                process.lingers = True
                self.later(self.dice.choice((0.05, 100.0)), lambda p=process: self._raise(p))  # type: ignore[misc]
            else:
                self._die_of(process, "raise" if strike.how == "mixed" and nth else strike.how)
        if hit and strike.peers:
            for process in self.group:
                if process.up and process not in hit:
                    self.later(self.dice.choice((0.0, 0.01)), lambda p=process: self._lose_peer(p))  # type: ignore[misc]

    def _die_of(self, process: Process, how: str) -> None:
        if how in ("raise", "linger"):
            self._raise(process)
        elif how == "oom":
            self.oom_kills += 1
            self.die(process, ExitStatus(signal=SIGKILL))
        elif how == "hang":
            hung = WorkerHung(process.pid, "hangs", self.dice.choice((SIGKILL, SIGTERM)))
            self.tell(max(0.0, process.starts_at - self.now) + 1e-6, hung)  # it has a pid by then
        elif how == "code 17":
            self.die(process, ExitStatus(code=17))
        else:
            self.die(process, ExitStatus(signal={"KILL": SIGKILL, "ABRT": SIGABRT}.get(how, SIGSEGV)))

    def _raise(self, process: Process) -> None:
        self.die(process, ExitStatus(code=1), WorkerError("its own", process.guilt), TRACEBACK)

    def _lose_peer(self, process: Process) -> None:
        if process.guilt == NEVER and process.killed_at == NEVER:
            self.die(process, ExitStatus(code=1), None, PEER_GONE)

    def _freeze(self, freeze: Freeze) -> None:
        if self.now < self.frozen_until:
            return
        self.frozen_until = self.now + freeze.lasts
        self.tell(freeze.lasts, LauncherFrozen())
        for process in self.group:
            self._sigkill(process)
        for leftover in self.leftovers:
            self._end(leftover)

    def _echo(self, echo: Echo) -> None:
        past = [fact for fact, _ in self.facts if echo.kind in (type(fact).__name__, _saying(fact))]
        if past:
            self.handle(past[max(-len(past), -1 - echo.back)], echo=True)

    # -- processes

    def die(self, process: Process, status: ExitStatus, error: WorkerError | None = None, tail: str = "") -> None:
        if not process.alive:
            return
        process.alive, process.status = False, status
        if process.lingers:
            tail = TRACEBACK
        if process.up and "children" in process.traits:
            self.leftovers.append(Leftover(process.traits))
        fact = WorkerExited(process.rank, process.incarnation, status, error, tail, self.oom_kills)
        self.tell(max(0.0, process.starts_at - self.now + 1e-6) + self.setup.lag / 2, fact)

    def _signal(self, process: Process, signum: int) -> None:
        grace, traits = self.setup.policy.stop_grace, process.traits
        killed = ExitStatus(signal=signum)
        if signum == SIGKILL:
            self._sigkill(process)
        elif "ignores" in traits and process.up:
            return
        elif "late" in traits and process.up:
            self.later(grace * 1.3, lambda: self.die(process, ExitStatus(code=0)))
        elif "saves" in traits and process.up:
            self.later(grace * 0.9 * self.dice.random(), lambda: self.die(process, ExitStatus(code=0)))
        elif "fails" in traits and process.up:
            self.later(0.0, lambda: self.die(process, ExitStatus(code=3), None, TRACEBACK))
        else:
            self.later(self.dice.choice((0.0, 0.01)), lambda: self.die(process, killed))

    def _sigkill(self, process: Process) -> None:
        process.killed_at = min(self.now, process.killed_at)
        if "unkillable" not in process.traits:
            slow = 0.7 * self.setup.policy.kill_grace if "slow to die" in process.traits else 0.0
            self.later(slow + self.lag(), lambda: self.die(process, ExitStatus(signal=SIGKILL)))

    def _end(self, leftover: Leftover) -> None:
        leftover.killed_at = min(self.now, leftover.killed_at)
        if "immortal children" not in leftover.traits:
            self.later(self.dice.choice((0.0, 0.01)), lambda: setattr(leftover, "alive", False))

    def _start(self, process: Process) -> None:
        """User code is reached; when all ranks are there they train."""
        process.up = process.alive
        if all(p.up and p.alive for p in self.group):
            group, jitter = tuple(self.group), self.lag
            self.later(self.setup.step, lambda: self._advance(group))
            for peer in group:
                self.later(self.setup.work + jitter(), lambda p=peer: self._finish(p, group))  # type: ignore[misc]

    def _advance(self, group: tuple[Process, ...]) -> None:
        if all(p.alive and p.guilt == NEVER for p in group):
            self.progress += 1

    def _finish(self, process: Process, group: tuple[Process, ...]) -> None:
        """The end of training; a group that lost somebody never gets there."""
        if all(p.guilt == NEVER and (p.alive or (p.status and p.status.ok)) for p in group):
            self.die(process, ExitStatus(code=0))

    # -- orders

    def _obey(self, orders: list[Command]) -> None:
        self.orders.append(orders)
        self.judge.sees(orders)
        for order in orders:
            match order:
                case Mark():
                    self.cue(order.phase.value)
                    continue
                case Exit():
                    self.done = True
                    continue
            nth = self.cue(type(order).__name__)
            match order:
                case Spawn():
                    self._spawn(order, nth)
                case Kill():
                    self._signal(self.processes[order.rank, order.incarnation], order.signum)
                case Sweep():
                    self._sweep(order, nth)
                case Call():
                    self._call(order, nth)
                case BeginRendezvous():
                    self._rendezvous(order, nth)
                case ReadProgress():
                    token = str(self.progress) if self.progress else None
                    self.tell(self.slow.get(("ReadProgress", nth), self.lag()), ProgressRead(order.seq, token))
        self.judge.rules()

    def _spawn(self, order: Spawn, nth: int) -> None:
        if ("Spawn", nth) in self.refused:
            self.tell(self.lag(), SpawnFailed(order.rank, order.incarnation, "no such file"))
            return
        traits = frozenset(h.name for h in self.habits if self.dice.random() < h.chance)
        delay = 0.01 + self.lag() + (self.dice.random() * 4.0 if "slow start" in traits else 0.0)
        delay = max(delay, self.slow.get(("Spawn", nth), 0.0))
        process = Process(order.rank, order.incarnation, order.assignment.round, 100 + nth, traits, self.now + delay)
        self.processes[order.rank, order.incarnation] = process
        self.group = [p for p in self.group if p.round == process.round] + [process]
        oom_kills = None if self.setup.seed % 3 == 0 else self.oom_kills
        self.tell(delay, WorkerStarted(order.rank, order.incarnation, process.pid, oom_kills))
        self.later(delay, lambda: self._start(process))

    def _sweep(self, order: Sweep, nth: int) -> None:
        alive = [x for x in self.leftovers if x.alive]
        for leftover in alive:
            if order.signum == SIGKILL or (order.signum and "stubborn children" not in leftover.traits):
                self._end(leftover)
        self.sweeps_open[order.seq] = self.now
        self.tell(self.slow.get(("Sweep", nth), self.lag()), Swept(order.seq, len(alive)))

    def _call(self, order: Call, nth: int) -> None:
        """The wire keeps the order of signals; the answer to a call goes its own way."""
        self.calls_open += 1
        flush = self.setup.timing.flush + self.setup.timing.release
        by = self.slow.get(("Call", nth), self.lag())
        self.wire_lost += by
        self.muted |= nth >= self.mute_from or self.wire_lost + flush >= self.setup.policy.signal_wait - 1.0
        if nth < self.mute_from:
            for _ in range(2 if self.dice.random() < self.resent else 1):
                self.later(by, lambda: self._reported(order.report))
        self.tell(by + self.lag(), CallFinished(order.seq, 0))

    def _reported(self, report: Report) -> None:
        if isinstance(report, StopCompleted) and self.controller.state is State.WAIT_STOP:
            self.stopped_at = self.now
        self._signals(self.controller.report(report, self.now))

    def _signals(self, told: list[Out]) -> None:
        for out in told:
            if isinstance(out, Ended):
                self.controller.subscribe(self.now)
            elif isinstance(out, SignalReceived):
                self.judge.told(out)
                self.wire_at = max(self.wire_at, self.now + self.lag())
                self.tell(self.wire_at - self.now, out)
        if (due := self.controller.deadline()) is not None:
            self.later(due - self.now, lambda: self._signals(self.controller.tick(self.now)))

    def _rendezvous(self, order: BeginRendezvous, nth: int) -> None:
        wait = self.slow.get(("BeginRendezvous", nth), self.lag())
        if ("BeginRendezvous", nth) in self.refused:
            self.tell(wait, RendezvousFinished(order.round, None, "refused"))
        else:
            ranks = tuple(range(self.setup.ranks))
            found = Assignment(order.round, 0, ranks, len(ranks), "127.0.0.1", 29500 + order.round)
            self.tell(wait, RendezvousFinished(order.round, found))


def _saying(fact: Event) -> str:
    return fact.kind.name if isinstance(fact, SignalReceived) else ""


def failure(setup: Setup) -> tuple[str, World] | None:
    """What the agent did wrong in this setup, if anything."""
    world = World(setup)
    try:
        world.run()
    except Exception as wrong:  # an agent that raises is as wrong as one that breaks a rule
        return f"{type(wrong).__name__}: {wrong}", world
    return None


def main(first: int, count: int) -> int:
    for seed in range(first, first + count):
        if found := failure(draw(seed)):
            print(seed, found[0].splitlines()[0])
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
