"""A job that ClusterD rules over a link that breaks: the first seeds, those that once failed, fresh ones on demand."""

from __future__ import annotations

import os
import time

import pytest

from .link import failure

FAILED = (12421, 23623)


def verdict(seed: int) -> str | None:
    found = failure(seed)
    return None if found is None else f"seed {seed}: {found[0].splitlines()[0]}\n\n{found[1].agent.story()}"


@pytest.mark.parametrize("seed", FAILED)
def test_seed_that_once_failed(seed: int) -> None:
    assert verdict(seed) is None


def test_first_seeds() -> None:
    for seed in range(4000):
        assert (found := verdict(seed)) is None, found


@pytest.mark.campaign
def test_fresh_seeds() -> None:
    seconds = float(os.environ.get("SIM_SECONDS", "600"))
    ends, first = time.monotonic() + seconds, time.time_ns() // 1000
    for seed in range(first, first + 1_000_000):
        if time.monotonic() > ends:
            break
        assert (found := verdict(seed)) is None, found
    assert seed - first > 100


def test_a_seed_is_the_same_job_each_time() -> None:
    from .link import LinkWorld

    first, second = LinkWorld(7), LinkWorld(7)
    first.run()
    second.run()
    assert first.facts == second.facts
