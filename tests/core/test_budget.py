"""Restarts: a limit, a window over time, and the guard against crash loops."""

from __future__ import annotations

from elastic_run.core.budget import Budget, Verdict
from elastic_run.core.policy import Policy


def budget(**policy: object) -> Budget:
    return Budget(Policy(**policy))  # type: ignore[arg-type]


def test_without_restarts_none_is_allowed() -> None:
    answer = budget().spend(1.0)
    assert (answer.allowed, answer.because) == (False, "no restarts allowed (--max-restarts 0)")
    assert not answer.crash_loop


def test_asking_spends_nothing() -> None:
    one = budget(max_restarts=1)
    assert one.verdict(1.0).allowed
    assert one.verdict(1.0).allowed
    assert one.spend(1.0).because == "restart 1 of 1"
    assert one.spend(2.0).because == "1 of 1 restarts used (--max-restarts)"


def test_a_window_forgets() -> None:
    one = budget(max_restarts=1, window=10.0)
    assert one.spend(0.0).because == "restart 1 of 1 within 10 s"
    refused = one.spend(9.9)
    assert (refused.allowed, refused.because) == (False, "1 of 1 restarts used within 10 s (--max-restarts)")
    assert one.spend(10.0).allowed


def test_no_limit_is_no_limit() -> None:
    endless = budget(max_restarts=None)
    assert [endless.spend(t).because for t in range(3)] == [f"restart {n}, no limit" for n in (1, 2, 3)]


def test_failures_without_progress_end_an_unlimited_job() -> None:
    endless = budget(max_restarts=None, max_no_progress=2, short_life=60.0)
    endless.observe(None, 1.0)
    assert endless.verdict(0.0).allowed
    endless.observe(None, 59.9)
    answer = endless.verdict(0.0)
    assert (answer.allowed, answer.crash_loop) == (False, True)
    assert answer.because == "crash loop: 2 failures in a row without progress"


def test_a_long_life_was_progress() -> None:
    endless = budget(max_restarts=None, max_no_progress=2)
    endless.observe(None, 1.0)
    endless.observe(None, 60.0)
    endless.observe(None, 1.0)
    assert endless.futile == 1


def test_the_progress_file_counts_whatever_the_time() -> None:
    known = budget(max_restarts=9, max_no_progress=2, progress_known=True)
    for token, futile in (("", 1), ("a", 0), ("a", 1), ("b", 0)):
        known.observe(token, 1000.0)
        assert known.futile == futile


def test_a_look_that_failed_is_judged_by_time() -> None:
    known = budget(max_restarts=9, progress_known=True)
    known.observe(None, 1.0)
    assert known.futile == 1


def test_with_a_limit_and_no_file_only_the_limit_decides() -> None:
    limited = budget(max_restarts=9, max_no_progress=1)
    limited.observe(None, 0.0)
    assert limited.verdict(0.0).allowed


def test_what_is_nobodys_fault_is_forgiven_three_times() -> None:
    budget = Budget(Policy(max_restarts=0))
    assert budget.forgive() == Verdict(True, "a new store, not counted as a restart")
    budget.forgiven = 3
    assert budget.forgive() == Verdict(False, "the workers' store was lost 4 times")
