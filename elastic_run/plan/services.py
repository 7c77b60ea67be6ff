"""Services of torch's agent that are switched on by variables: file timer, health-check port, limit of state D."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from elastic_run.errors import ConfigError

ENABLE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
TIMER_FILE = "TORCHELASTIC_TIMER_FILE"
HEALTH_PORT = "TORCHELASTIC_HEALTH_CHECK_PORT"
BLOCKED_LIMIT = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"


@dataclass(frozen=True, slots=True)
class Services:
    """Names and meanings are torch's (local_elastic_agent.py of 2.13)."""

    timer: bool = False
    timer_file: str | None = None
    """FIFO through which workers set themselves deadlines; None for a place of our own."""
    health_port: int | None = None
    blocked_limit: float | None = None
    """Seconds that a worker may spend in uninterruptible sleep."""


def services(environ: Mapping[str, str]) -> Services:
    """What the variables ask for; empty ones ask for nothing.

    Raises:
        ConfigError: a value means nothing.
    """
    port, limit = environ.get(HEALTH_PORT, ""), environ.get(BLOCKED_LIMIT, "")
    if port and not (port.isdigit() and int(port) < 65536):
        raise ConfigError(f"the variable {HEALTH_PORT}={port}: write a port number")
    try:
        seconds = float(limit or 0)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ConfigError(f"the variable {BLOCKED_LIMIT}={limit}: write seconds, or 0 for no limit")
    return Services(
        timer=environ.get(ENABLE_TIMER) == "1",
        timer_file=environ.get(TIMER_FILE) or None,
        health_port=int(port) if port else None,
        blocked_limit=seconds if seconds > 0 else None,
    )
