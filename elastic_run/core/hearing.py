"""hear(): what each word of a controller means for the job, in each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic_run.core.commands import Severity
from elastic_run.core.crew import HERE
from elastic_run.core.dialogue import Action, Offer, Ruler, SignalKind, StrategiesOffered, Strategy
from elastic_run.core.ending import give_up
from elastic_run.core.events import NodeLost, SignalReceived
from elastic_run.core.forming import lost
from elastic_run.core.incident import Incident
from elastic_run.core.phases import Phase
from elastic_run.core.rule import begin_again, patience, who
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind, Origin
from elastic_run.errors import ExitCode

if TYPE_CHECKING:
    from elastic_run.core.job import Job

QUIET = (Phase.STARTING, Phase.TRAINING)


def hear(job: Job, fact: SignalReceived, at: float) -> None:
    """Record what a controller says; what belongs to no incident that it rules is stale."""
    if job.phase in (Phase.LEAVING, Phase.DONE):
        return
    match fact.kind:
        case SignalKind.STOP_TRAIN | SignalKind.SAVE_AND_EXIT:
            _stop(job, fact, at)
        case SignalKind.GLOBAL_FAULT:
            if (incident := _meant(job, fact)) is not None:
                incident.global_told = True
        case SignalKind.CHANGE_STRATEGY:
            if (incident := _meant(job, fact)) is not None:
                _choose(job, incident, fact, at)
        case SignalKind.PRE_EXIT:
            _end_ranks(job, fact, at)
        case SignalKind.FAULT_NODES_EXIT:
            if _meant(job, fact) is not None:
                _leave_out(job, fact, at)
        case SignalKind.PAUSE_START | SignalKind.CONTINUE_START:
            _rename(job, fact)
        case SignalKind.HOT_SWITCH:
            _refuse_switch(job, fact)
        case SignalKind.KILL_MASTER:
            if job.incident is None or job.incident.ruler is fact.source:
                _leave(job, "ClusterD ends this job (kill master); it must start again as a whole", at)
        case SignalKind.KEEP_ALIVE:  # pragma: no branch - mypy checks that no kind of signal is missing
            pass


def _meant(job: Job, fact: SignalReceived) -> Incident | None:
    """The incident that a signal is about: open, of the one who speaks, and of this id."""
    incident = job.incident
    same = incident is not None and incident.ruler is fact.source and fact.uuid == incident.uuid != ""
    return incident if same else None


def _stop(job: Job, fact: SignalReceived, at: float) -> None:
    """The first word on an incident gives it its id; a later one with a new id begins it again."""
    if fact.uuid in job.uuids or not fact.uuid:
        return
    if job.phase in QUIET:
        if Ruler.EMBEDDED in (fact.source, who(job)):
            return
        _open(job, _told(job, fact, at), at)
    elif job.incident is not None and job.incident.ruler is not fact.source:
        if fact.source is Ruler.CLUSTERD:
            job.renew = True
            job.note(Severity.WARNING, "ClusterD stops training, but the embedded controller decides this incident")
        return
    elif job.incident is not None and job.phase is not Phase.REPORTED:
        if fact.source is Ruler.EMBEDDED:
            return
        begin_again(job, at)
        job.incident.reported = job.incident.dead  # it knows of them
    assert job.incident is not None
    job.incident.uuid, job.incident.stop_told = fact.uuid, True
    job.incident.timeout = fact.timeout
    job.incident.pause = Action.PAUSE_TRAIN in fact.actions
    job.incident.save = fact.kind is SignalKind.SAVE_AND_EXIT
    job.uuids.add(fact.uuid)


def _open(job: Job, fault: Fault, at: float) -> None:
    """ClusterD begins an incident by itself."""
    job.open(fault, at)
    assert job.incident is not None
    job.incident.reported = job.incident.dead
    job.note(Severity.WARNING, f"ClusterD: {fault.because}")


def _told(job: Job, fact: SignalReceived, at: float) -> Fault:
    """A fault that ClusterD tells us of. It may be of another node's rank, or of none."""
    of = ", ".join(f"{fault.rank} ({fault.type.value})" for fault in fact.ranks)
    if Action.PAUSE_TRAIN in fact.actions:
        because = "training pauses, as an operator asked; it starts again from its last state"
    else:
        because = f"training stops for a fault of rank {of}" if of else "training stops"
    rank = fact.ranks[0].rank if fact.ranks else job.first_rank
    status = ExitStatus(code=ExitCode.REQUEUE)
    return Fault(rank, job.node.site.node, FaultKind.TOLD, Blame.CULPRIT, because, at, status, restarts=job.restarts)


def _choose(job: Job, incident: Incident, fact: SignalReceived, at: float) -> None:
    if fact.last:
        give_up(job, incident, f"{fact.source.value} ends the recovery", at)
    elif fact.strategy is Strategy.CONTINUE and incident.pause and job.phase is Phase.STOPPED:
        incident.choice, incident.offer = fact.strategy, Offer((fact.strategy,), "training had paused")
        job.enter(Phase.DIAGNOSED, at, patience(job))
    elif job.phase is Phase.DIAGNOSED and incident.offer is not None and fact.strategy is not None:
        if fact.strategy in (*incident.offer.strategies, Strategy.EXIT):
            incident.choice = fact.strategy
        else:
            job.note(Severity.WARNING, f"strategy {fact.strategy.value} was not offered: {incident.offer.because}")
            job.report_failure(fact.strategy)


def _end_ranks(job: Job, fact: SignalReceived, at: float) -> None:
    """Their device is broken: end them, which then is a fault like any other. A copy of the order finds nobody."""
    for told in fact.ranks:
        fault = job.crew.device_broken(told.rank, at)
        job.fault(fault, at)


def _rename(job: Job, fact: SignalReceived) -> None:
    """Devices are tested while this job, which was asked to pause, has no process. The incident gets a new id."""
    incident = job.incident
    if incident is not None and incident.ruler is fact.source and incident.pause:
        incident.uuid = fact.uuid
        job.uuids.add(fact.uuid)


def _refuse_switch(job: Job, fact: SignalReceived) -> None:
    """Exchanging a node while training goes on needs workers that can be moved; nothing is lost by saying no."""
    if Action.HOT_SWITCH in fact.actions:
        job.note(Severity.WARNING, "ClusterD wants to exchange a node while training goes on; this job cannot")
    elif Action.NEW_POD_RUNNING in fact.actions:
        job.outbox.put("", StrategiesOffered((Strategy.EXIT,)), Ruler.CLUSTERD)


def _leave_out(job: Job, fact: SignalReceived, at: float) -> None:
    if HERE in fact.nodes:
        _leave(job, "ClusterD leaves this node out; please requeue", at)
        return
    for place in fact.nodes:
        peer = job.crew.at_place(place)
        if peer is not None:
            because = "ClusterD leaves it out"
            job.crew.tell_to_leave(peer, ExitCode.REQUEUE, f"{because}; please requeue")
            lost(job, NodeLost(peer.node, because), at)


def _leave(job: Job, because: str, at: float) -> None:
    job.leave(because, Origin.LAUNCHER, ExitCode.REQUEUE, at)
