"""100 deaths of one rank of four, at random moments; every job must come back. `make campaign`."""

from __future__ import annotations

import os
import random
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.process.conftest import Run

GLOO = Path(__file__).parent / "workers" / "gloo_steps.py"


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(100))
def test_one_rank_of_four_dies(run: Run, number: int) -> None:
    dice = random.Random(number)
    run.act("up", "work:0.4", ranks=4, options=("--max-restarts", "1"))
    run.up(ranks=dice.randint(1, 4))
    victim = dice.choice(sorted(run.workers()))
    os.kill(run.workers()[victim], SIGKILL)
    assert run.wait() == 0
    assert run.summary["restarts"] == 1


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(20))
def test_one_gloo_rank_of_four_dies(run: Run, number: int) -> None:
    pytest.importorskip("torch")
    dice = random.Random(number)
    flags = ("--nproc-per-node", "4", "--log-dir", str(run.logs), "--max-restarts", "1")
    die = f"{dice.randrange(4)}:{dice.randrange(20)}"
    assert run.start(*flags, str(GLOO), die).wait(120) == 0
    assert run.summary["restarts"] == 1
