"""Who tests the tester: a planted bug that nobody notices is a missing actor or rule, not a spare mutant."""

from __future__ import annotations

from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant, caught

QUICK = 4000
DEEP = 5000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name.replace(" ", "-"))
def test_mutant_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    assert caught(mutant, tmp_path, QUICK), f"{mutant.name} survives {QUICK} seeds"


@pytest.mark.campaign
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name.replace(" ", "-"))
def test_mutant_is_noticed_by_other_seeds(mutant: Mutant, tmp_path: Path) -> None:
    told = caught(mutant, tmp_path, DEEP, first=1_000_000)
    print(f"{mutant.name}: {told}")
    assert told, f"{mutant.name} survives {DEEP} seeds"


def test_no_mutant_no_notice(tmp_path: Path) -> None:
    """What the mutants are caught for is their bug: the unchanged copy is clean over the same seeds."""
    same = Mutant("none", "core/node.py", "SWEEP_PAUSE_MAX = 0.5", "SWEEP_PAUSE_MAX = 0.5")
    assert caught(same, tmp_path, QUICK) is None


def test_the_changed_copy_is_what_runs(tmp_path: Path) -> None:
    broken = Mutant("does not load", "core/node.py", "SWEEP_PAUSE_MAX = 0.5", "SWEEP_PAUSE_MAX = 0.5 +")
    with pytest.raises(RuntimeError, match="SyntaxError"):
        caught(broken, tmp_path, 1)


def test_text_that_is_not_there_exactly_once_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 times"):
        caught(Mutant("outdated", "core/node.py", "no such text", ""), tmp_path, 1)
