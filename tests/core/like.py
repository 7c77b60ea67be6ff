"""Partial matching of facts and orders: `Like(Kill, rank=1)` equals any Kill of rank 1."""

from __future__ import annotations

from typing import Any


class Like:
    def __init__(self, kind: type, **fields: Any) -> None:
        self.kind, self.fields = kind, fields

    def __eq__(self, other: object) -> bool:
        return type(other) is self.kind and all(getattr(other, k) == v for k, v in self.fields.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Like({self.kind.__name__}, {', '.join(f'{k}={v!r}' for k, v in self.fields.items())})"
