"""Deaths of one rank of four, at random moments; every job must come back. `make campaign`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.process.conftest import BOUND, Run, lasts, until

GLOO = Path(__file__).parent / "workers" / "gloo_steps.py"


@pytest.fixture(scope="module")
def tally() -> Iterator[dict[str, list[float]]]:
    """Seconds from a death to the training that follows, by kind of worker; told at the end."""
    seconds: dict[str, list[float]] = {"bare": [], "gloo": []}
    yield seconds
    for kind, found in seconds.items():
        if found:
            ordered = sorted(found)
            middle, most = ordered[len(ordered) // 2], ordered[-1]
            print(f"\n{kind}: {len(found)} of {len(found)} came back; median {middle:.2f} s, worst {most:.2f} s")


def recovery(run: Run) -> float:
    """Between the first exit and the start of the last worker of the second life."""
    began = run.facts("WorkerExited")[0]["at"]
    return float(max(r["at"] for r in run.facts("WorkerStarted")) - began)


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(100))
def test_one_rank_of_four_dies(run: Run, tally: dict[str, list[float]], number: int) -> None:
    dice = random.Random(number)
    run.act("up", "idle#0", "work:0.1", ranks=4, options=("--max-restarts", "1"))
    until(run.workers, BOUND, "a worker")
    lasts(dice.uniform(0, 0.3))
    victim = dice.choice(sorted(run.workers()))
    os.kill(run.workers()[victim], SIGKILL)
    assert run.wait() == 0
    assert run.summary["restarts"] == 1
    assert f"rank {victim} on" in run.said[0]
    tally["bare"].append(recovery(run))


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(20))
def test_one_gloo_rank_of_four_dies(run: Run, tally: dict[str, list[float]], number: int) -> None:
    pytest.importorskip("torch")
    dice = random.Random(number)
    rank, step = dice.randrange(4), dice.randrange(20)
    assert run.start(*run.flags(4), "--max-restarts", "1", str(GLOO), f"{rank}:{step}").wait(120) == 0
    assert run.summary["restarts"] == 1
    tally["gloo"].append(recovery(run))
