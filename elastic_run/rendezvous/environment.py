"""PURE: the environment of one worker: torchrun's contract plus ours, and what a nested launch must not inherit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastic_run.core.commands import Spawn

MARK = "ELASTIC_RUN_JOB"
SCRATCH = "ELASTIC_RUN_SCRATCH"
"""Node-local directory of a job; a launcher nested in it makes its own inside."""
OURS = "ELASTIC_RUN_"
NESTED_BY = ("TORCHELASTIC_RUN_ID", MARK)
"""Either of these in our own environment means that another launcher started us."""

GIVEN = frozenset(
    {
        "LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_WORLD_SIZE", "WORLD_SIZE",
        "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE",
    }
)  # fmt: skip
"""What torchrun gives each worker (torch 2.1-2.15); a value inherited from an outer launcher is never right."""

UNLIMITED = 2**31 - 1
"""TORCHELASTIC_MAX_RESTARTS must be an integer."""


def is_nested(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in NESTED_BY)


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what an outer launcher put there for its own worker; its mark and place stay."""
    return {k: v for k, v in environ.items() if k in (MARK, SCRATCH) or not _belongs_to_launcher(k)}


def _belongs_to_launcher(name: str) -> bool:
    return name in GIVEN or name == "TORCHELASTIC_TIMER_FILE" or name.startswith(("PET_", OURS))


@dataclass(frozen=True, slots=True)
class JobWide:
    """What is the same for all workers of a job."""

    run_id: str
    role: str
    max_restarts: int | None
    threads: int | None
    """Value for OMP_NUM_THREADS where the user has set none; None leaves it alone."""
    signals: str = "SIGTERM,SIGINT,SIGHUP"
    """Names of those that the launcher passes on."""
    virtual_local_rank: bool = False
    """Every rank sees one device and is its local rank 0."""


def worker_environment(
    base: Mapping[str, str], job: JobWide, order: Spawn, *, mark: str, error_file: str
) -> dict[str, str]:
    """The whole environment of the worker that `order` starts; `mark` is the job's own part of the mark."""
    place, ranks = order.assignment, order.assignment.ranks
    outer = base.get(MARK)
    given = {
        "LOCAL_RANK": str(order.local_rank),
        "RANK": str(order.rank),
        "GROUP_RANK": str(place.node_rank),
        "ROLE_RANK": str(order.rank),
        "ROLE_NAME": job.role,
        "LOCAL_WORLD_SIZE": str(len(ranks)),
        "WORLD_SIZE": str(place.world_size),
        "GROUP_WORLD_SIZE": str(place.nodes),
        "ROLE_WORLD_SIZE": str(place.world_size),
        "MASTER_ADDR": place.master_addr,
        "MASTER_PORT": str(place.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(order.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(UNLIMITED if job.max_restarts is None else job.max_restarts),
        "TORCHELASTIC_RUN_ID": job.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": str(place.hosted),
        "TORCHELASTIC_SIGNALS_TO_HANDLE": job.signals,
        "TORCHELASTIC_ERROR_FILE": error_file,
        MARK: f"{outer}:{mark}" if outer else mark,
    }
    if job.virtual_local_rank:
        given |= {"LOCAL_RANK": "0", **_one_device(base, order.local_rank)}
    defaults = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if job.threads is not None:
        defaults["OMP_NUM_THREADS"] = str(job.threads)
    return {**defaults, **base, **given}


VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
ALWAYS_SET = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


def _one_device(base: Mapping[str, str], local_rank: int) -> dict[str, str]:
    """The rank's own entry of each visible-device variable, or its number where nothing limits the devices."""
    chosen = {}
    for variable in VISIBLE_DEVICES:
        entries = [entry.strip() for entry in base.get(variable, "").split(",") if entry.strip()]
        if local_rank < len(entries):
            chosen[variable] = entries[local_rank]
        elif not entries and variable in ALWAYS_SET:
            chosen[variable] = str(local_rank)
    return chosen
