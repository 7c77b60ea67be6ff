"""Deaths of one incident: who is to blame, who is dead, and what a life that hung said at its end."""

from __future__ import annotations

from typing import Any

from elastic_run.core.dialogue import FaultRank
from elastic_run.core.incident import Incident
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind


def fault(rank: int, at: float = 1.0, **more: Any) -> Fault:
    usual: dict[str, Any] = {"kind": FaultKind.CRASHED, "blame": Blame.CULPRIT, "because": "x", "node": 0}
    return Fault(rank=rank, at=at, status=ExitStatus(code=1), **{**usual, **more})


def incident(*faults: Fault) -> Incident:
    return Incident(1, 0.0, 0.0, list(faults), faults[0])


def test_the_dead_are_those_who_died_of_their_own_or_of_a_peers_doing() -> None:
    first = incident(fault(2, blame=Blame.VICTIM), fault(0), fault(1, blame=Blame.STOPPED))
    assert first.dead == (FaultRank(0), FaultRank(2))
    assert first.culprit.rank == 0


def test_a_failed_recovery_is_blamed_on_who_failed_in_it() -> None:
    assert incident(fault(0), fault(1, at=2.0, restarts=1)).culprit.rank == 1


def test_the_end_of_a_life_that_hung_brings_its_last_words_and_is_no_other_fault() -> None:
    hung = incident(fault(0, kind=FaultKind.HUNG))
    hung.add(fault(0, at=2.0, tail="last words", blame=Blame.STOPPED))
    assert [known.tail for known in hung.faults] == ["last words"]
    assert hung.announced is hung.faults[0]


def test_who_was_announced_stays_so_if_another_hangs() -> None:
    two = incident(fault(1), fault(0, kind=FaultKind.HUNG))
    two.add(fault(0, at=2.0, tail="last words"))
    assert two.announced.rank == 1
    two.add(fault(3))
    assert [known.rank for known in two.faults] == [1, 0, 3]
