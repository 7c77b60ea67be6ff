"""PURE: jobs as operators write them down, in a file or a call: words to Declared and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from elastic_run.clusterd.registry import Declared
from elastic_run.clusterd.terms import Terms
from elastic_run.core.dialogue import Strategy
from elastic_run.errors import ConfigError

WORDS = {
    "retry": Strategy.RETRY,
    "recover-in-place": Strategy.RECOVER_IN_PLACE,
    "recover": Strategy.RECOVER,
    "elastic-training": Strategy.SCALE_IN,
    "dump": Strategy.DUMP,
}
"""Besides exit, which every job may."""
SHORTEST_ID, LONGEST_ID = 1, 128


def configured(words: Iterable[str]) -> tuple[Strategy, ...]:
    """Strategies by their words, best first; unknown words count for nothing, as in ClusterD's own declarations."""
    known = set(words)
    return tuple(strategy for word, strategy in WORDS.items() if word in known)


def declared(job: str, told: Mapping[str, Any]) -> Declared:
    """From a table such as {"strategies": ["recover"], "nodes": 2, "ranks_per_node": 8}.

    Raises:
        ConfigError: a key, a strategy or a value that means nothing.
    """
    if not SHORTEST_ID <= len(job) <= LONGEST_ID:
        raise ConfigError(f"job {job[:20]!r}: an id has 1 to {LONGEST_ID} characters")
    defaults = {field.name: getattr(BASE, field.name) for field in fields(Terms)}
    given = dict(told)
    recovery = _checked(job, "recovery", given.pop("recovery", True), True)
    words = given.pop("strategies", [])
    if not isinstance(words, list) or not all(word in (*WORDS, "exit") for word in words):
        raise ConfigError(f"job {job}: strategies is a list of {', '.join(WORDS)}; it is {words!r}")
    for name, value in given.items():
        if name not in defaults:
            raise ConfigError(f"job {job}: {name!r} is no term; known are {', '.join(sorted(defaults))}")
        given[name] = _checked(job, name, value, defaults[name])
    for name in ("nodes", "ranks_per_node"):
        if given.get(name, 1) < 1:
            raise ConfigError(f"job {job}: {name} must be 1 or more")
    return Declared(Terms(configured(words), **{**_scheduled, **given}), recovery)


def written(declared: Declared) -> dict[str, Any]:
    """The table that `declared` reads."""
    terms = declared.terms
    told = {field.name: getattr(terms, field.name) for field in fields(Terms)}
    told["strategies"] = [word for word, strategy in WORDS.items() if strategy in terms.strategies]
    return {**told, "recovery": declared.recovery}


BASE = Terms()
_scheduled = {"scheduled": True}


def _checked(job: str, name: str, value: Any, like: Any) -> Any:
    kind = float if isinstance(like, float) else type(like)
    right = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not right or isinstance(value, bool) is not isinstance(like, bool):
        raise ConfigError(f"job {job}: {name} is {value!r}; it must be like {like!r}")
    return float(value) if kind is float else value
