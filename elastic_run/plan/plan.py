"""Plan: the frozen answer to what to run, where, how many, and how to treat it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from elastic_run.core.policy import Policy
from elastic_run.plan.clusterd import Clusterd
from elastic_run.plan.output import Output
from elastic_run.plan.plugins import Asked
from elastic_run.plan.services import Services
from elastic_run.plan.warm import Start


@dataclass(frozen=True, slots=True)
class Nodes:
    """The launchers that make up the job."""

    least: int = 1
    most: int = 1
    rank: int | None = 0
    """This one's place; None: the leader gives it one."""
    hint: int | None = None
    """Where `rank` is None: nodes are put in this order."""
    master_addr: str | None = None
    """Where rank 0's store listens; None for the loopback of a single node."""
    master_port: int = 0
    """0: a free one for each round."""
    backend: str = "static"
    leader: tuple[str, int] | None = None
    """Where the launcher listens that leads the others; None: there are no others."""
    leads: bool | None = True
    """None: whoever runs on the leader's host, and comes first there."""
    spares: int = 0
    lost_after: float | None = None
    """Seconds of silence after which a node counts as lost; None: as the number of nodes wants it."""
    token_file: str | None = None

    @property
    def place(self) -> int | None:
        """What this launcher asks the leader for."""
        return self.hint if self.rank is None else self.rank

    @property
    def several(self) -> bool:
        return self.leader is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a launch needs to know. `argv` is what each worker exec's."""

    argv: tuple[str, ...]
    workers: int
    policy: Policy
    output: Output
    nodes: Nodes = field(default_factory=Nodes)
    role: str = "default"
    script_on_stdin: bool = False
    run_id: str | None = None
    """`--rdzv-id` as given."""
    log_dir: str | None = None
    """`--log-dir` as given; None for the default place."""
    signals: tuple[int, ...] = ()
    """Signals to forward besides SIGTERM, SIGINT and SIGHUP."""
    progress_file: str | None = None
    prefix: str = "auto"
    """Rank before each console line: auto (on a terminal, with several ranks), always, never."""
    numa_binding: str | None = None
    virtual_local_rank: bool = False
    summary_file: str | None = None
    """Also gets what summary.json gets."""
    interpreter: str = sys.executable
    """For workers, and for children that need torch."""
    threads: int | None = None
    """OMP_NUM_THREADS of each worker; None: it is left alone."""
    start: Start = field(default_factory=lambda: Start("cold"))
    preload: tuple[str, ...] = ()
    plugins: Asked | None = None
    services: Services = field(default_factory=Services)
    clusterd: Clusterd | None = None
    plain_exit_code: bool = False
    """1 for every failure, as torchrun does."""
