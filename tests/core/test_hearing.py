"""What each word of ClusterD means for the job."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

import pytest

from elastic_run.core.commands import BeginRendezvous, Call, Exit, Kill, Mark, Note, Tell
from elastic_run.core.dialogue import (
    Action,
    FaultRank,
    FaultReported,
    FaultType,
    Ruler,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.events import LinkChanged, QuitRequested, SignalReceived
from elastic_run.core.goals import Aim
from elastic_run.core.phases import Phase
from elastic_run.core.vocabulary import Origin

from .drive import OK, TERM, Bench, Leading
from .like import Like


def ruled(**policy: object) -> Bench:
    bench = Bench(clusterd=True, **{"max_restarts": 3, **policy}).train()
    bench.give(LinkChanged(True, "there"))
    return bench


def told(kind: SignalKind, uuid: str = "c", *actions: Action, **more: object) -> SignalReceived:
    return SignalReceived(uuid, kind, actions=actions, source=Ruler.CLUSTERD, **more)  # type: ignore[arg-type]


def stopped(bench: Bench, *actions: Action, **more: object) -> Bench:
    """ClusterD stops training, and all have stopped."""
    bench.give(told(SignalKind.STOP_TRAIN, "c", *actions, **more))
    for rank in bench.ranks:
        bench.exit(rank, TERM)
    bench.swept()
    bench.answer()
    return bench


def diagnosed(bench: Bench) -> Bench:
    stopped(bench).give(told(SignalKind.GLOBAL_FAULT))
    bench.answer()
    return bench


def call(seq: int, report: object, uuid: str = "c") -> Call:
    return Call(seq, uuid, report, Ruler.CLUSTERD)  # type: ignore[arg-type]


def test_clusterd_stops_training_by_itself() -> None:
    bench = ruled()
    ranks = (FaultRank(9, FaultType.MEMORY),)
    orders = bench.give(told(SignalKind.STOP_TRAIN, ranks=ranks))
    assert orders == [
        Mark(1, Phase.REPORTED),
        Like(Note, text="ClusterD: training stops for a fault of rank 9 (on-chip memory)"),
        Mark(1, Phase.STOPPING),
        Kill(0, 1, SIGTERM),
        Kill(1, 1, SIGTERM),
    ]
    bench.exit(0, TERM)
    bench.exit(1, TERM)
    assert bench.swept()[-1] == call(1, StopCompleted())


def test_before_the_first_round_too() -> None:
    bench = Bench(clusterd=True)
    assert bench.give(told(SignalKind.STOP_TRAIN))[0] == Mark(1, Phase.REPORTED)


@pytest.mark.parametrize("uuid", ["", "seen"])
def test_a_stop_without_an_id_or_with_that_of_an_old_incident_is_nothing(uuid: str) -> None:
    bench = ruled()
    bench.job.uuids.add("seen")
    assert bench.give(told(SignalKind.STOP_TRAIN, uuid)) == []


def test_a_job_of_its_own_is_not_stopped_by_clusterd() -> None:
    assert Bench().train().give(told(SignalKind.STOP_TRAIN)) == []


def test_a_second_stop_begins_again_without_another_report() -> None:
    bench = stopped(ruled())
    orders = bench.give(told(SignalKind.STOP_TRAIN, "d"))
    assert orders[:3] == [Mark(1, Phase.REPORTED), Mark(1, Phase.STOPPING), Mark(1, Phase.STOPPED)]
    assert orders[-1] == call(2, StopCompleted(), "d")
    assert bench.give(SignalReceived("e", SignalKind.STOP_TRAIN)) == []  # the embedded one never does


def test_one_that_does_not_rule_is_heard_later() -> None:
    bench = ruled()
    bench.give(LinkChanged(False, "broken"))
    bench.exit(1)
    bench.wake()  # it is the embedded one's now
    says = bench.says(told(SignalKind.STOP_TRAIN))
    assert says == ["ClusterD stops training, but the embedded controller decides this incident"]
    assert bench.job.renew
    assert ruled_by_clusterd().give(SignalReceived("x", SignalKind.STOP_TRAIN)) == []


def ruled_by_clusterd() -> Bench:
    bench = ruled()
    bench.exit(1)
    return bench


def test_it_recovers_and_the_restart_counts() -> None:
    bench = diagnosed(ruled())
    orders = bench.give(told(SignalKind.CHANGE_STRATEGY, strategy=Strategy.RECOVER))
    assert BeginRendezvous(1) in orders
    bench.meet(1)
    assert call(3, StatusReported(0, Strategy.RECOVER)) in bench.started(2)
    assert len(bench.job.budget.spent) == 1


def test_exit_although_there_was_another_way() -> None:
    bench = diagnosed(ruled())
    left = bench.give(told(SignalKind.CHANGE_STRATEGY, strategy=Strategy.EXIT))[-1]
    assert left == Exit(75, Origin.LAUNCHER, "ClusterD chose exit: ClusterD: training stops")


def test_the_end_of_a_recovery_is_no_question_in_any_phase() -> None:
    bench = stopped(ruled())
    left = bench.give(told(SignalKind.CHANGE_STRATEGY, strategy=Strategy.EXIT, last=True))[-1]
    assert left == Like(Exit, because="ClusterD ends the recovery: ClusterD: training stops")


def test_what_was_not_offered_fails_once() -> None:
    bench = diagnosed(ruled())
    order = told(SignalKind.CHANGE_STRATEGY, strategy=Strategy.SCALE_IN)
    assert bench.give(order)[-1] == call(3, StatusReported(1, Strategy.SCALE_IN))
    bench.answer()
    assert [type(given) for given in bench.give(order)] == [Note]


def test_a_strategy_before_it_was_asked_for_is_nothing() -> None:
    bench = stopped(ruled())
    assert bench.give(told(SignalKind.CHANGE_STRATEGY, strategy=Strategy.RECOVER)) == []
    assert bench.give(told(SignalKind.CHANGE_STRATEGY, "other", strategy=Strategy.RECOVER)) == []
    assert bench.give(told(SignalKind.GLOBAL_FAULT, "other")) == []


def test_a_pause_costs_no_restart() -> None:
    bench = stopped(ruled(max_restarts=0), Action.PAUSE_TRAIN, timeout=900.0)
    bench.give(told(SignalKind.PAUSE_START, "d"))
    bench.give(told(SignalKind.CONTINUE_START, "e"))
    orders = bench.give(told(SignalKind.CHANGE_STRATEGY, "e", strategy=Strategy.CONTINUE))
    assert BeginRendezvous(1) in orders
    bench.meet(1)
    assert call(2, StatusReported(0, Strategy.CONTINUE), "e") in bench.started(2)
    assert bench.job.budget.spent == []


def test_only_a_pause_is_renamed() -> None:
    bench = stopped(ruled())
    bench.give(told(SignalKind.PAUSE_START, "d"))
    assert bench.job.incident.uuid == "c"
    assert ruled().give(told(SignalKind.CONTINUE_START, "d")) == []


def test_save_and_exit() -> None:
    bench = ruled()
    bench.exit(1)
    bench.answer()
    bench.give(told(SignalKind.SAVE_AND_EXIT))
    bench.exit(0, OK)
    assert bench.swept()[-1] == call(2, StatusReported(0, Strategy.DUMP))
    bench.answer()
    left = bench.give(told(SignalKind.CHANGE_STRATEGY, strategy=Strategy.EXIT, last=True))[-1]
    assert left == Like(Exit, code=139)


def test_who_did_not_exit_0_has_not_saved() -> None:
    bench = ruled()
    bench.give(told(SignalKind.SAVE_AND_EXIT))
    bench.exit(0, TERM)
    bench.exit(1, OK)
    assert bench.swept()[-1] == call(1, StatusReported(1, Strategy.DUMP))


def test_ranks_on_a_broken_device_are_killed_and_reported_together() -> None:
    bench = ruled()
    orders = bench.give(told(SignalKind.PRE_EXIT, "own", ranks=(FaultRank(0), FaultRank(1), FaultRank(7))))
    assert Kill(0, 1, SIGKILL) in orders
    assert Kill(1, 1, SIGKILL) in orders
    assert orders[-1] == Call(1, "", FaultReported((FaultRank(0), FaultRank(1))), Ruler.CLUSTERD)
    assert bench.job.incident.culprit.because == "its device is broken (ClusterD)"
    assert bench.give(told(SignalKind.PRE_EXIT, "own", ranks=(FaultRank(0),))) == []


def test_a_node_that_is_left_out_leaves() -> None:
    bench = stopped(ruled())
    assert bench.give(told(SignalKind.FAULT_NODES_EXIT, nodes=(3,))) == []
    left = bench.give(told(SignalKind.FAULT_NODES_EXIT, nodes=(0,)))[-1]
    assert left == Like(Exit, code=75, because="ClusterD leaves this node out; please requeue")


def test_kill_master_ends_the_job_with_or_without_an_incident() -> None:
    bench = ruled()
    assert bench.give(told(SignalKind.KILL_MASTER, ""))[0] == Mark(0, Phase.LEAVING)
    assert stopped(ruled()).give(told(SignalKind.KILL_MASTER))[-1] == Like(Exit, code=75)
    other = ruled()
    other.give(LinkChanged(False, "broken"))
    other.exit(1)
    other.wake()
    assert other.give(told(SignalKind.KILL_MASTER)) == []


def test_an_exchange_of_nodes_is_refused_with_one_line() -> None:
    bench = ruled()
    says = bench.says(told(SignalKind.HOT_SWITCH, "", Action.HOT_SWITCH))
    assert says == ["ClusterD wants to exchange a node while training goes on; this job cannot"]
    orders = bench.give(told(SignalKind.HOT_SWITCH, "", Action.NEW_POD_RUNNING))
    assert orders == [Call(1, "", StrategiesOffered((Strategy.EXIT,)), Ruler.CLUSTERD)]
    assert bench.give(told(SignalKind.HOT_SWITCH, "", Action.STOP_SWITCH)) == []


def test_signs_of_life_and_words_to_a_job_that_leaves_are_nothing() -> None:
    bench = ruled()
    assert bench.give(told(SignalKind.KEEP_ALIVE)) == []
    bench.give(QuitRequested(SIGTERM))
    assert bench.give(told(SignalKind.STOP_TRAIN)) == []


def test_the_embedded_controller_names_an_incident_once() -> None:
    bench = Bench().train()
    bench.exit(1)
    bench.stop_told("u")
    assert bench.stop_told("v") == []


def test_another_node_is_left_out() -> None:
    bench = Leading(1, 3, clusterd=True).together(1, 2)
    bench.give(LinkChanged(True, "there"))
    bench.give(told(SignalKind.STOP_TRAIN))
    assert bench.give(told(SignalKind.FAULT_NODES_EXIT, "x", nodes=(1,))) == []
    orders = bench.give(told(SignalKind.FAULT_NODES_EXIT, nodes=(1, 7)))
    assert [(o.node, o.goal.aim, o.goal.code) for o in orders if isinstance(o, Tell)] == [(1, Aim.LEAVE, 75)]
    assert list(bench.job.crew.peers) == [2]
    assert bench.phase is Phase.STOPPING
