"""The first seeds and every seed that ever failed, the same in each run of the suite; fresh seeds are a campaign."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from .dice import Setup, draw
from .world import World, failure

SEEDS = Path(__file__).with_name("seeds.txt")


def known_seeds() -> list[int]:
    lines = SEEDS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def shrunk(setup: Setup) -> Setup:
    """As few mishaps as still make it fail, found by leaving out one at a time."""
    mishaps = setup.mishaps
    for mishap in setup.mishaps:
        fewer = tuple(m for m in mishaps if m is not mishap)
        if failure(replace(setup, mishaps=fewer)):
            mishaps = fewer
    return replace(setup, mishaps=mishaps)


def verdict(seed: int) -> str | None:
    """None, or all that is needed to understand what went wrong."""
    setup = draw(seed)
    if failure(setup) is None:
        return None
    small = shrunk(setup)
    found = failure(small)
    assert found is not None
    what, world = found
    mishaps = "\n".join(f"  {mishap}" for mishap in small.mishaps)
    plain = replace(small, mishaps=())
    return f"seed {seed}: {what.splitlines()[0]}\n\n{plain}\n{mishaps}\n\n{world.agent.story()}"


def hunt(first: int, seconds: float) -> int:
    """How many seeds from `first` on were good in so many seconds."""
    ends, seed = time.monotonic() + seconds, first
    while time.monotonic() < ends:
        found = verdict(seed)
        assert found is None, found
        seed += 1
    return seed - first


@pytest.mark.parametrize("seed", known_seeds())
def test_seed_that_once_failed(seed: int) -> None:
    found = verdict(seed)
    assert found is None, found


def test_first_seeds() -> None:
    for seed in range(4000):
        found = verdict(seed)
        assert found is None, found


@pytest.mark.campaign
def test_fresh_seeds() -> None:
    seconds = float(os.environ.get("SIM_SECONDS", "600"))
    count = hunt(first=time.time_ns() // 1000 % 10**12, seconds=seconds)
    print(f"{count} jobs in {seconds:g} s")
    assert count > 20 * seconds, "the world has become too slow to find anything"


@pytest.mark.campaign
def test_hundred_thousand_seeds() -> None:
    for seed in range(100_000):
        found = verdict(seed)
        assert found is None, found


def test_same_seed_same_job() -> None:
    for seed in range(50):
        once, again = World(draw(seed)), World(draw(seed))
        once.run()
        again.run()
        assert once.facts == again.facts
        assert once.orders == again.orders


def test_most_of_what_can_happen_happens() -> None:
    """A world in which nothing goes wrong finds nothing."""
    codes, restarts = set(), 0
    for seed in range(1000):
        world = World(draw(seed))
        world.run()
        assert world.judge.exited is not None
        codes.add(int(world.judge.exited.code))
        restarts += len(world.judge.ledger.restarts)
    assert {0, 1, 69, 71, 75, 93, 126, 137, 139, 143} <= codes
    assert restarts > 300
