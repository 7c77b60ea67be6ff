"""How a group comes to train: enough nodes, quiet and clean, a rendezvous, a life for each rank, all started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic_run.core.commands import BeginRendezvous, Renew, Severity
from elastic_run.core.dialogue import StatusReported
from elastic_run.core.events import NodeJoined, NodeLost, NodeReported, RendezvousFinished
from elastic_run.core.phases import Phase
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind, Origin
from elastic_run.errors import ExitCode

if TYPE_CHECKING:
    from elastic_run.core.job import Job

FORMS = (Phase.STARTING, Phase.RECOVERING)


def patience(job: Job) -> float:
    """Seconds from the wish for a group to its training, at most; those that nodes may take to come are in it."""
    waits = job.policy.join_wait if job.policy.nodes_max > 1 else 0.0
    return waits + job.policy.start_wait


def settle(job: Job, at: float) -> None:
    crew = job.crew
    if not job.spawned and crew.ranks:
        if not crew.quiet:
            return
        crew.sweep(at, gently=False)
        if not crew.swept:
            return
    if job.policy.require_clusterd and not job.link_up and job.asked_round < 0:
        return
    if job.asked_round != job.round:
        early = job.policy.last_call if job.round == 0 else job.policy.replacement_wait
        if not crew.complete(at, early):
            _give_up(job, at)
            return
        crew.form()
        if job.policy.nodes_max > 1 or job.asked_round < 0:  # so far it was waited for nodes, or for ClusterD
            job.until = at + job.policy.start_wait
        job.asked_round = job.round
        job.out.append(BeginRendezvous(job.round))
    elif job.assignment is not None and not job.spawned:
        job.spawned = True
        job.assignment = crew.start(job.assignment, job.restarts, at)
    elif job.spawned and crew.running:
        _started(job, at)


def _give_up(job: Job, at: float) -> None:
    """Too few nodes for too long: whoever starts jobs must find others."""
    if job.crew.give_up_at is not None and at >= job.crew.give_up_at:
        because = f"{job.crew.missing()} after {job.policy.join_wait:g} s"
        if job.round == 0:
            job.leave(f"no rendezvous: {because}", Origin.LAUNCHER, ExitCode.UNAVAILABLE, at)
        else:
            job.leave(f"no new group: {because}; please requeue", Origin.LAUNCHER, ExitCode.REQUEUE, at)


def met(job: Job, fact: RendezvousFinished, at: float) -> None:
    if fact.round != job.round or job.phase not in FORMS:
        return
    if fact.assignment is None:
        job.leave(f"no rendezvous: {fact.error}", Origin.LAUNCHER, ExitCode.UNAVAILABLE, at)
    else:
        job.assignment = fact.assignment


def _started(job: Job, at: float) -> None:
    incident = job.incident
    job.training_since = at
    if incident is not None:
        job.report(StatusReported(0, job.way(incident)))
    job.incident = None
    job.enter(Phase.TRAINING, at, None)
    if job.renew:
        job.renew = False
        job.out.append(Renew())
    if incident is not None:
        assert incident.verdict is not None
        job.recovered = f"{job.name(incident.culprit)}: {incident.culprit.because}"
        done = f"{job.all_ranks()} started again, {incident.verdict.because}"
        job.note(Severity.INFO, f"recovered from {job.recovered}; {done}; {at - incident.opened_at:.2f} s")


# -- nodes that come and go


def joined(job: Job, fact: NodeJoined, at: float) -> None:
    """Another node is there: for the round that is being formed, for a new one, or as a spare."""
    refusal = job.crew.joined(fact)
    if refusal:
        job.note(Severity.WARNING, f"the node on {fact.host} is refused: {refusal}")
    elif job.phase is Phase.TRAINING and job.crew.grows:
        full = job.crew.size >= job.policy.nodes_max
        job.grow_at = at if full else job.grow_at or at + job.policy.last_call
        job.note(Severity.INFO, f"a node on {fact.host} has joined")


def grow(job: Job, at: float) -> None:
    """Form the group anew with the nodes that have come since."""
    job.grow_at = None
    rank, status = job.first_rank, ExitStatus(code=ExitCode.REQUEUE)
    because = f"{job.crew.size} nodes are there now, {len(job.crew.slots)} take part"
    blame = Blame.CULPRIT
    fault = Fault(rank, job.node.site.node, FaultKind.NODE_JOINED, blame, because, at, status, restarts=job.restarts)
    job.fault(fault, at)


def reported(job: Job, fact: NodeReported, at: float) -> None:
    for fault in job.crew.reported(fact, at):
        job.fault(fault, at)
    if fact.report.stuck:
        peer = job.crew.peers.get(fact.node)
        host = peer.host if peer is not None else ""
        lost(job, NodeLost(fact.node, f"{fact.report.stuck}; the host {host} must be recycled"), at)
    elif fact.report.quit and job.quits == 0 and job.phase is not Phase.LEAVING:
        job.quit(fact.report.quit, at)


def lost(job: Job, fact: NodeLost, at: float) -> None:
    """A node is gone. That is a fault of the group if it takes part in one."""
    peer = job.crew.peers.get(fact.node)
    fault = job.crew.lost(fact, at)
    forms = job.phase in FORMS and not job.spawned
    if peer is None or job.phase in (Phase.LEAVING, Phase.DONE):
        return
    if fault is not None and not forms:
        job.fault(fault, at)
        return
    job.note(Severity.WARNING, f"the node on {peer.host} has left: {fact.because}")
    if forms and job.asked_round == job.round and fact.node in job.crew.slots:
        job.form_anew(at)
