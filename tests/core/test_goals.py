"""Goals and reports at their beginning."""

from __future__ import annotations

from elastic_run.core.goals import NO_REPORT, NOTHING, Aim


def test_who_was_told_nothing_has_answered_it() -> None:
    assert NOTHING.aim is Aim.WAIT
    assert NO_REPORT.seq == NOTHING.seq
