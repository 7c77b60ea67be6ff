"""Who rules an incident: ClusterD while it can be reached, else the embedded controller; never both at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic_run.core.commands import Severity
from elastic_run.core.dialogue import FaultReported, Ruler
from elastic_run.core.events import LinkChanged
from elastic_run.core.incident import Incident
from elastic_run.core.phases import Phase

if TYPE_CHECKING:
    from elastic_run.core.job import Job

MOST_BEGUN = 5
"""Dialogues about one incident that ClusterD may forget."""


def who(job: Job) -> Ruler:
    """Would decide an incident that began now."""
    return Ruler.CLUSTERD if job.policy.clusterd and not job.forgone else Ruler.EMBEDDED


def patience(job: Job) -> float:
    """For the next word of who rules the open incident, in seconds."""
    incident = job.incident
    assert incident is not None
    if incident.ruler is Ruler.EMBEDDED:
        return job.policy.signal_wait
    if not job.link_up:
        return job.policy.clusterd_timeout
    return job.policy.clusterd_wait + incident.timeout


def report_deaths(job: Job, incident: Incident) -> None:
    """All that is known in one report, as soon as somebody listens."""
    listens = job.link_up or incident.ruler is Ruler.EMBEDDED
    if listens and incident.reported != incident.dead and not incident.save:
        incident.reported = incident.dead
        job.report(FaultReported(incident.dead))


def link_changed(job: Job, fact: LinkChanged, at: float) -> None:
    """A new subscription makes ClusterD forget what was; so the dialogue of an open incident begins again."""
    was, job.link_up, job.forgone = job.link_up, fact.up, job.forgone or fact.forgo
    if fact.up != was or fact.forgo:
        _tell(job, fact)
    incident = job.incident
    if incident is None or incident.ruler is Ruler.EMBEDDED or job.phase in (Phase.LEAVING, Phase.DONE):
        return
    if job.phase is Phase.RECOVERING:
        incident.forgotten = True
    elif job.forgone:
        take_over(job, at)
    else:
        begin_again(job, at)


def silent(job: Job, at: float) -> None:
    """ClusterD, which rules the open incident, has not said the next word in time."""
    word = "said nothing" if job.link_up else "was out of reach"
    text = f"ClusterD {word} for {patience(job):g} s; the embedded controller decides this incident"
    job.note(Severity.WARNING, text)
    job.renew = job.link_up
    take_over(job, at)


def take_over(job: Job, at: float) -> None:
    """The embedded controller decides this incident."""
    assert job.incident is not None
    job.incident.ruler = Ruler.EMBEDDED
    begin_again(job, at)


def begin_again(job: Job, at: float) -> None:
    """Hold the dialogue about the open incident from its start, as nobody knows of it any more."""
    incident = job.incident
    assert incident is not None
    incident.begun += 1
    if incident.ruler is Ruler.CLUSTERD and incident.begun > MOST_BEGUN:
        text = f"ClusterD forgot this incident {MOST_BEGUN} times; the embedded controller decides this incident"
        job.note(Severity.WARNING, text)
        incident.ruler, job.renew = Ruler.EMBEDDED, job.link_up
    incident.uuid, incident.reported, incident.choice, incident.offer = "", (), None, None
    incident.failed.clear()
    incident.stop_told = incident.global_told = incident.save = incident.pause = incident.forgotten = False
    job.outbox.drop()
    job.enter(Phase.REPORTED, at, patience(job))


def _tell(job: Job, fact: LinkChanged) -> None:
    if fact.up:
        job.note(Severity.INFO, f"ClusterD decides incidents of this job ({fact.because})")
    elif fact.forgo:
        job.note(Severity.WARNING, f"without ClusterD: {fact.because}; the embedded controller decides")
    else:
        within = f"an incident waits {job.policy.clusterd_timeout:g} s for it"
        job.note(Severity.WARNING, f"ClusterD is lost: {fact.because}; {within}")
