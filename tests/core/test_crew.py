"""Who is there, who takes part, with which ranks, and who is told what."""

from __future__ import annotations

from signal import SIGTERM

import pytest

from elastic_run.core.commands import BeginRendezvous, Note, Severity, Spawn, Tell
from elastic_run.core.crew import Crew
from elastic_run.core.events import NodeJoined, NodeLost, NodeReported, Tick
from elastic_run.core.goals import Aim, NodeReport
from elastic_run.core.node import Node
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, Blame, ExitStatus, Fault, FaultKind, Origin, Site

from .drive import Leading
from .like import Like


def crew(least: int, most: int, **policy: object) -> Crew:
    settled = Policy(nodes_min=least, nodes_max=most, **policy)  # type: ignore[arg-type]
    orders: list[object] = []
    return Crew(settled, Node(settled, Site(0, "lead", 2), orders), orders)  # type: ignore[arg-type]


def joined(group: Crew, *nodes: tuple[int, str, int | None]) -> Crew:
    for node, host, place in nodes:
        assert group.joined(NodeJoined(node, host, 1, place)) == ""
    return group


BASE = Assignment(0, 0, (0, 1), 2, "lead", 1000)


# -- how many there must be


def test_all_are_there_at_once() -> None:
    bench = Leading()
    assert BeginRendezvous(0) not in bench.first
    assert bench.join() == [BeginRendezvous(0)]


def test_fewer_than_all_wait_for_the_last_call() -> None:
    group = joined(crew(2, 3, last_call=5.0), (1, "a", None))
    assert not group.complete(10.0, 5.0)
    assert group.look_at == 12.0  # people are told first
    assert not group.complete(12.0, 5.0)
    assert group.look_at == 15.0
    assert group.complete(15.0, 5.0)


def test_the_last_call_begins_anew_when_one_of_them_leaves() -> None:
    bench = Leading(2, 3)
    bench.join()
    bench.lose(after=4.0)
    bench.join(2)
    assert bench.give(Tick(), after=4.9) == []
    assert bench.give(Tick(), after=0.1) == [BeginRendezvous(0)]


def test_people_are_told_who_is_missing_but_not_all_the_time() -> None:
    bench = Leading(3, 3)
    bench.join()
    assert bench.give(Tick(), after=1.9) == []
    assert bench.give(Tick(), after=0.1) == [Note(Severity.INFO, "waiting: 2 of 3 nodes are there")]
    assert bench.give(Tick(), after=9.9) == []
    assert bench.give(Tick(), after=0.1) == [Like(Note)]


def test_missing_nodes_have_names_where_each_is_told_its_place() -> None:
    assert crew(2, 4).missing() == "1 of 2 nodes are there"
    assert joined(crew(2, 4), (1, "a", None)).missing() == "2 of 4 nodes are there"
    group = joined(crew(4, 4, fixed_places=True), (1, "a", 2))
    assert group.missing() == "2 of 4 nodes are there; missing: node rank 1, 3"


def test_spares_are_waited_for_as_long_as_the_last_call() -> None:
    group = joined(crew(2, 2, spares=1), (1, "a", None))
    assert not group.complete(0.0, 5.0)
    assert group.complete(5.0, 5.0)
    assert joined(crew(2, 2, spares=1), (1, "a", None), (2, "b", None)).complete(0.0, 5.0)


# -- who has which place


def places(group: Crew) -> list[int]:
    group.form()
    return group.slots


def test_the_leader_is_first_then_places_then_names_then_who_came_first() -> None:
    group = joined(crew(1, 5), (1, "b", None), (2, "a", None), (3, "z", 2), (4, "a", None))
    assert places(group) == [0, 3, 2, 4, 1]
    fixed = joined(crew(3, 3, fixed_places=True), (1, "b", 2), (2, "a", 1))
    assert places(fixed) == [0, 2, 1]


def test_places_are_kept_and_a_newcomer_takes_the_one_that_is_free() -> None:
    group = joined(crew(1, 3), (1, "a", None), (2, "b", None))
    assert places(group) == [0, 1, 2]
    del group.peers[1]
    joined(group, (3, "z", None))
    assert places(group) == [0, 3, 2]


def test_without_a_newcomer_the_others_move_up_in_order() -> None:
    group = joined(crew(1, 3), (1, "a", None), (2, "b", None))
    group.form()
    del group.peers[1]
    assert places(group) == [0, 2]
    assert group.at_place(0) is None
    assert group.at_place(1) is group.peers[2]
    assert group.at_place(2) is None


def test_more_than_there_is_room_for_wait() -> None:
    group = joined(crew(2, 2), (1, "a", None), (2, "b", None))
    assert places(group) == [0, 1]
    assert [peer.node for peer in group.team] == [1]
    assert not group.grows


def test_ranks_follow_the_places_whatever_the_sizes() -> None:
    group = crew(3, 3)
    for node, workers in ((1, 3), (2, 1)):
        group.joined(NodeJoined(node, f"h{node}", workers))
    group.form()
    parts = group.assigned(BASE)
    assert {node: part.ranks for node, part in parts.items()} == {0: (0, 1), 1: (2, 3, 4), 2: (5,)}
    assert {(part.world_size, part.nodes) for part in parts.values()} == {(6, 3)}
    assert [part.node_rank for part in parts.values()] == [0, 1, 2]


@pytest.mark.parametrize(("place", "why"), [(None, "--node-rank None is not one"), (3, "1 to 2"), (0, "1 to 2")])
def test_a_place_that_is_none_is_refused(place: int | None, why: str) -> None:
    group = crew(3, 3, fixed_places=True)
    assert why in group.joined(NodeJoined(1, "a", 1, place))
    assert group.peers == {}
    assert group.out == [Like(Tell, node=1)]


def test_a_place_that_is_taken_is_refused() -> None:
    group = joined(crew(3, 3, fixed_places=True), (1, "a", 2))
    assert group.joined(NodeJoined(2, "b", 1, 2)) == "--node-rank 2 is taken by a"
    assert list(group.peers) == [1]


# -- what they are told


def goals(orders: list[object]) -> list[tuple[int, Aim]]:
    return [(order.node, order.goal.aim) for order in orders if isinstance(order, Tell)]


def test_everybody_is_told_once() -> None:
    bench = Leading(3, 3)
    bench.join(1)
    bench.join(2)
    assert goals(bench.meet()) == [(1, Aim.RUN), (2, Aim.RUN)]
    group = bench.job.crew
    for _ in range(2):
        group.stop(SIGTERM, bench.at)
    assert goals(group.out) == [(1, Aim.STOP), (2, Aim.STOP)]
    group.out.clear()
    for _ in range(2):
        group.sweep(bench.at, gently=True)
    assert goals(group.out) == [(1, Aim.CLEAN), (2, Aim.CLEAN)]
    group.out.clear()
    for _ in range(2):
        group.kill(bench.at)
    assert goals(group.out) == [(1, Aim.KILL), (2, Aim.KILL)]
    group.out.clear()
    group.disband(3, Origin.WORKERS, "why")
    assert [(o.goal.code, o.goal.origin, o.goal.because) for o in group.out] == [(3, Origin.WORKERS, "why")] * 2


def test_nothing_counts_before_the_newest_goal_is_answered() -> None:
    bench = Leading()
    bench.join()
    bench.meet()
    bench.started()
    assert bench.give(NodeReported(1, NodeReport(seq=0, running=True, succeeded=True, swept=True))) == []
    assert not bench.job.crew.running
    assert not bench.job.crew.quiet
    bench.report(alive=1, running=True)
    assert bench.job.crew.running
    assert bench.job.crew.alive == 2
    assert bench.job.crew.ranks == 2


def test_a_broken_device_is_ended_where_it_is() -> None:
    bench = Leading().together()
    group = bench.job.crew
    assert group.device_broken(1, bench.at) is None
    assert group.out == [Like(Tell, node=1)]
    assert group.out[0].goal.ranks == (1,)
    group.out.clear()
    assert group.device_broken(0, bench.at) == Like(Fault, rank=0, because="its device is broken (ClusterD)")
    assert group.device_broken(9, bench.at) is None


# -- what they tell


def test_a_death_elsewhere_is_told_with_its_place() -> None:
    bench = Leading().together()
    fault = Fault(1, 7, FaultKind.CRASHED, Blame.CULPRIT, "x", 3.0, ExitStatus(code=1))
    fact = NodeReported(1, NodeReport(seq=1, faults=(fault,)))
    assert bench.job.crew.reported(fact, 9.0) == [Like(Fault, node=1, host="host1", at=9.0)]
    assert bench.job.crew.reported(NodeReported(5, fact.report), 9.0) == []


def test_a_lost_node_takes_its_ranks_along() -> None:
    bench = Leading(3, 3)
    bench.join(1, workers=2)
    bench.join(2)
    bench.meet()
    fault = bench.job.crew.lost(NodeLost(1, "gone"), bench.at)
    assert fault == Like(Fault, rank=1, others=(2,), host="host1", because="gone")
    assert bench.job.crew.lost(NodeLost(1, "gone"), bench.at) is None
    assert bench.job.crew.fenced == bench.at + 1.0


def test_a_node_that_took_no_part_takes_nothing_along() -> None:
    bench = Leading(1, 2, last_call=0.0)
    bench.meet()
    bench.join(1)
    assert bench.job.crew.lost(NodeLost(1, "gone"), bench.at) is None


def test_who_was_lost_may_still_run_for_a_moment() -> None:
    bench = Leading().together()
    bench.lose()
    bench.all_quiet()
    bench.join(2)
    assert BeginRendezvous(1) not in bench.give(Tick(), after=0.5)
    assert bench.give(Tick(), after=0.5) == [BeginRendezvous(1)]
    assert Like(Spawn) in bench.meet(1)
