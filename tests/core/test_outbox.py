"""Reports leave in order, one in flight."""

from __future__ import annotations

from elastic_run.core.commands import Call, Command, Note, Severity
from elastic_run.core.dialogue import FaultRank, FaultReported, StopCompleted
from elastic_run.core.events import CallFinished
from elastic_run.core.outbox import Outbox


def test_the_next_waits_for_the_answer_to_the_one_before() -> None:
    out: list[Command] = []
    box = Outbox(out)
    box.settle()
    assert out == []
    box.put("", FaultReported((FaultRank(1),)))
    box.put("u", StopCompleted())
    box.settle()
    box.settle()
    assert out == [Call(1, "", FaultReported((FaultRank(1),)))]
    box.answered(CallFinished(1, 0))
    box.settle()
    assert out[1:] == [Call(2, "u", StopCompleted())]


def test_answers_to_nothing_and_to_an_earlier_call_are_stale() -> None:
    out: list[Command] = []
    box = Outbox(out)
    box.answered(CallFinished(0, 0))
    box.put("", FaultReported((FaultRank(1),)))
    box.put("u", StopCompleted())
    box.settle()
    box.answered(CallFinished(1, 0))
    box.settle()
    box.answered(CallFinished(1, 0))
    assert box.in_flight
    assert len(box.waiting) == 1


def test_a_refusal_is_said_and_the_queue_goes_on() -> None:
    out: list[Command] = []
    box = Outbox(out)
    box.put("", FaultReported((FaultRank(1),)))
    box.settle()
    box.answered(CallFinished(1, 400, "not registered"))
    text = "embedded controller answered FaultReported with code 400 not registered"
    assert out[1:] == [Note(Severity.WARNING, text)]
    assert not box.waiting


def test_what_nobody_remembers_is_dropped_but_for_what_is_on_its_way() -> None:
    out: list[Command] = []
    box = Outbox(out)
    box.put("", FaultReported((FaultRank(1),)))
    box.drop()
    assert not box.waiting
    box.put("u", StopCompleted())
    box.settle()
    box.put("u", StopCompleted(1))
    box.drop()
    box.answered(CallFinished(1, 0))
    box.settle()
    assert out == [Call(1, "u", StopCompleted())]
