"""Where a launch keeps things: its run directory, taken through the writer, and its node-local scratch directory."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elastic_run.core.vocabulary import NodeId
from elastic_run.errors import ConfigError
from elastic_run.observe import rundir
from elastic_run.observe.rundir import RunDirectory
from elastic_run.plan.plan import Plan
from elastic_run.rendezvous.environment import SCRATCH
from elastic_run.supervisor.writer import Writer

FULL = (errno.ENOSPC, errno.EDQUOT)
"""A full disk costs records, never the job."""
DISK_WAIT = 5.0
"""Seconds for the file system of the run directory to answer."""


@dataclass(frozen=True, slots=True)
class Places:
    scratch: str
    run: RunDirectory | None
    """None: there are no records of this launch."""
    run_id: str
    run_name: str
    """Of the run directory above this node's part; what the job would be called where there is none."""


def take_places(
    plan: Plan, job: str, writer: Writer, say: Callable[[str], None], node: NodeId, told: str | None
) -> Places:
    """Take a run directory, without waiting for ever for its file system, and name a scratch directory.

    `told`: the run's name, where the leader has told it.

    Raises:
        ConfigError: --log-dir cannot be written.
    """
    name, returns = rundir.job_name(plan.run_id, os.environ)
    name = told or name
    run = _take_run(plan, name, returns, writer, say, node)
    if run is not None:
        if run.instead_of:
            say(f"{run.instead_of}; records go to {run.path}")
        writer.call(lambda: rundir.index(run.path, os.environ))
        writer.call(run.reserve)
    return Places(_scratch(job), run, plan.run_id or name, run.path.parent.name if run is not None else name)


def _take_run(
    plan: Plan, name: str, returns: bool, writer: Writer, say: Callable[[str], None], node: NodeId
) -> RunDirectory | None:
    taken: list[RunDirectory] = []
    failed: list[OSError] = []
    done = threading.Event()

    def work() -> None:
        try:
            taken.append(rundir.take(plan.log_dir, name, returns, node))
        except OSError as error:
            failed.append(error)
        done.set()

    writer.call(work)
    if not done.wait(DISK_WAIT):
        say(f"the log directory does not answer within {DISK_WAIT:g} s; going on without records")
    if failed and plan.log_dir is not None and failed[0].errno not in FULL:
        reason = ": ".join(filter(None, [failed[0].filename, failed[0].strerror]))
        raise ConfigError(f"--log-dir {plan.log_dir}: cannot be written ({reason}); choose another")
    if failed:
        say(f"no run directory ({failed[0].strerror}); going on without records")
    return taken[0] if taken else None


def _scratch(job: str) -> str:
    """Name of a node-local directory for spool and error files, where there is most room."""
    outer = os.environ.get(SCRATCH)  # there the outer launcher's guard removes it where ours cannot any more
    places = [outer] if outer else [tempfile.gettempdir(), "/dev/shm", "/tmp"]
    usable = [place for place in places if os.access(place, os.W_OK | os.X_OK)] or [tempfile.gettempdir()]
    best = max(usable, key=lambda place: shutil.disk_usage(place).free)
    return f"{best}/elastic-run-{job}"
