"""The defaults are those that users are told."""

from __future__ import annotations

from elastic_run.core.policy import Policy


def test_defaults() -> None:
    policy = Policy()
    assert (policy.max_restarts, policy.window, policy.max_no_progress) == (0, None, 3)
    assert (policy.stop_grace, policy.kill_grace) == (30.0, 30.0)
    assert not policy.requeue_on_stop


def test_every_wait_has_an_end() -> None:
    policy = Policy()
    assert all(0 < wait < 3600 for wait in (policy.start_wait, policy.signal_wait, policy.progress_wait))
