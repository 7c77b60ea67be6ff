"""Which of torchrun's plug-ins a launch uses, and what they are told; a wrong name is found before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from elastic_run.errors import ConfigError
from elastic_run.plan import output

GROUP = "torchrun.logs_specs"
NO_EVENTS = "null"


@dataclass(frozen=True, slots=True)
class Asked:
    """Values as torchrun gives them to a LogsSpecs class."""

    logs_specs: str | None
    event_log_handler: str
    log_dir: str | None
    redirects: str
    tee: str
    local_ranks_filter: tuple[int, ...] | None

    def asked(self) -> dict[str, Any]:
        return asdict(self)


def plugins(given: Mapping[str, Any]) -> Asked | None:
    """None: no plug-in is asked for.

    Raises:
        ConfigError: no installed package has a plug-in of that name.
    """
    name, handler = given["logs_specs"], given["event_log_handler"]
    if name is None and handler == NO_EVENTS:
        return None
    from importlib.metadata import entry_points  # here: 20 ms that nobody else needs

    if name is not None and not entry_points(group=GROUP, name=name):
        known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        raise ConfigError(f"--logs-specs {name}: no package has it as entry point {GROUP}; installed: {known}")
    ranks = output.ranks("--local-ranks-filter", given["local_ranks_filter"])
    return Asked(
        name,
        handler,
        given["log_dir"],
        given["redirects"],
        given["tee"],
        None if ranks is None else tuple(sorted(ranks)),
    )
