"""Who rules an incident, and what a link that comes and goes means for one that is open."""

from __future__ import annotations

import pytest

from elastic_run.core.commands import Call, Mark, Note, Renew
from elastic_run.core.dialogue import FaultRank, FaultReported, Ruler, SignalKind, StopCompleted, Strategy
from elastic_run.core.events import LinkChanged, QuitRequested, SignalReceived
from elastic_run.core.phases import Phase
from elastic_run.core.rule import patience, who

from .drive import TERM, Bench
from .like import Like

UP, DOWN = LinkChanged(True, "there"), LinkChanged(False, "broken")
NEVER = LinkChanged(False, "off for this job", forgo=True)


def ruled(up: bool = True, **policy: object) -> Bench:
    bench = Bench(clusterd=True, clusterd_timeout=7.0, clusterd_wait=50.0, max_restarts=3, **policy).train()
    if up:
        bench.give(UP)
    return bench


def told(kind: SignalKind, uuid: str = "c", **more: object) -> SignalReceived:
    return SignalReceived(uuid, kind, source=Ruler.CLUSTERD, **more)  # type: ignore[arg-type]


def report(seq: int, *ranks: int, to: Ruler = Ruler.CLUSTERD) -> Call:
    return Call(seq, "", FaultReported(tuple(FaultRank(rank) for rank in ranks)), to)


def test_without_clusterd_the_embedded_controller_rules() -> None:
    assert who(Bench().job) is Ruler.EMBEDDED
    bench = ruled()
    assert who(bench.job) is Ruler.CLUSTERD
    bench.give(NEVER)
    assert who(bench.job) is Ruler.EMBEDDED


def test_changes_of_the_link_are_one_line_each() -> None:
    bench = ruled(up=False)
    assert bench.says(UP) == ["ClusterD decides incidents of this job (there)"]
    assert bench.says(UP) == []
    assert bench.says(DOWN) == ["ClusterD is lost: broken; an incident waits 7 s for it"]
    assert bench.says(DOWN) == []
    assert bench.says(NEVER) == ["without ClusterD: off for this job; the embedded controller decides"]


def test_with_the_link_up_a_fault_is_reported_at_once() -> None:
    bench = ruled()
    assert report(1, 1) in bench.exit(1)
    assert bench.agent.deadline() == bench.at + 50.0


def test_with_the_link_down_it_waits_for_it() -> None:
    bench = ruled(up=False)
    assert not any(isinstance(order, Call) for order in bench.exit(1))
    assert bench.agent.deadline() == bench.at + 7.0
    assert bench.give(UP, after=3.0)[-1] == report(1, 1)
    assert bench.agent.deadline() == bench.at + 50.0


def test_a_link_that_does_not_come_leaves_it_to_the_embedded_controller() -> None:
    bench = ruled(up=False)
    bench.exit(1)
    orders = bench.wake()
    assert Like(Note, text="ClusterD was out of reach for 7 s; the embedded controller decides this incident") in orders
    assert orders[-1] == report(1, 1, to=Ruler.EMBEDDED)
    assert patience(bench.job) == bench.agent.policy.signal_wait
    bench.answer()
    bench.stop_told("u")
    bench.give(UP)  # it rules from the next incident on
    bench.exit(0, TERM)
    assert bench.swept()[-1] == Call(2, "u", StopCompleted(), Ruler.EMBEDDED)


def test_a_silent_clusterd_loses_the_incident_and_is_made_to_forget_it() -> None:
    bench = ruled()
    bench.exit(1)
    bench.answer()
    orders = bench.wake()
    assert Like(Note, text="ClusterD said nothing for 50 s; the embedded controller decides this incident") in orders
    assert orders[-1] == report(2, 1, to=Ruler.EMBEDDED)
    bench.answer()
    bench.stop_told("u")
    bench.exit(0, TERM)
    bench.swept()
    bench.answer()
    bench.global_told("u")
    bench.answer()
    bench.chosen(Strategy.RECOVER, "u")
    bench.meet(1)
    assert Renew() in bench.started(2)


def test_it_may_say_itself_for_how_long_it_will_be_silent() -> None:
    bench = ruled()
    bench.give(told(SignalKind.STOP_TRAIN, timeout=900.0))
    for rank in bench.ranks:
        bench.exit(rank, TERM)
    bench.swept()
    assert bench.agent.deadline() == bench.at + 950.0


@pytest.mark.parametrize("phase", [Phase.REPORTED, Phase.STOPPING, Phase.STOPPED, Phase.DIAGNOSED])
def test_a_new_subscription_begins_the_dialogue_again(phase: Phase) -> None:
    bench = ruled()
    bench.exit(1)
    steps = {
        Phase.STOPPING: lambda: (bench.answer(), bench.give(told(SignalKind.STOP_TRAIN))),
        Phase.STOPPED: lambda: (bench.exit(0, TERM), bench.swept()),
        Phase.DIAGNOSED: lambda: (bench.answer(), bench.give(told(SignalKind.GLOBAL_FAULT))),
    }
    for at, step in steps.items():
        if bench.phase is phase:
            break
        step()
        assert bench.phase is at
    seq = bench.job.outbox.seq
    orders = bench.give(UP)
    assert bench.phase is Phase.REPORTED
    assert report(seq + 1, 1) in [*orders, *bench.answer()]
    bench.give(told(SignalKind.GLOBAL_FAULT))  # of the dialogue that is forgotten
    assert bench.phase is Phase.REPORTED


def test_a_way_back_that_is_under_way_goes_on_and_nobody_is_told_how_it_went() -> None:
    bench = ruled()
    bench.exit(1)
    bench.answer()
    bench.give(told(SignalKind.STOP_TRAIN))
    bench.exit(0, TERM)
    bench.swept()
    bench.answer()
    bench.give(told(SignalKind.GLOBAL_FAULT))
    bench.answer()
    bench.give(told(SignalKind.CHANGE_STRATEGY, strategy=Strategy.RECOVER))
    bench.give(DOWN)
    bench.meet(1)
    assert not any(isinstance(order, Call) for order in bench.started(2))
    assert bench.phase is Phase.TRAINING


def test_a_clusterd_that_will_never_be_there_hands_the_incident_over() -> None:
    bench = ruled()
    bench.exit(1)
    bench.answer()
    assert bench.give(NEVER)[-1] == report(2, 1, to=Ruler.EMBEDDED)


def test_what_the_link_does_while_the_job_leaves_is_no_matter() -> None:
    bench = ruled()
    bench.exit(1)
    bench.give(QuitRequested(15))
    assert not any(isinstance(order, Mark) for order in bench.give(DOWN))


def test_a_clusterd_that_forgets_again_and_again_is_not_asked_for_ever() -> None:
    bench = ruled()
    bench.exit(1)
    for _ in range(5):
        bench.answer()
        bench.give(UP)
    bench.answer()
    orders = bench.give(UP)
    text = "ClusterD forgot this incident 5 times; the embedded controller decides this incident"
    assert Like(Note, text=text) in orders
    assert orders[-1] == Like(Call, to=Ruler.EMBEDDED)
