"""classify(): one worker's death -> Fault with the reason; culprit(): the death to blame among several."""

from __future__ import annotations

from collections.abc import Iterable
from signal import SIGKILL

from elastic_run.core.events import WorkerExited
from elastic_run.core.vocabulary import Blame, Fault, FaultKind, NodeId

PEER_GONE = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket timeout",
    "recvvalue failed",
    "failed to recv",
    "peer closed",
)
"""Texts (lower case) of a rank that only failed because another one was gone: gloo and torch's TCPStore."""

FAILING = "Traceback (most recent call last)"


def classify(
    exited: WorkerExited, *, node: NodeId, pid: int | None, stopped: bool, oom_before: int | None, at: float
) -> Fault:
    """Judge an exit that is no success.

    `stopped`: we had sent it a signal before. `oom_before`: the cgroup's OOM kills when it started.
    """
    status = exited.status
    kind = FaultKind.KILLED if status.signal is not None else FaultKind.CRASHED
    because = status.describe()
    if stopped:
        failing = (FAILING in exited.tail or exited.error is not None) and not _peer_gone(exited)
        blame = Blame.STOPPED_WHILE_FAILING if failing else Blame.STOPPED
        because = f"was failing when it was stopped ({because})" if failing else f"{because}, stopped by us"
    elif _oom(exited, oom_before):
        kind, blame = FaultKind.OUT_OF_MEMORY, Blame.CULPRIT
        because += ", by the kernel's out-of-memory killer"
    elif status.signal is None and _peer_gone(exited):
        blame = Blame.VICTIM
        because += ", lost its connection to a peer"
    else:
        blame = Blame.CULPRIT
        because += _oom_nearby(exited, oom_before)
    return Fault(exited.rank, node, kind, blame, because, at, status, pid, exited.error, exited.tail)


def culprit(faults: Iterable[Fault]) -> Fault:
    """Who failed first of its own doing; deaths seen in one turn are told apart by signal and error file."""

    def order(fault: Fault) -> tuple[int, float, bool, float, int]:
        wall = fault.error.wall_time if fault.error and fault.error.wall_time is not None else float("inf")
        return (fault.blame.value, fault.at, fault.status.signal is None, wall, fault.rank)

    return min(faults, key=order)


def _oom_nearby(exited: WorkerExited, before: int | None) -> str:
    """In words, that the kernel ended some other process of the cgroup, such as a child of this rank, for memory."""
    if exited.oom_kills is not None and before is not None and exited.oom_kills > before:
        return "; meanwhile the kernel's out-of-memory killer ended a process beside it"
    return ""


def _oom(exited: WorkerExited, before: int | None) -> bool:
    return exited.status.signal == SIGKILL and bool(_oom_nearby(exited, before))


def _peer_gone(exited: WorkerExited) -> bool:
    words = (exited.tail + (exited.error.message if exited.error else "")).lower()
    return any(text in words for text in PEER_GONE)
