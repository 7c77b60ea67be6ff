"""Facts and orders as plain data and back."""

from __future__ import annotations

import json

import pytest

from elastic_run.core.codec import decode, encode
from elastic_run.core.dialogue import SignalKind, Strategy
from elastic_run.core.events import NodeReported, SignalReceived, WorkerExited
from elastic_run.core.goals import NodeReport
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind, WorkerError

DIED = ExitStatus(code=1)
FAULT = Fault(3, 1, FaultKind.CRASHED, Blame.CULPRIT, "x", 1.5, DIED, error=WorkerError("m", 2.0), others=(4,))


@pytest.mark.parametrize(
    "value",
    [
        NodeReported(1, NodeReport(2, faults=(FAULT, FAULT))),
        SignalReceived("u", SignalKind.CHANGE_STRATEGY, strategy=Strategy.RECOVER, nodes=(1, 2)),
        WorkerExited(0, 1, ExitStatus(signal=9)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_goes_out_comes_back(value: object) -> None:
    assert decode(type(value), json.loads(json.dumps(encode(value)))) == value


def test_lists_become_tuples() -> None:
    assert encode([1, (2,)]) == [1, [2]]
    assert decode(tuple[int, ...], [1, 2]) == (1, 2)


@pytest.mark.parametrize(("kind", "data"), [(int, "1"), (float, "x"), (str, [])])
def test_another_type_is_refused(kind: type, data: object) -> None:
    with pytest.raises(ValueError, match=f"is no {kind.__name__}"):
        decode(kind, data)


def test_a_field_that_is_not_known_is_refused() -> None:
    with pytest.raises((KeyError, TypeError)):
        decode(ExitStatus, {"code": 1, "colour": "red"})


def test_anything_is_an_object() -> None:
    assert decode(object, "x") == "x"
