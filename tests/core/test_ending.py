"""How a job ends: code, whose it is, and the words."""

from __future__ import annotations

from signal import SIGTERM

import pytest

from elastic_run.core.commands import Exit, Explain, Note
from elastic_run.core.dialogue import Ruler, SignalKind
from elastic_run.core.ending import MOST_TOLD
from elastic_run.core.events import QuitRequested, SignalReceived
from elastic_run.core.vocabulary import ExitStatus, Origin

from .drive import OK, TERM, Bench
from .like import Like


def test_the_budget_is_spent_and_the_culprits_code_is_passed_on() -> None:
    bench = Bench().train()
    bench.to_diagnosed()
    bench.answer()
    assert bench.chosen(bench.job.incident.offer.strategies[0])[-1] == Exit(
        139, Origin.WORKERS, "no restarts allowed (--max-restarts 0): rank 1 on host (pid 11): SIGSEGV"
    )


def test_a_crash_loop_is_told_from_the_workers_own_end() -> None:
    bench = Bench(max_restarts=None, max_no_progress=1, short_life=60.0).train()
    bench.to_diagnosed()
    bench.answer()
    left = bench.chosen(bench.job.incident.offer.strategies[0])[-1]
    assert left == Like(Exit, code=93, origin=Origin.LAUNCHER)


def test_what_clusterd_ends_by_itself_is_no_workers_fault() -> None:
    bench = Bench(clusterd=True, max_restarts=0).train()
    bench.give(SignalReceived("u", SignalKind.STOP_TRAIN, source=Ruler.CLUSTERD))
    for rank in bench.ranks:
        bench.exit(rank, TERM)
    bench.swept()
    bench.answer()
    bench.give(SignalReceived("u", SignalKind.GLOBAL_FAULT, source=Ruler.CLUSTERD))
    bench.answer()
    strategy = bench.job.incident.offer.strategies[0]
    told = SignalReceived("u", SignalKind.CHANGE_STRATEGY, (), strategy, source=Ruler.CLUSTERD)
    because = "no restarts allowed (--max-restarts 0): ClusterD: training stops"
    assert bench.give(told)[-1] == Exit(75, Origin.LAUNCHER, because)


@pytest.mark.parametrize(
    ("requeue", "status", "code", "words"),
    [
        (False, OK, 0, "stopped by SIGTERM, all workers then exited 0"),
        (False, TERM, 143, "stopped by SIGTERM, before the end of training"),
        (True, OK, 75, "stopped by SIGTERM, all workers then exited 0; please requeue"),
    ],
)
def test_a_stop_by_signal(requeue: bool, status: ExitStatus, code: int, words: str) -> None:
    bench = Bench(requeue_on_stop=requeue).train()
    bench.give(QuitRequested(SIGTERM))
    for rank in bench.ranks:
        bench.exit(rank, status)
    assert bench.swept()[-1] == Exit(code, Origin.SIGNAL, words)


def test_who_did_not_save_is_told_but_not_all_at_length() -> None:
    bench = Bench(ranks=MOST_TOLD + 1).train()
    bench.give(QuitRequested(SIGTERM))
    told = [bench.exit(rank, ExitStatus(code=1)) for rank in bench.ranks]
    assert told[0][:2] == [
        Like(Note, text="rank 0 on host (pid 10): exit code 1 as it was to stop"),
        Like(Explain, announced=True),
    ]
    assert not any(isinstance(order, Explain) for order in told[-1])


def test_after_a_second_signal_nobody_was_to_save() -> None:
    bench = Bench().train()
    bench.give(QuitRequested(SIGTERM))
    bench.give(QuitRequested(SIGTERM))
    assert bench.exit(0, ExitStatus(signal=9)) == []


@pytest.mark.parametrize(("restarts", "past"), [(0, ""), (1, "; 1 restart, "), (2, "; 2 restarts, ")])
def test_success_tells_what_the_job_came_through(restarts: int, past: str) -> None:
    bench = Bench(max_restarts=3).train()
    for nth in range(1, restarts + 1):
        bench.to_recovering(f"u{nth}", life=nth)
        bench.meet(nth)
        bench.started(nth + 1)
        bench.answer()
        bench.answer()
    for rank in bench.ranks:
        bench.exit(rank, OK, life=restarts + 1)
    left = bench.swept()[-1]
    assert isinstance(left, Exit)
    assert (left.code, left.origin) == (0, Origin.WORKERS)
    last = "the last after rank 1 on host (pid 11): SIGSEGV" if restarts == 1 else ""
    assert left.because.startswith("all 2 ranks succeeded in 0.0 s" + past + last)
    assert (past == "") == ("restart" not in left.because)
