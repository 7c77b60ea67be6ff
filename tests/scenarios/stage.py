"""The command language of the transcripts: one real Agent, the real Controller behind an instant wire, time by hand.

    start [ranks=N] [POLICY-FIELD=VALUE ...]     begin the job
    rendezvous [round=N] [error=TEXT]            the rendezvous asked for is done
    started RANKS [life=N]                       workers run; RANKS is `all` or 0,1
    exit RANKS [code=N | signal=NAME] [life=N] [tail=TEXT] [wall=T] [oom=N]
    hung RANK why=TEXT [signal=NAME]             it was seen that a worker does not get on
    spawn-failed RANK why=TEXT
    store-lost [round=N]                         the process that hosts the workers' store has ended
    swept [left=N] [seq=N]                       a search for leftovers is done
    progress [TOKEN] [seq=N]                     the progress file was read
    quit NAME | frozen
    signal KIND uuid=TEXT [strategy=NAME]        the controller (or an echo of it) says something
    answer seq=N                                 a call is answered once more
    controller silent                            from now on it hears nothing
    after SECONDS                                time passes; the agent is woken at its deadlines
    COMMAND & COMMAND                            both in one turn of the loop

`-> phase`, an imperative and `exit` are orders; `<-` is what the controller said back.
"""

from __future__ import annotations

import shlex
from signal import Signals
from typing import get_type_hints

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.machine import Ended, Out
from elastic_run.core.agent import Agent
from elastic_run.core.commands import (
    BeginRendezvous,
    Call,
    Command,
    Exit,
    Explain,
    Kill,
    Mark,
    Note,
    ReadProgress,
    Spawn,
    Sweep,
)
from elastic_run.core.dialogue import (
    FaultReported,
    Report,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
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
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, ExitStatus, Site, WorkerError, signal_name

PEER_GONE = "RuntimeError: Connection closed by peer"


class Stage:
    """Carries out commands and returns the trace of each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.trace: list[str] = []
        self.back: list[Event] = []
        self.silent = False
        self.controller = Controller("job")
        self.controller.subscribe(0.0)
        self.ranks = 0
        self.lives: dict[int, int] = {}
        self.round = self.sweeps = self.looks = 0

    def play(self, line: str) -> list[str]:
        """One turn of the loop; what the controller says comes in the next."""
        self.trace = []
        for command in line.split(" & "):
            self._do(*shlex.split(command))
        while self.back:
            fact = self.back.pop(0)
            if isinstance(fact, SignalReceived):
                strategy = f" {fact.strategy.value}" if fact.strategy else ""
                self.trace.append(f"<- {fact.kind.value}{strategy} ({fact.uuid})")
            self._handle(fact)
        return self.trace or ["(nothing)"]

    def _do(self, name: str, *words: str) -> None:
        given = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if name == "start":
            self._start(given)
        elif name == "after":
            self._pass(float(plain[0]))
        elif name == "controller":
            self.silent = True
        else:
            for fact in self._facts(name, plain, given):
                self._handle(fact)

    def _start(self, given: dict[str, str]) -> None:
        self.ranks = int(given.pop("ranks", "2"))
        hints = get_type_hints(Policy)
        policy = Policy(**{key: _value(hints[key], text) for key, text in given.items()})
        self.agent = Agent(policy, Site(0, "node-0", self.ranks))
        self._obey(self.agent.start(0.0))

    def _pass(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.agent.deadline()) is not None and due <= until:
            self.now = due
            self._handle(Tick(), f"at {due:g}")
        self.now = until

    def _handle(self, fact: Event, heading: str = "") -> None:
        orders = self.agent.handle(fact, self.now)
        self.agent.check()
        if heading and orders:
            self.trace.append(heading)
        self._obey(orders)

    def _obey(self, orders: list[Command]) -> None:
        """Show the orders; a call reaches the controller at once, its answer waits for the next turn."""
        for order in orders:
            self.trace.append(word(order))
            match order:
                case BeginRendezvous():
                    self.round = order.round
                case Spawn():
                    self.lives[order.rank] = order.incarnation
                case Sweep():
                    self.sweeps = order.seq
                case ReadProgress():
                    self.looks = order.seq
                case Call() if not self.silent:
                    self.back.append(CallFinished(order.seq, 0))
                    self._hear(self.controller.report(order.report, self.now))

    def _hear(self, told: list[Out]) -> None:
        for out in told:
            if isinstance(out, Ended):
                self.controller.subscribe(self.now)
            elif isinstance(out, SignalReceived):
                self.back.append(out)

    def _facts(self, name: str, plain: list[str], given: dict[str, str]) -> list[Event]:
        seq = int(given.get("seq", {"swept": self.sweeps, "progress": self.looks}.get(name, 0)))
        match name:
            case "rendezvous":
                return [self._rendezvous(int(given.get("round", self.round)), given.get("error", ""))]
            case "started":
                return [WorkerStarted(r, self._life(r, given), 100 + r, 0) for r in self._ranks(plain)]
            case "exit":
                return [self._exit(r, given) for r in self._ranks(plain)]
            case "hung":
                signum = int(Signals[f"SIG{given.get('signal', 'KILL')}"])
                return [WorkerHung(100 + r, given["why"], signum) for r in self._ranks(plain)]
            case "spawn-failed":
                return [SpawnFailed(r, self._life(r, given), given["why"]) for r in self._ranks(plain)]
            case "store-lost":
                return [StoreLost(int(given.get("round", self.round)))]
            case "swept":
                return [Swept(seq, int(given.get("left", 0)))]
            case "progress":
                return [ProgressRead(seq, plain[0] if plain else None)]
            case "quit":
                return [QuitRequested(Signals[f"SIG{plain[0]}"])]
            case "frozen":
                return [LauncherFrozen()]
            case "signal":
                strategy = Strategy(given["strategy"]) if "strategy" in given else None
                return [SignalReceived(given["uuid"], SignalKind(" ".join(plain)), (), strategy)]
            case "answer":
                return [CallFinished(seq, 0)]
        raise ValueError(f"no such command: {name}")

    def _ranks(self, plain: list[str]) -> list[int]:
        return list(range(self.ranks)) if plain == ["all"] else [int(text) for text in plain[0].split(",")]

    def _life(self, rank: int, given: dict[str, str]) -> int:
        return int(given.get("life", self.lives.get(rank, 0)))

    def _rendezvous(self, number: int, error: str) -> RendezvousFinished:
        ranks = tuple(range(self.ranks))
        found = Assignment(number, 0, ranks, self.ranks, "127.0.0.1", 29500 + number)
        return RendezvousFinished(number, None if error else found, error)

    def _exit(self, rank: int, given: dict[str, str]) -> WorkerExited:
        signum = int(Signals[f"SIG{given['signal']}"]) if "signal" in given else None
        status = ExitStatus(int(given.get("code", 0)) if signum is None else None, signum)
        error = WorkerError("failed", float(given["wall"])) if "wall" in given else None
        tail = {"peer": PEER_GONE, "traceback": "Traceback (most recent call last)"}.get(given.get("tail", ""), "")
        return WorkerExited(rank, self._life(rank, given), status, error, tail, int(given.get("oom", 0)))


def word(order: Command) -> str:
    """One order in one line."""
    match order:
        case Mark():
            return f"-> {order.phase.value}"
        case Note():
            return f"say: {order.text}"
        case Explain():
            return f"explain rank {order.fault.rank} ({order.fault.because}): {order.decision or 'no restart'}"
        case Exit():
            return f"exit {int(order.code)} ({order.origin.value}): {order.because}"
        case BeginRendezvous():
            return f"begin rendezvous {order.round}"
        case Spawn():
            return f"spawn {order.rank} life {order.incarnation} round {order.assignment.round}"
        case Kill():
            return f"kill {order.rank} {signal_name(order.signum)}"
        case Sweep():
            return f"sweep {order.seq} {signal_name(order.signum) if order.signum else 'count only'}"
        case Call():
            return f"call {order.seq} {_report(order.report)}"
        case ReadProgress():
            return f"read progress {order.seq}"


def _report(report: Report) -> str:
    match report:
        case FaultReported():
            return f"fault of {', '.join(str(fault.rank) for fault in report.ranks)}"
        case StopCompleted():
            return "stop complete"
        case StrategiesOffered():
            return f"can {' or '.join(s.value for s in report.strategies)}"
        case StatusReported():
            return f"{report.strategy.value} {'failed' if report.code else 'succeeded'}"


def _value(hint: object, text: str) -> object:
    if text == "none":
        return None
    if hint is bool:
        return text == "yes"
    return int(text) if hint in (int, int | None) else float(text)
