"""Plan: the frozen answer to what to run, where, how many, and how to treat it."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_run.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a launch needs to know. `argv` is what each worker exec's."""

    argv: tuple[str, ...]
    workers: int
    policy: Policy
    run_id: str | None = None
    """`--rdzv-id` as given."""
    log_dir: str | None = None
    """`--log-dir` as given; None for the default place."""
    master_port: int = 0
    """0: a free one for each round."""
    signals: tuple[int, ...] = ()
    """Signals to forward besides SIGTERM, SIGINT and SIGHUP."""
    progress_file: str | None = None
    prefix: str = "auto"
    """Rank before each console line: auto (on a terminal, with several ranks), always, never."""
    plain_exit_code: bool = False
    """1 for every failure, as torchrun does."""
    origins: dict[str, str] = field(default_factory=dict)
    """Option -> where its value came from, for those that are not defaults."""
