"""Facts are frozen values: equal by content, and nobody changes one on its way."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args

import pytest

from elastic_run.core import events
from elastic_run.core.events import Event, Tick, WorkerStarted


def test_every_fact_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        WorkerStarted(0, 1, 2).pid = 3  # type: ignore[misc]
    assert WorkerStarted(0, 1, 2) == WorkerStarted(0, 1, 2, None)
    assert Tick() == Tick()


def test_a_fact_about_a_worker_carries_its_incarnation() -> None:
    for kind in get_args(Event):
        names = [field.name for field in fields(kind)]
        assert ("rank" in names) == ("incarnation" in names), kind


def test_the_union_is_complete() -> None:
    defined = {v for v in vars(events).values() if isinstance(v, type) and v.__module__ == events.__name__}
    assert defined == set(get_args(Event))
