"""PURE: facts, orders and policy as JSON and back. Dataclasses only; the class name says what a record is."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any


def encode(value: Any) -> Any:
    """Plain data for json.dumps; a dataclass becomes an object of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def decode(kind: Any, data: Any) -> Any:
    """A value of type `kind` from what `encode` made of it.

    Raises:
        ValueError, TypeError, KeyError: `data` is no such value.
    """
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{name: decode(hints[name], item) for name, item in data.items()})
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return decode(next(arg for arg in args if arg is not type(None)), data)
    if origin is tuple:
        return tuple(decode(args[0], item) for item in data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if isinstance(kind, type) and kind is not object and not isinstance(data, (kind, int)):
        raise ValueError(f"{data!r} is no {kind.__name__}")
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
