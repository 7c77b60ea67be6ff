"""How a group comes to train, and what nodes that come and go mean for it."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

from elastic_run.core.commands import BeginRendezvous, Call, Exit, Explain, Kill, Mark, Note, Renew, Spawn, Tell
from elastic_run.core.dialogue import FaultRank, FaultReported, Ruler, SignalKind, StatusReported, Strategy
from elastic_run.core.events import LinkChanged, NodeJoined, QuitRequested, RendezvousFinished, SignalReceived, Tick
from elastic_run.core.goals import Aim
from elastic_run.core.phases import Phase
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind, Origin

from .drive import OK, TERM, Bench, Leading
from .like import Like


def notes(orders: list[object]) -> list[str]:
    return [order.text for order in orders if isinstance(order, Note)]


def died(rank: int = 1) -> Fault:
    return Fault(rank, 0, FaultKind.CRASHED, Blame.CULPRIT, "SIGSEGV", 0.0, ExitStatus(signal=11), pid=5)


# -- one node


def test_a_rendezvous_that_cannot_be_had_ends_the_job() -> None:
    bench = Bench()
    orders = bench.give(RendezvousFinished(0, None, "port 1: in use"))
    assert orders[-1] == Exit(69, Origin.LAUNCHER, "no rendezvous: port 1: in use")


def test_a_rendezvous_of_another_round_or_time_is_stale() -> None:
    bench = Bench()
    assert bench.meet(3) == []
    bench.meet()
    bench.started()
    assert bench.meet() == []


def test_leftovers_of_the_last_round_are_gone_before_the_next() -> None:
    bench = Bench(max_restarts=1).train()
    assert BeginRendezvous(1) in bench.to_recovering()
    assert bench.meet(1) == [Like(Spawn, rank=0, incarnation=2), Like(Spawn, rank=1)]


def test_a_death_while_starting_again_is_cleaned_up_too() -> None:
    bench = Bench(max_restarts=2).train()
    bench.to_recovering()
    bench.answer()
    bench.meet(1)
    bench.started(2, 0)
    orders = bench.exit(1, life=2)
    assert Kill(0, 2, SIGTERM) in orders
    assert BeginRendezvous(2) not in orders
    bench.exit(0, TERM, life=2)
    assert bench.swept() == [BeginRendezvous(2)]


def test_nothing_starts_without_a_clusterd_that_is_required() -> None:
    bench = Bench(clusterd=True, require_clusterd=True)
    assert BeginRendezvous(0) not in bench.first
    assert BeginRendezvous(0) in bench.give(LinkChanged(True, "there"))


def test_after_an_incident_of_its_own_clusterd_is_made_to_forget() -> None:
    bench = Bench(clusterd=True, max_restarts=1).train()
    bench.exit(1)
    bench.wake()
    bench.give(LinkChanged(True, "there"))
    bench.give(SignalReceived("x", SignalKind.STOP_TRAIN, source=Ruler.CLUSTERD))
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    bench.swept()
    bench.answer()
    bench.global_told()
    bench.answer()
    bench.chosen(Strategy.RECOVER)
    bench.meet(1)
    assert Renew() in bench.started(2)


# -- several nodes


def test_a_death_on_another_node_is_an_incident_of_all() -> None:
    bench = Leading().together()
    orders = bench.report(alive=0, faults=(died(),))
    assert Call(1, "", FaultReported((FaultRank(1),))) in orders
    assert notes(orders) == ["rank 1 on host1 (pid 5): SIGSEGV; stopping the 1 other"]
    bench.all_quiet(1)
    assert bench.phase is Phase.RECOVERING
    orders = bench.meet(1)
    assert [(o.goal.aim, o.goal.restarts) for o in orders if isinstance(o, Tell)] == [(Aim.RUN, 1)]
    bench.started(2)
    orders = bench.report(alive=1, running=True)
    assert orders == [
        Mark(0, Phase.TRAINING),
        Like(Note, text="recovered from rank 1 on host1 (pid 5): SIGSEGV; all 2 ranks started again, restart 1 of 1; "
             f"{bench.at - 100.0:.2f} s"),
        Like(Call, report=StatusReported(0, Strategy.RECOVER)),
    ]  # fmt: skip


def test_all_have_succeeded_when_every_node_says_so() -> None:
    bench = Leading().together()
    assert bench.exit(0, OK) == []
    assert bench.report(succeeded=True)[0] == Mark(0, Phase.LEAVING)
    bench.swept()
    orders = bench.report(swept=True, succeeded=True)
    assert [(type(o), getattr(o, "code", 0)) for o in orders] == [(Tell, 0), (Exit, 0)]
    assert orders[0].goal.aim is Aim.LEAVE


def test_a_lost_node_is_an_incident_and_the_rest_go_on() -> None:
    bench = Leading(1, 2).together()
    orders = bench.lose()
    assert notes(orders) == ["the node on host1: gone; stopping the 1 other"]
    bench.all_quiet()
    assert bench.wake() == [BeginRendezvous(1)]
    assert bench.meet(1) == [Like(Spawn, rank=0)]
    assert bench.started(2)[0] == Mark(0, Phase.TRAINING)


def test_its_loss_costs_a_restart() -> None:
    bench = Leading(1, 2, max_restarts=0).together()
    bench.lose()
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    bench.swept()
    bench.answer()
    bench.global_told()
    bench.answer()
    orders = bench.chosen(Strategy.EXIT)
    assert Like(Explain) in orders
    assert bench.job.ending.code == 75


def test_too_few_nodes_for_too_long() -> None:
    bench = Leading(2, 2, join_wait=5.0)
    bench.wake()
    assert bench.wake()[-1] == Exit(69, Origin.LAUNCHER, "no rendezvous: 1 of 2 nodes are there after 5 s")
    bench = Leading(2, 2, join_wait=5.0).together()
    bench.lose()
    bench.all_quiet()
    bench.give(Tick(), after=5.0)
    assert bench.job.ending.because == "no new group: 1 of 2 nodes are there after 5 s; please requeue"
    assert bench.job.ending.code == 75


def test_a_node_lost_between_rendezvous_and_start_costs_a_round_only() -> None:
    bench = Leading(1, 2)
    bench.join()
    orders = bench.lose()
    assert notes(orders) == ["the node on host1 has left: gone"]
    assert bench.meet(0) == []
    assert bench.give(Tick(), after=6.0) == [BeginRendezvous(1)]
    assert bench.meet(1) == [Like(Spawn, rank=0, restarts=0)]


def test_a_node_lost_while_the_others_still_stop_is_left_out() -> None:
    bench = Leading(1, 2, max_restarts=3).together()
    bench.exit(0)
    bench.answer()
    bench.stop_told()
    bench.report()
    bench.swept()
    bench.lose()
    assert bench.phase is Phase.STOPPED
    assert bench.job.incident.dead == (FaultRank(0), FaultRank(1))


def test_a_node_lost_while_recovering_begins_the_recovery_again() -> None:
    bench = Leading(1, 3, max_restarts=3).together(1, 2)
    bench.exit(0)
    bench.answer()
    bench.stop_told()
    bench.report(1)
    bench.report(2)
    bench.swept()
    bench.report(1, swept=True)
    bench.report(2, swept=True)
    bench.answer()
    bench.global_told()
    bench.answer()
    bench.chosen(Strategy.RECOVER)
    bench.meet(1)
    orders = bench.lose(2)
    assert notes(orders) == ["the node on host2: gone, while recovering"]
    assert bench.job.restarts == 2


def test_a_spare_that_leaves_is_only_told_of() -> None:
    bench = Leading(2, 2).together()
    assert bench.join(2) == []
    assert notes(bench.lose(2)) == ["the node on host2 has left: gone"]
    assert bench.lose(2) == []
    assert bench.phase is Phase.TRAINING


def test_nodes_that_join_later_lead_to_one_new_group_for_nothing() -> None:
    bench = Leading(1, 4, last_call=5.0, max_restarts=0)
    bench.wake()
    bench.wake()
    bench.meet()
    bench.started()
    assert notes(bench.join(1)) == ["a node on host1 has joined"]
    bench.give(NodeJoined(2, "host2", 1), after=3.0)
    orders = bench.give(Tick(), after=2.0)
    assert notes(orders) == ["new nodes: 3 nodes are there now, 1 take part; stopping the 1 other"]
    bench.all_quiet()
    assert bench.job.asked_round == 1
    assert [o.node for o in bench.meet(1) if isinstance(o, Tell)] == [1, 2]


def test_once_all_are_there_nobody_else_is_waited_for() -> None:
    bench = Leading(1, 2, last_call=5.0)
    bench.wake()
    bench.wake()
    bench.meet()
    bench.started()
    orders = bench.join(1)
    assert notes(orders)[-1] == "new nodes: 2 nodes are there now, 1 take part; stopping the 1 other"


def test_a_node_that_is_refused_is_told_of() -> None:
    bench = Leading(2, 2, fixed_places=True)
    assert notes(bench.join(1)) == [
        "the node on host1 is refused: --node-rank None is not one of the others' here, 1 to 1"
    ]


def test_a_node_that_cannot_kill_its_workers_is_lost() -> None:
    bench = Leading(1, 2).together()
    orders = bench.report(alive=1, stuck="rank 1 (pid 9) survives SIGKILL")
    assert "rank 1 (pid 9) survives SIGKILL; the host host1 must be recycled" in notes(orders)[0]
    assert 1 not in bench.job.crew.peers


def test_a_launcher_elsewhere_that_is_told_to_stop_stops_the_job() -> None:
    bench = Leading().together()
    orders = bench.report(alive=1, running=True, quit=SIGTERM)
    assert Kill(0, 1, SIGTERM) in orders
    assert bench.phase is Phase.LEAVING
    assert bench.report(alive=1, quit=SIGTERM) == []
    assert Kill(0, 1, SIGKILL) in bench.give(QuitRequested(SIGTERM))
    assert bench.lose() == []
