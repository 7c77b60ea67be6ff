"""Lives of workers and of what they leave behind."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

import pytest

from elastic_run.core.commands import Command, Kill, Spawn, Sweep
from elastic_run.core.events import SpawnFailed, Swept, WorkerExited, WorkerHung, WorkerStarted
from elastic_run.core.node import COUNT_ONLY, SWEEP_PAUSE_MAX, Node
from elastic_run.core.phases import Life
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, Blame, ExitStatus, FaultKind, Site
from tests.core.like import Like

OK, CRASH = ExitStatus(code=0), ExitStatus(code=1)
PLACE = Assignment(0, 0, (0, 1), 2, "h", 1)


class Two(Node):
    """Two ranks; `take()` gives the orders since the last time."""

    def take(self) -> list[Command]:
        orders, self.out[:] = list(self.out), []
        return orders


@pytest.fixture
def node() -> Two:
    two = Two(Policy(stop_grace=10.0, kill_grace=5.0, sweep_every=0.1), Site(0, "host", 2), [])
    two.start(PLACE, 0, 1.0)
    return two


def run(node: Two) -> Two:
    for rank in (0, 1):
        node.started(WorkerStarted(rank, 1, 10 + rank, 4), 1.0)
    node.take()
    return node


def test_a_node_without_workers_neither_runs_nor_has_succeeded() -> None:
    empty = Node(Policy(), Site(0, "h", 1), [])
    assert not empty.running
    assert not empty.succeeded
    assert not empty.swept
    assert empty.stuck(1e9) is None
    assert empty.deadlines() == []


def test_each_rank_is_started_and_runs_when_it_has_a_pid(node: Two) -> None:
    assert node.take() == [Like(Spawn, rank=0, local_rank=0, incarnation=1), Like(Spawn, rank=1, local_rank=1)]
    assert not node.running
    node.started(WorkerStarted(0, 1, 10), 1.0)
    assert not node.running
    node.started(WorkerStarted(1, 1, 11), 1.0)
    assert node.running


def test_who_has_succeeded_counts_as_running(node: Two) -> None:
    assert run(node).exited(WorkerExited(0, 1, OK), 2.0) is None
    assert node.running
    assert not node.succeeded
    node.exited(WorkerExited(1, 1, OK), 2.0)
    assert node.succeeded


def test_facts_of_an_earlier_life_are_dropped(node: Two) -> None:
    run(node)
    node.started(WorkerStarted(0, 1, 99), 2.0)
    assert node.workers[0].pid == 10
    for stale in (WorkerStarted(0, 0, 99), WorkerStarted(7, 1, 99)):
        node.started(stale, 2.0)
    assert node.exited(WorkerExited(0, 9, CRASH), 2.0) is None
    assert node.spawn_failed(SpawnFailed(0, 9, "x"), 2.0) is None
    assert node.exited(WorkerExited(0, 1, CRASH), 2.0) is not None
    assert node.exited(WorkerExited(0, 1, CRASH), 2.0) is None


def test_a_death_is_judged_with_what_was_known_at_its_start(node: Two) -> None:
    fault = run(node).exited(WorkerExited(0, 1, ExitStatus(signal=9), oom_kills=5), 2.0)
    assert fault is not None
    assert (fault.kind, fault.pid, fault.restarts) == (FaultKind.OUT_OF_MEMORY, 10, 0)
    assert not node.running
    assert [worker.rank for worker in node.alive] == [1]


def test_a_start_that_fails_is_a_death(node: Two) -> None:
    fault = node.spawn_failed(SpawnFailed(0, 1, "no memory"), 2.0)
    assert fault is not None
    assert (fault.kind, fault.blame, fault.because) == (
        FaultKind.NOT_STARTED, Blame.CULPRIT, "could not be started: no memory",
    )  # fmt: skip
    assert fault.status.shell_code == 126
    assert [worker.rank for worker in node.alive] == [1]
    node.kill(2.0)
    node.settle(2.0)
    stopped = node.spawn_failed(SpawnFailed(1, 1, "no memory"), 3.0)
    assert stopped is not None
    assert stopped.blame is Blame.STOPPED
    assert (node.workers[1].hard_at, node.workers[1].stuck_at) == (None, None)


def test_everyone_is_asked_once_then_killed_after_the_grace_then_stuck(node: Two) -> None:
    run(node).stop(SIGTERM, 2.0)
    assert node.take() == [Kill(0, 1, SIGTERM), Kill(1, 1, SIGTERM)]
    node.stop(SIGTERM, 3.0)
    node.settle(11.9)
    assert node.take() == []
    assert node.deadlines() == [12.0, 12.0]
    node.exited(WorkerExited(0, 1, OK), 11.9)
    assert node.workers[0].hard_at is None
    node.settle(12.0)
    assert node.take() == [Kill(1, 1, SIGKILL)]
    assert node.deadlines() == [17.0]
    assert node.stuck(16.9) is None
    assert node.stuck(17.0) == "rank 1 (pid 11) survives SIGKILL"
    node.exited(WorkerExited(1, 1, CRASH), 17.0)
    assert node.stuck(17.0) is None
    assert node.workers[1].stuck_at is None


def test_a_worker_that_is_being_started_gets_its_signal_when_it_has_a_pid(node: Two) -> None:
    node.take()
    node.stop(SIGTERM, 2.0)
    assert node.take() == []
    node.started(WorkerStarted(0, 1, 10), 3.0)
    assert node.take() == [Kill(0, 1, SIGTERM)]
    assert node.workers[0].life is Life.DYING
    assert node.workers[0].stuck_at is None  # it has not had SIGKILL
    node.settle(12.0)
    assert node.take() == [Kill(0, 1, SIGKILL)]
    node.started(WorkerStarted(1, 1, 11), 13.0)  # SIGKILL is due to it as well, and its time counts from now
    assert node.take() == [Kill(1, 1, SIGKILL)]
    assert node.workers[1].stuck_at == 18.0


def test_a_start_that_never_ends_is_stuck(node: Two) -> None:
    node.stop(SIGTERM, 2.0)
    node.settle(12.0)
    assert node.stuck(17.0) == "the start of rank 0 never ends"


def test_kill_spares_no_time(node: Two) -> None:
    run(node).stop(SIGTERM, 2.0)
    node.take()
    node.kill(3.0)
    node.settle(3.0)
    assert node.take() == [Kill(0, 1, SIGKILL), Kill(1, 1, SIGKILL)]
    node.kill(4.0)
    node.settle(4.0)
    assert node.take() == []
    assert node.workers[0].stuck_at == 8.0


def test_kill_takes_those_who_were_not_asked_before(node: Two) -> None:
    run(node).kill(3.0)
    assert {worker.life for worker in node.alive} == {Life.DYING}
    node.settle(3.0)
    assert node.take() == [Kill(0, 1, SIGKILL), Kill(1, 1, SIGKILL)]


def test_time_that_did_not_count_is_given_again(node: Two) -> None:
    run(node).kill(3.0)
    node.settle(3.0)
    node.started(WorkerStarted(0, 1, 10), 3.0)
    node.wait_again(100.0)
    assert node.stuck(104.9) is None
    assert node.stuck(105.0) is not None
    other = Node(Policy(), Site(0, "h", 1), [])
    other.start(Assignment(0, 0, (0,), 1, "h", 1), 0, 1.0)
    other.wait_again(5.0)
    assert other.workers[0].stuck_at is None


def test_a_new_life_forgets_the_old_one(node: Two) -> None:
    run(node).stop(SIGTERM, 2.0)
    for rank in (0, 1):
        node.exited(WorkerExited(rank, 1, CRASH), 2.0)
    node.sweep(2.0, gently=False)
    node.take()
    node.start(PLACE, 1, 3.0)
    worker = node.workers[0]
    assert (worker.incarnation, worker.restarts, worker.pid, worker.status, worker.stop_signal) == (
        2,
        1,
        None,
        None,
        None,
    )
    assert node.sweeping is None
    assert node.stop_began is None


# -- leftovers


def ended(node: Two) -> Two:
    run(node)
    for rank in (0, 1):
        node.exited(WorkerExited(rank, 1, OK), 2.0)
    node.take()
    return node


def test_leftovers_are_searched_for_until_none_is_left(node: Two) -> None:
    ended(node).sweep(3.0, gently=False)
    node.settle(3.0)
    assert node.take() == [Sweep(1, SIGKILL)]
    node.settle(3.0)
    assert node.take() == []  # unanswered
    node.found(Swept(1, 2), 3.0)
    assert node.deadlines() == [3.1]
    node.settle(3.05)
    assert node.take() == []
    node.settle(3.1)
    assert node.take() == [Sweep(2, SIGKILL)]
    node.found(Swept(1, 0), 3.2)
    assert not node.swept
    node.found(Swept(2, 0), 3.2)
    assert node.swept
    assert node.deadlines() == []
    node.sweep(4.0, gently=False)
    node.settle(4.0)
    assert node.take() == []


def test_answers_nobody_waits_for_are_dropped(node: Two) -> None:
    ended(node).found(Swept(1, 0), 3.0)
    node.sweep(3.0, gently=False)
    node.settle(3.0)
    node.found(Swept(1, 3), 3.0)
    node.found(Swept(1, 0), 3.0)
    assert not node.swept


def test_pauses_grow_to_a_limit(node: Two) -> None:
    ended(node).sweep(3.0, gently=False)
    at, pauses = 3.0, []
    for _ in range(6):
        node.settle(at)
        sweep = node.sweeping
        assert sweep is not None
        node.found(Swept(sweep.seq, 1), at)
        assert sweep.next_at is not None
        pauses.append(round(sweep.next_at - at, 6))
        at = sweep.next_at
    assert pauses == [0.1, 0.2, 0.4, SWEEP_PAUSE_MAX, SWEEP_PAUSE_MAX, SWEEP_PAUSE_MAX]


def test_gently_is_sigterm_once_and_sigkill_after_the_grace(node: Two) -> None:
    ended(node).sweep(3.0, gently=True)
    node.settle(3.0)
    assert node.take() == [Sweep(1, SIGTERM)]
    node.found(Swept(1, 1), 3.0)
    assert node.deadlines() == [3.1, 13.0]
    node.settle(3.1)
    assert node.take() == [Sweep(2, COUNT_ONLY)]
    node.found(Swept(2, 1), 3.1)
    node.settle(13.0)
    assert node.take() == [Sweep(3, SIGKILL)]
    node.found(Swept(3, 1), 13.0)
    assert node.deadlines() == [13.1]  # soon again, as those that were killed are gone soon
    assert node.stuck(17.9) is None


@pytest.mark.parametrize(("gently", "stuck_at"), [(False, 8.0), (True, 18.0)])
def test_leftovers_seen_alive_after_the_whole_grace_survive_sigkill(node: Two, gently: bool, stuck_at: float) -> None:
    ended(node).sweep(3.0, gently=gently)
    node.settle(3.0)
    node.found(Swept(1, 1), 3.0)
    node.settle(13.0 if gently else 3.1)
    node.found(Swept(2, 1), stuck_at - 0.5)
    assert node.stuck(stuck_at) is None  # it tells of the time before
    node.settle(stuck_at)
    assert node.stuck(stuck_at) is None  # not answered
    node.found(Swept(3, 1), stuck_at)
    assert node.stuck(stuck_at) == "1 process(es) left by workers survive SIGKILL"


def test_a_last_search_that_finds_nothing_leaves_nothing_stuck(node: Two) -> None:
    ended(node).sweep(3.0, gently=False)
    node.settle(30.0)
    node.found(Swept(1, 0), 30.0)
    assert node.stuck(30.0) is None


def test_one_grace_covers_workers_and_what_they_left(node: Two) -> None:
    run(node).stop(SIGTERM, 2.0)
    node.stop(SIGTERM, 8.0)
    for rank in (0, 1):
        node.exited(WorkerExited(rank, 1, OK), 9.0)
    node.sweep(9.0, gently=True)
    node.settle(9.0)
    node.found(Swept(1, 1), 9.0)
    assert node.deadlines() == [9.1, 12.0]


def test_without_gentleness_the_grace_of_the_workers_does_not_matter(node: Two) -> None:
    run(node).stop(SIGTERM, 2.0)
    for rank in (0, 1):
        node.exited(WorkerExited(rank, 1, OK), 2.0)
    node.take()
    node.sweep(2.0, gently=False)
    node.settle(2.0)
    assert node.take() == [Sweep(1, SIGKILL)]
    assert node.sweeping is not None
    assert node.sweeping.stuck_at == 7.0


def test_after_a_kill_leftovers_get_no_grace_either(node: Two) -> None:
    run(node).kill(3.0)
    for rank in (0, 1):
        node.exited(WorkerExited(rank, 1, CRASH), 4.0)
    node.take()
    node.sweep(4.0, gently=True)
    node.settle(4.0)
    assert node.take() == [Sweep(1, SIGKILL)]


def test_kill_ends_the_gentleness(node: Two) -> None:
    ended(node).sweep(3.0, gently=True)
    node.settle(3.0)
    node.found(Swept(1, 1), 3.0)
    node.take()
    node.kill(3.05)
    node.settle(3.05)
    assert node.take() == [Sweep(2, SIGKILL)]
    node.kill(3.06)
    assert node.sweeping is not None
    assert (node.sweeping.hard_at, node.sweeping.stuck_at) == (3.05, 8.05)


def test_nobody_is_started_beside_the_last_round(node: Two) -> None:
    with pytest.raises(AssertionError, match="2 workers of the last round live"):
        node.start(PLACE, 0, 2.0)


def test_who_hangs_is_a_culprit_and_is_ended_before_the_others(node: Two) -> None:
    run(node)
    fault = node.hung(WorkerHung(11, "does not get on", SIGTERM), 5.0)
    assert fault is not None
    assert (fault.rank, fault.kind, fault.blame, fault.because) == (1, FaultKind.HUNG, Blame.CULPRIT, "does not get on")
    assert fault.status.shell_code == 128 + SIGTERM
    assert node.take() == [Like(Kill, rank=1, signum=SIGTERM)]
    node.settle(14.9)
    assert node.take() == []
    node.settle(15.0)
    assert node.take() == [Like(Kill, rank=1, signum=SIGKILL)]


def test_who_must_die_at_once_has_no_grace(node: Two) -> None:
    run(node)
    node.hung(WorkerHung(10, "its timer has expired", SIGKILL), 5.0)
    node.settle(5.0)
    assert node.take() == [Like(Kill, rank=0, signum=SIGKILL)]
    assert node.workers[0].stuck_at == 10.0


def test_a_hang_of_a_stranger_or_of_someone_dying_means_nothing(node: Two) -> None:
    run(node)
    node.stop(SIGTERM, 2.0)
    for pid in (10, 99):
        assert node.hung(WorkerHung(pid, "hangs", SIGKILL), 3.0) is None


def test_a_broken_device_ends_the_rank_on_it_once(node: Two) -> None:
    run(node)
    assert node.device_broken(7, 5.0) is None
    fault = node.device_broken(1, 5.0)
    assert fault is not None
    assert (fault.kind, fault.blame, fault.status.signal) == (FaultKind.DEVICE, Blame.CULPRIT, 9)
    assert node.device_broken(1, 6.0) is None
