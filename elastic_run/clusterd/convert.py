"""Wire to core and back; the only place that knows field names and spellings of ClusterD's protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from elastic_run.clusterd.pb import recover as pb
from elastic_run.core.dialogue import (
    Action,
    FaultRank,
    FaultReported,
    FaultType,
    Report,
    Ruler,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.events import SignalReceived

T = TypeVar("T")

FAULT_TYPES = {FaultType.MEMORY: "0", FaultType.OTHER: "1", FaultType.NETWORK: "2"}
STRATEGIES = {
    Strategy.RETRY: "retry",
    Strategy.RECOVER: "recover",
    Strategy.SCALE_IN: "downgrade",
    Strategy.SCALE_OUT: "upgrade",
    Strategy.DUMP: "dump",
    Strategy.EXIT: "exit",
    Strategy.CONTINUE: "continue",
    Strategy.MIGRATE: "migration",
}
SIGNALS = {
    SignalKind.KEEP_ALIVE: "keep-alive",
    SignalKind.STOP_TRAIN: "stopTrain",
    SignalKind.GLOBAL_FAULT: "globalFault",
    SignalKind.CHANGE_STRATEGY: "changeStrategy",
    SignalKind.SAVE_AND_EXIT: "saveAndExit",
    SignalKind.FAULT_NODES_EXIT: "faultNodesExit",
    SignalKind.PRE_EXIT: "preExitProcess",
    SignalKind.PAUSE_START: "pauseStartAgent",
    SignalKind.CONTINUE_START: "continueStartAgent",
    SignalKind.HOT_SWITCH: "hot-switch",
    SignalKind.KILL_MASTER: "killMaster",
}
ACTIONS = {
    Action.STOP_TRAIN: "stop_train",
    Action.PAUSE_TRAIN: "pause_train",
    Action.ON_GLOBAL_RANK: "on_global_rank",
    Action.CHANGE_STRATEGY: "change_strategy",
    Action.SAVE_AND_EXIT: "save_and_exit",
    Action.FAULT_NODES_EXIT: "fault_nodes_exit",
    Action.FAULT_NODES_RESTART: "fault_nodes_restart",
    Action.PRE_EXIT: "pre exit process",
    Action.PAUSE_START: "pause_start_agent",
    Action.CONTINUE_START: "continue_start_agent",
    Action.HOT_SWITCH: "hot switch",
    Action.NEW_POD_RUNNING: "new pod running",
    Action.STOP_SWITCH: "stop switch",
}
IN_PLACE, LAST = "recover-in-place", "dump_exit"
EXTRA = {
    Strategy.SCALE_IN: '{"scale-in-strategy": "DP"}',
    Strategy.SCALE_OUT: '{"scale-out-strategy": "DP"}',
}


def _turned(table: dict[T, str]) -> dict[str, T]:
    return {word: meaning for meaning, word in table.items()}


_FAULT_TYPES, _STRATEGIES = _turned(FAULT_TYPES), _turned(STRATEGIES)
_SIGNALS, _ACTIONS = _turned(SIGNALS), _turned(ACTIONS)


def number(text: str) -> int | None:
    """A rank or node as it is written on the wire; None for what is no decimal number of at most nine digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


# -- the server's side


def signal_message(job: str, signal: SignalReceived) -> pb.ProcessManageSignal:
    extra = IN_PLACE if signal.in_place else LAST if signal.last else ""
    return pb.ProcessManageSignal(
        uuid=signal.uuid,
        jobId=job,
        signalType=SIGNALS[signal.kind],
        actions=[ACTIONS[action] for action in signal.actions],
        faultRanks=fault_ranks(signal.ranks),
        changeStrategy=STRATEGIES[signal.strategy] if signal.strategy else "",
        timeout=int(signal.timeout),
        nodeRankIds=[str(node) for node in signal.nodes],
        extraParams=extra or (EXTRA.get(signal.strategy, "") if signal.strategy else ""),
    )


def report_of(request: object) -> Report:
    """Ranks that are no numbers are left out, an unknown type of fault is OTHER, a missing status is code 0."""
    match request:
        case pb.ProcessFaultRequest():
            return FaultReported(_faults(request.faultRanks))
        case pb.StopCompleteRequest():
            return StopCompleted(request.status.code)
        case pb.RecoverStrategyRequest():
            known = (_STRATEGIES.get(word) for word in request.strategies)
            return StrategiesOffered(tuple(strategy for strategy in known if strategy is not None))
        case pb.RecoverStatusRequest():
            ranks = (number(rank) for rank in request.isolateRankIds)
            isolate = tuple(rank for rank in ranks if rank is not None)
            return StatusReported(request.status.code, _STRATEGIES.get(request.strategy), isolate)
        case _:
            raise TypeError(f"{type(request).__name__} is no report")


def fault_ranks(faults: Iterable[FaultRank]) -> list[pb.FaultRank]:
    return [pb.FaultRank(rankId=str(fault.rank), faultType=FAULT_TYPES[fault.type]) for fault in faults]


def _faults(ranks: Iterable[pb.FaultRank]) -> tuple[FaultRank, ...]:
    found = ((number(rank.rankId), _FAULT_TYPES.get(rank.faultType, FaultType.OTHER)) for rank in ranks)
    return tuple(FaultRank(rank, kind) for rank, kind in found if rank is not None)


# -- the job's side

KEEP_ALIVE = SIGNALS[SignalKind.KEEP_ALIVE]
MAY_LACK_ID = (SignalKind.HOT_SWITCH, SignalKind.KILL_MASTER)
"""Besides migration, a CHANGE_STRATEGY. All else without an id is what a forgotten incident still had to say."""


def signal_of(message: pb.ProcessManageSignal) -> tuple[SignalReceived | None, list[str]]:
    """The fact in a signal, or None; and what in it is not known, in words."""
    kind = _SIGNALS.get(message.signalType)
    if kind is None:
        return None, [f"{message.signalType!r}"]
    odd = [f"action {word!r}" for word in message.actions if word not in _ACTIONS]
    strategy = _STRATEGIES.get(message.changeStrategy)
    if kind is SignalKind.CHANGE_STRATEGY and strategy is None:
        return None, [*odd, f"strategy {message.changeStrategy!r}"]
    if not message.uuid and kind not in MAY_LACK_ID and strategy is not Strategy.MIGRATE:
        return None, odd
    nodes = (number(node) for node in message.nodeRankIds)
    fact = SignalReceived(
        message.uuid,
        kind,
        _faults(message.faultRanks),
        strategy,
        tuple(_ACTIONS[word] for word in message.actions if word in _ACTIONS),
        tuple(node for node in nodes if node is not None),
        float(max(0, message.timeout)),
        in_place=message.extraParams == IN_PLACE,
        last=message.extraParams == LAST,
        source=Ruler.CLUSTERD,
    )
    return fact, odd


def request_of(job: str, report: Report) -> tuple[str, object]:
    """Method and request of a report. `status` is always set: servers exist that do not survive its absence."""
    match report:
        case FaultReported():
            return "ReportProcessFault", pb.ProcessFaultRequest(jobId=job, faultRanks=fault_ranks(report.ranks))
        case StopCompleted():
            return "ReportStopComplete", pb.StopCompleteRequest(jobId=job, status=pb.Status(code=report.code))
        case StrategiesOffered():
            words = [STRATEGIES[strategy] for strategy in report.strategies]
            return "ReportRecoverStrategy", pb.RecoverStrategyRequest(jobId=job, strategies=words)
        case StatusReported():
            word = STRATEGIES[report.strategy] if report.strategy else ""
            isolate = [str(rank) for rank in report.isolate]
            status = pb.Status(code=report.code)
            return "ReportRecoverStatus", pb.RecoverStatusRequest(
                jobId=job, status=status, strategy=word, isolateRankIds=isolate
            )
