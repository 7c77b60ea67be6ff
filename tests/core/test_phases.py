"""The tables are whole: every phase and life has its moves, every end can be reached."""

from __future__ import annotations

from elastic_run.core.phases import LIFE_MOVES, PHASE_MOVES, UNBOUNDED, Life, Phase


def test_every_phase_has_a_row_and_can_be_reached() -> None:
    assert set(PHASE_MOVES) == set(Phase)
    reached = {Phase.STARTING} | {to for moves in PHASE_MOVES.values() for to in moves}
    assert reached == set(Phase)


def test_the_end_can_be_reached_from_everywhere_and_left_by_nothing() -> None:
    for phase in set(Phase) - {Phase.LEAVING, Phase.DONE}:
        assert Phase.LEAVING in PHASE_MOVES[phase]
    assert PHASE_MOVES[Phase.DONE] == {}
    assert {Phase.TRAINING, Phase.DONE} == UNBOUNDED


def test_a_dead_worker_can_only_be_started_again() -> None:
    assert set(LIFE_MOVES) == set(Life)
    assert LIFE_MOVES[Life.EXITED] == {Life.STARTING}
    assert all(Life.EXITED in moves for life, moves in LIFE_MOVES.items() if life is not Life.EXITED)
