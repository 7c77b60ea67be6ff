"""What a node does that another one leads."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

from elastic_run.core.commands import Answer, Exit, Kill, Mark, Note, Spawn, Sweep
from elastic_run.core.events import LauncherFrozen, LeaderLost, QuitRequested, StoreLost, Tick, WorkerHung
from elastic_run.core.goals import Aim, NodeReport
from elastic_run.core.phases import Phase
from elastic_run.core.vocabulary import ExitStatus, Fault, FaultKind, Origin

from .drive import OK, SEGV, TERM, Following
from .like import Like


def answers(orders: list[object]) -> list[NodeReport]:
    return [order.report for order in orders if isinstance(order, Answer)]


def notes(orders: list[object]) -> list[str]:
    return [order.text for order in orders if isinstance(order, Note)]


def test_nothing_is_said_before_something_is_so() -> None:
    bench = Following()
    assert bench.first == [Mark(0, Phase.STARTING)]
    assert bench.give(Tick()) == []
    assert bench.agent.deadline() is None
    assert bench.agent.snapshot() is None


def test_it_runs_what_it_is_told_to_run() -> None:
    bench = Following()
    orders = bench.run()
    assert orders[:2] == [Like(Spawn, rank=2, local_rank=0), Like(Spawn, rank=3, local_rank=1)]
    assert answers(orders) == [NodeReport(seq=1, alive=2)]
    assert bench.started(1, 2) == []
    assert bench.started(1, 3) == [Mark(0, Phase.TRAINING), Answer(NodeReport(seq=1, alive=2, running=True))]


def test_a_death_is_told_and_nothing_else_is_done() -> None:
    bench = Following().train()
    orders = bench.exit(2)
    assert notes(orders) == ["rank 2 on host (pid 12): SIGSEGV"]
    (report,) = answers(orders)
    assert (report.alive, report.running) == (1, False)
    assert report.faults == (Like(Fault, rank=2, pid=12),)
    assert bench.exit(3, OK) == [Answer(NodeReport(seq=1))]


def test_it_stops_cleans_up_and_runs_again() -> None:
    bench = Following().train()
    bench.exit(2)
    assert bench.told(Aim.STOP, signum=SIGTERM)[0] == Kill(3, 1, SIGTERM)
    assert notes(bench.exit(3, TERM)) == []
    orders = bench.told(Aim.CLEAN, gently=False)
    assert orders == [Mark(0, Phase.STOPPED), Sweep(1, SIGKILL), Like(Answer)]
    assert answers(bench.swept()) == [NodeReport(seq=3, swept=True)]
    orders = bench.run(restarts=1)
    assert orders[0] == Like(Spawn, rank=2, incarnation=2, restarts=1)
    assert bench.phase is Phase.RECOVERING


def test_ranks_whose_device_is_broken_are_ended() -> None:
    bench = Following().train()
    orders = bench.told(Aim.END, ranks=(3, 9))
    assert Kill(3, 1, SIGKILL) in orders
    (report,) = answers(orders)
    assert report.faults == (Like(Fault, rank=3, because="its device is broken (ClusterD)"),)


def test_a_rank_that_hangs_is_told() -> None:
    bench = Following().train()
    (report,) = answers(bench.give(WorkerHung(12, "hangs", SIGTERM)))
    assert report.faults[0].kind is FaultKind.HUNG


def test_it_kills_when_it_is_told_to() -> None:
    bench = Following().train()
    assert bench.told(Aim.KILL)[1:3] == [Kill(2, 1, SIGKILL), Kill(3, 1, SIGKILL)]


def test_what_a_leader_hears_means_nothing_here() -> None:
    assert Following().give(StoreLost(0)) == []
    assert Following().told(Aim.WAIT) == [Answer(NodeReport(seq=1))]


def test_it_leaves_as_the_leader_says() -> None:
    bench = Following().train()
    for rank in bench.ranks:
        bench.exit(rank, OK)
    orders = bench.told(Aim.LEAVE, code=0, origin=Origin.WORKERS, because="all well")
    assert orders[:2] == [Mark(0, Phase.LEAVING), Sweep(1, SIGTERM)]
    assert bench.swept() == [Exit(0, Origin.WORKERS, "all well")]


def test_it_leaves_at_once_if_it_never_ran() -> None:
    bench = Following()
    assert bench.told(Aim.LEAVE, code=2, because="taken")[-1] == Exit(2, Origin.LAUNCHER, "taken")


def test_who_still_runs_is_stopped_before_it_leaves() -> None:
    bench = Following().train()
    assert Kill(2, 1, SIGTERM) in bench.told(Aim.LEAVE, code=75, because="left out")
    assert bench.told(Aim.STOP, signum=SIGTERM) == []


def test_without_a_leader_everything_is_killed() -> None:
    bench = Following().train()
    orders = bench.give(LeaderLost("cut off", 75))
    assert orders == [Mark(0, Phase.LEAVING), Kill(2, 1, SIGKILL), Kill(3, 1, SIGKILL)]
    assert bench.give(LeaderLost("again", 75)) == []
    bench.exit(2, ExitStatus(signal=9))
    bench.exit(3, ExitStatus(signal=9))
    assert bench.swept() == [Exit(75, Origin.LAUNCHER, "cut off")]


def test_a_leader_that_is_gone_after_the_end_changes_nothing() -> None:
    bench = Following().train()
    bench.told(Aim.LEAVE, code=0, because="done")
    assert bench.give(LeaderLost("gone", 75)) == []


def test_a_signal_is_passed_to_the_leader_who_stops_all() -> None:
    bench = Following().train()
    orders = bench.give(QuitRequested(SIGTERM))
    assert notes(orders) == ["SIGTERM received; the leader stops the job"]
    assert answers(orders)[0].quit == SIGTERM
    bench.told(Aim.STOP, signum=SIGTERM)
    assert bench.wake() == []
    assert bench.phase is Phase.STOPPING


def test_a_second_signal_kills() -> None:
    bench = Following().train()
    bench.give(QuitRequested(SIGTERM))
    assert Kill(2, 1, SIGKILL) in bench.give(QuitRequested(SIGTERM))


def test_a_leader_that_does_not_answer_a_signal_is_not_waited_for() -> None:
    bench = Following().train()
    bench.give(QuitRequested(SIGTERM))
    assert Kill(2, 1, SIGKILL) in bench.wake()
    bench.exit(2, ExitStatus(signal=9))
    bench.exit(3, ExitStatus(signal=9))
    because = "stopped by SIGTERM; the leader did not answer"
    assert bench.swept() == [Exit(143, Origin.LAUNCHER, because)]


def test_a_signal_while_leaving_is_counted_only() -> None:
    bench = Following().train()
    bench.told(Aim.LEAVE, code=0, because="done")
    assert bench.give(QuitRequested(SIGTERM)) == []


def test_a_launcher_that_was_suspended_leaves() -> None:
    bench = Following().train()
    assert Kill(2, 1, SIGKILL) in bench.give(LauncherFrozen())
    assert bench.job.goal.code == 75


def test_what_cannot_be_killed_is_told_and_the_host_must_be_recycled() -> None:
    bench = Following().train()
    bench.told(Aim.KILL)
    orders = bench.wake()
    assert answers(orders)[0].stuck == "rank 2 (pid 12) survives SIGKILL"
    because = "rank 2 (pid 12) survives SIGKILL; this host must be recycled"
    assert orders[-1] == Exit(71, Origin.LAUNCHER, because)
    assert bench.phase is Phase.DONE


def test_a_death_after_the_leader_is_lost_is_told_to_nobody() -> None:
    bench = Following().train()
    bench.give(LeaderLost("cut off", 75))
    assert answers(bench.exit(2, SEGV)) == []
    assert bench.job.faults == []
