"""How a job ends: with which code, and with what words."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGTERM
from typing import TYPE_CHECKING

from elastic_run.core.commands import Explain, Severity
from elastic_run.core.incident import Incident
from elastic_run.core.vocabulary import Fault, FaultKind, Origin
from elastic_run.errors import ExitCode

if TYPE_CHECKING:
    from elastic_run.core.job import Job

NOBODYS = (FaultKind.STORE_LOST, FaultKind.TOLD, FaultKind.NODE_LOST, FaultKind.NODE_JOINED)
"""No rank is to blame."""
MOST_TOLD = 2
"""Workers whose failure to stop well is told at length."""


@dataclass(slots=True)
class Ending:
    """Why the job leaves, and with what. A stop by signal gets its code when all workers have exited."""

    because: str
    origin: Origin
    code: int | None
    signum: int = SIGTERM
    unsaved: int = 0
    """Workers that ended neither well nor by the signal."""


def give_up(job: Job, incident: Incident, because: str, at: float) -> None:
    fault = incident.culprit
    loop = incident.verdict is not None and incident.verdict.crash_loop
    code = ExitCode.DO_NOT_REQUEUE if loop else fault.code
    job.explain("")
    job.leave(
        f"{because}: {job.name(fault)}: {fault.because}",
        Origin.LAUNCHER if loop or fault.kind in NOBODYS else Origin.WORKERS,
        code,
        at,
    )


def not_saved(job: Job, fault: Fault) -> None:
    """Told to stop, a worker ended in another way than by the signal: what it was to save may be lost."""
    assert job.ending is not None
    ran = fault.kind is not FaultKind.NOT_STARTED
    if job.quits == 1 and ran and fault.status.signal != job.ending.signum:
        job.ending.unsaved += 1
        if job.ending.unsaved <= MOST_TOLD:
            job.note(Severity.ERROR, f"{job.name(fault)}: {fault.status.describe()} as it was to stop")
            job.out.append(Explain(fault, fault.restarts, "", announced=True))


def final(job: Job, at: float) -> tuple[int, Origin, str]:
    """Code, whose it is, and why, once nothing of the job lives."""
    ending = job.ending
    assert ending is not None
    if ending.code is None:
        saved = job.crew.succeeded
        because = f"{ending.because}, {'all workers then exited 0' if saved else 'before the end of training'}"
        if job.policy.requeue_on_stop:
            return ExitCode.REQUEUE, ending.origin, f"{because}; please requeue"
        return (ExitCode.OK if saved else 128 + ending.signum), ending.origin, because
    if ending.code == ExitCode.OK:
        return ending.code, ending.origin, f"{job.all_ranks()} succeeded in {at - job.began:.1f} s{_past(job)}"
    return ending.code, ending.origin, ending.because


def _past(job: Job) -> str:
    """What the job has come through, for its verdict."""
    if not job.recovered:
        return ""
    return f"; {job.restarts} restart{'s' if job.restarts > 1 else ''}, the last after {job.recovered}"
