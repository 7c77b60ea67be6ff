"""Whose fault a death is, and who among several began it."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_run.core.events import WorkerExited
from elastic_run.core.faults import classify, culprit
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind, WorkerError

FAILED = ExitStatus(code=1)
KILLED = ExitStatus(signal=9)
GONE = "RuntimeError: [tcp/pair.cc:553] Connection closed by peer [127.0.0.1]"
OWN = "Traceback (most recent call last):\nValueError: mine"


def judge(status: ExitStatus, *, stopped: bool = False, before: int | None = None, at: float = 1.0, rank: int = 0,
          **more: Any) -> Fault:  # fmt: skip
    exited = WorkerExited(rank, 1, status, **more)
    return classify(exited, node=0, pid=7, stopped=stopped, oom_before=before, at=at)


def test_an_exit_code_is_a_crash_and_a_signal_a_kill() -> None:
    crash, kill = judge(FAILED), judge(KILLED)
    assert (crash.kind, crash.blame, crash.because) == (FaultKind.CRASHED, Blame.CULPRIT, "exit code 1")
    assert (kill.kind, kill.blame, kill.because) == (FaultKind.KILLED, Blame.CULPRIT, "SIGKILL")
    assert (crash.pid, crash.rank, crash.at) == (7, 0, 1.0)


def test_the_kernels_memory_killer_is_told_by_its_counter() -> None:
    fault = judge(KILLED, before=2, oom_kills=3)
    assert (fault.kind, fault.blame) == (FaultKind.OUT_OF_MEMORY, Blame.CULPRIT)
    assert fault.because == "SIGKILL, by the kernel's out-of-memory killer"


@pytest.mark.parametrize(("before", "now", "status"), [(3, 3, KILLED), (None, 3, KILLED), (2, None, KILLED),
                                                       (2, 3, ExitStatus(signal=11)), (2, 3, FAILED)])  # fmt: skip
def test_nothing_else_is_out_of_memory(before: int | None, now: int | None, status: ExitStatus) -> None:
    assert judge(status, before=before, oom_kills=now).kind is not FaultKind.OUT_OF_MEMORY


@pytest.mark.parametrize("more", [{"tail": GONE}, {"error": WorkerError(GONE)}])
def test_who_lost_a_peer_is_a_victim(more: dict[str, Any]) -> None:
    fault = judge(FAILED, **more)
    assert (fault.blame, fault.because) == (Blame.VICTIM, "exit code 1, lost its connection to a peer")


def test_a_signal_is_its_own_cause_whatever_was_printed() -> None:
    assert judge(ExitStatus(signal=11), tail=GONE).blame is Blame.CULPRIT


def test_whom_we_stopped_is_not_blamed_unless_it_was_failing_already() -> None:
    assert judge(ExitStatus(signal=15), stopped=True).blame is Blame.STOPPED
    assert judge(ExitStatus(signal=15), stopped=True, tail=OWN).blame is Blame.STOPPED_WHILE_FAILING
    assert judge(ExitStatus(signal=15), stopped=True, tail=OWN + GONE).blame is Blame.STOPPED
    assert judge(ExitStatus(signal=15), stopped=True).because == "SIGTERM, stopped by us"
    failing = judge(ExitStatus(signal=15), stopped=True, tail=OWN)
    assert failing.because == "was failing when it was stopped (SIGTERM)"
    assert failing.code == 1  # our own SIGTERM is no reason to call the job preempted
    assert judge(ExitStatus(code=7), stopped=True, tail=OWN).code == 7
    said = judge(ExitStatus(signal=15), stopped=True, error=WorkerError("own"))
    assert said.blame is Blame.STOPPED_WHILE_FAILING


def test_the_first_death_of_its_own_doing_is_the_cause() -> None:
    early, late = judge(FAILED, at=1.0, rank=3), judge(FAILED, at=2.0, rank=0)
    assert culprit([late, early]) is early


def test_a_victim_is_never_the_cause_if_there_is_another() -> None:
    victim, stopped = judge(FAILED, at=1.0, tail=GONE), judge(ExitStatus(signal=15), stopped=True, at=2.0, rank=1)
    failing = judge(ExitStatus(signal=15), stopped=True, tail=OWN, at=3.0, rank=2)
    assert culprit([victim, stopped]) is victim
    assert culprit([victim, stopped, failing]) is failing
    own = judge(FAILED, at=4.0, rank=3)
    assert culprit([victim, stopped, failing, own]) is own


def test_at_the_same_time_a_signal_then_the_error_files_time_then_the_rank() -> None:
    code, kill = judge(FAILED, rank=0), judge(KILLED, rank=1)
    assert culprit([code, kill]) is kill
    early = judge(FAILED, rank=2, error=WorkerError("x", 5.0))
    later = judge(FAILED, rank=1, error=WorkerError("x", 6.0))
    untold = judge(FAILED, rank=0, error=WorkerError("x", None))
    assert culprit([untold, later, early]) is early
    assert culprit([judge(FAILED, rank=2), judge(FAILED, rank=1)]).rank == 1
