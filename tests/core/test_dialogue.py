"""The nouns of the dialogue are values: equal if they say the same, and usable as keys."""

from __future__ import annotations

from elastic_run.core.dialogue import Action, FaultRank, FaultType, Ruler, SignalKind, Strategy


def test_a_faulty_rank_is_an_ordinary_fault_unless_it_says_more() -> None:
    assert FaultRank(3) == FaultRank(3, FaultType.OTHER)
    assert len({FaultRank(3), FaultRank(3, FaultType.OTHER), FaultRank(3, FaultType.MEMORY)}) == 2


def test_no_two_words_read_the_same() -> None:
    for words in (Action, FaultType, Ruler, SignalKind, Strategy):
        assert len({word.value for word in words}) == len(words)
