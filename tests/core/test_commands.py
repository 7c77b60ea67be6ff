"""Orders are frozen values, and their union is complete."""

from __future__ import annotations

from enum import Enum
from typing import get_args

from elastic_run.core import commands
from elastic_run.core.commands import Command, Kill, Note, Severity


def test_orders_are_equal_by_content() -> None:
    assert Kill(0, 1, 15) == Kill(0, 1, 15)
    assert Kill(0, 1, 15) != Kill(0, 2, 15)
    assert Note(Severity.INFO, "x") != Note(Severity.ERROR, "x")


def test_the_union_is_complete() -> None:
    own = [v for v in vars(commands).values() if isinstance(v, type) and v.__module__ == commands.__name__]
    assert {v for v in own if not issubclass(v, Enum)} == set(get_args(Command))
