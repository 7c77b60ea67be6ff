"""The command language of the transcripts of a controller: what the job, the cluster and operators tell it.

    job [STRATEGY,...] [timing=clusterd|fast|embedded] [nodes=N] [ranks_per_node=N] [TERM=VALUE ...]
    subscribe | unsubscribe
    fault RANK[:memory|:network] ...     ReportProcessFault
    stopped [CODE]                       ReportStopComplete
    can [STRATEGY ...]                   ReportRecoverStrategy, in the protocol's words
    did STRATEGY [CODE] [isolate=R,R]    ReportRecoverStatus
    devices [RANK[:memory|:network] ...] [ailing=R,R]     what devices show from now on
    back NODE | gone NODE | runs yes|no  the cluster
    switch RANK ... | switched yes|no    links to the spare port
    test RANK:OP,OP ... | tested RANK:CODE ...     a stress test
    after SECONDS                        time passes

`+1.5 stopTrain ...` is a signal, in the protocol's words, and when it came. Signs of life are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from elastic_run.clusterd import convert
from elastic_run.clusterd.case import LinksToSwitch, RanksToTest
from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.jobs import configured
from elastic_run.clusterd.machine import Answered, Ended, OperatorTold, Out
from elastic_run.clusterd.pb import recover as pb
from elastic_run.clusterd.states import State
from elastic_run.clusterd.terms import CLUSTERD, EMBEDDED, FAST, Terms
from elastic_run.core.dialogue import FaultRank, FaultReported, FaultType, SignalKind, StopCompleted
from elastic_run.core.events import SignalReceived

TIMINGS = {"clusterd": CLUSTERD, "fast": FAST, "embedded": EMBEDDED}


class Desk:
    """Carries out commands and returns the trace of each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tickets = 0
        self.state = State.INIT
        self.controller = Controller("job")

    def play(self, line: str) -> list[str]:
        name, *words = line.split()
        given = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if name == "job":
            self._declare(plain, given)
            return ["(nothing)"]
        if name == "after":
            return [*self._pass(float(plain[0]))] or ["(nothing)"]
        return [*self._shown(self._given(name, plain, given))] or ["(nothing)"]

    def _declare(self, plain: list[str], given: dict[str, str]) -> None:
        timing = TIMINGS[given.pop("timing", "clusterd")]
        strategies = configured(plain[0].split(",") if plain else ())
        numbers = {name: float(text) if "." in text else int(text) for name, text in given.items() if text[0].isdigit()}
        flags = {name: text == "yes" for name, text in given.items() if text in ("yes", "no")}
        words = {name: text for name, text in given.items() if name not in {**numbers, **flags}}
        terms = {"nodes": 2, "ranks_per_node": 2, "scheduled": True, **numbers, **flags, **words}
        self.controller = Controller("job", Terms(strategies, **terms), timing)  # type: ignore[arg-type]

    def _given(self, name: str, plain: list[str], given: dict[str, str]) -> list[Out]:
        desk, at = self.controller, self.now
        match name:
            case "subscribe":
                return desk.subscribe(at)
            case "unsubscribe":
                return desk.unsubscribe(at)
            case "devices":
                ailing = frozenset(int(rank) for rank in given.get("ailing", "").split(",") if rank)
                return desk.devices(frozenset(faults(plain)), ailing, at)
            case "back":
                return desk.node_back(int(plain[0]), at)
            case "gone":
                return desk.node_gone(int(plain[0]), at)
            case "runs":
                return desk.runs(plain[0] == "yes", at)
            case "switched":
                return desk.links_switched(plain[0] == "yes", at)
            case "tested":
                return desk.stress_tested({rank: set(codes) for rank, codes in numbered(plain)}, at)
            case "switch":
                code, told = desk.switch_links(tuple((int(rank), True) for rank in plain), at)
                return [Answered(-1, code), *told]
            case "test":
                tests = tuple((rank, tuple(map(int, ops))) for rank, ops in numbered(plain))
                code, told = desk.stress_test(tests, at)
                return [Answered(-1, code), *told]
        self.tickets += 1
        return desk.report(self._report(name, plain, given), at, self.tickets)

    def _report(self, name: str, plain: list[str], given: dict[str, str]):  # type: ignore[no-untyped-def]
        match name:
            case "fault":
                return FaultReported(tuple(faults(plain)))
            case "stopped":
                return StopCompleted(int(plain[0]) if plain else 0)
            case "can":
                return convert.report_of(pb.RecoverStrategyRequest(strategies=plain))
            case "did":
                isolate = given["isolate"].split(",") if "isolate" in given else []
                status = pb.Status(code=int(plain[1]) if len(plain) > 1 else 0)
                return convert.report_of(
                    pb.RecoverStatusRequest(strategy=plain[0], status=status, isolateRankIds=isolate)
                )
        raise ValueError(f"no such command: {name}")

    def _pass(self, seconds: float) -> Iterator[str]:
        until = self.now + seconds
        while (due := self.controller.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            yield from self._shown(self.controller.tick(self.now))
        self.now = until

    def _shown(self, told: list[Out]) -> Iterator[str]:
        for out in told:
            match out:
                case SignalReceived(kind=SignalKind.KEEP_ALIVE) | Answered(code=0):
                    pass
                case SignalReceived():
                    yield f"+{self.now:g} {saying(out)}"
                case Answered():
                    yield f"+{self.now:g} answer {out.code}{' ' if out.info else ''}{out.info}"
                case Ended():
                    yield f"+{self.now:g} the stream ends"
                case LinksToSwitch():
                    yield f"+{self.now:g} switch the links of {', '.join(str(rank) for rank, _ in out.ranks)}"
                case RanksToTest():
                    yield f"+{self.now:g} test {', '.join(str(rank) for rank, _ in out.tests)}"
                case OperatorTold():
                    yield f"+{self.now:g} to the operator: {out.text}"
        if self.controller.state is not self.state:
            self.state = self.controller.state
            yield f"-> {self.state.value}"


def saying(signal: SignalReceived) -> str:
    message = convert.signal_message("job", signal)
    faults = " ".join(f"{rank.rankId}:{rank.faultType}" for rank in message.faultRanks)
    parts = [message.signalType, message.changeStrategy, f"[{', '.join(message.actions)}]"]
    parts += [f"ranks {faults}" if faults else "", f"nodes {','.join(message.nodeRankIds)}" if signal.nodes else ""]
    parts += [message.extraParams, f"timeout {message.timeout}" if message.timeout else "", f"({message.uuid or '-'})"]
    return " ".join(part for part in parts if part)


def faults(words: list[str]) -> Iterator[FaultRank]:
    kinds = {"memory": FaultType.MEMORY, "network": FaultType.NETWORK, "": FaultType.OTHER}
    for word in words:
        rank, _, kind = word.partition(":")
        yield FaultRank(int(rank), kinds[kind])


def numbered(words: list[str]) -> Iterator[tuple[int, list[str]]]:
    for word in words:
        rank, _, rest = word.partition(":")
        yield int(rank), rest.split(",")
