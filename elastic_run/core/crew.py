"""Crew: all nodes of a job as its leader knows them; it acts on its own one and tells the others their goals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_run.core.commands import Command, Note, Severity, Tell
from elastic_run.core.events import NodeJoined, NodeLost, NodeReported
from elastic_run.core.goals import NO_REPORT, NOTHING, Aim, Goal, NodeReport
from elastic_run.core.node import Node
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, Blame, ExitStatus, Fault, FaultKind, NodeId, Origin, Rank
from elastic_run.errors import ExitCode

NOTICE_AFTER, NOTICE_EVERY = 2.0, 10.0
"""Seconds after which people are told who is waited for, and between two such lines."""
HERE: NodeId = 0
"""The leader's own node, always the first of the group."""


@dataclass(slots=True)
class Peer:
    """Another node: what it was told last, and what it answered last."""

    node: NodeId
    host: str
    workers: int
    place: int | None = None
    """The group rank that it asks for."""
    assignment: Assignment | None = None
    """Of the round in which it takes part."""
    goal: Goal = NOTHING
    report: NodeReport = NO_REPORT

    @property
    def answered(self) -> bool:
        return self.report.seq == self.goal.seq

    @property
    def quiet(self) -> bool:
        return self.answered and self.report.alive == 0

    @property
    def swept(self) -> bool:
        """Who has not run yet has left nothing behind."""
        return self.goal.aim is Aim.WAIT or (self.answered and self.report.swept)


@dataclass(slots=True)
class Crew:
    policy: Policy
    here: Node
    out: list[Command]
    peers: dict[NodeId, Peer] = field(default_factory=dict)
    """Of all nodes that are there but this one, in the order of their coming."""
    slots: list[NodeId] = field(default_factory=list)
    """Nodes of the present round by group rank; a lost one's slot is kept for its successor."""
    last_call: float | None = None
    """When those who are there start without those who may still come."""
    look_at: float | None = None
    """When `complete` is to be asked again, if nothing happens before."""
    give_up_at: float | None = None
    """When too few nodes have been there for too long."""
    notice_at: float | None = None
    """When people are told who is waited for."""
    fenced: float = 0.0
    """Until when processes of a lost node may live."""

    # -- what is so

    @property
    def team(self) -> list[Peer]:
        """The other nodes of the present round."""
        return [self.peers[node] for node in self.slots if node in self.peers]

    @property
    def quiet(self) -> bool:
        return not self.here.alive and all(peer.quiet for peer in self.team)

    @property
    def running(self) -> bool:
        return self.here.running and all(peer.answered and peer.report.running for peer in self.team)

    @property
    def succeeded(self) -> bool:
        return self.here.succeeded and all(peer.answered and peer.report.succeeded for peer in self.team)

    @property
    def swept(self) -> bool:
        return self.here.swept and all(peer.swept for peer in self.team)

    @property
    def ranks(self) -> int:
        """Of the present round."""
        return len(self.here.workers) + sum(len(p.assignment.ranks) for p in self.team if p.assignment)

    @property
    def alive(self) -> int:
        """Ranks whose process lives, as far as is known here."""
        return len(self.here.alive) + sum(peer.report.alive for peer in self.team)

    @property
    def size(self) -> int:
        """Nodes that could take part in a round."""
        return 1 + len(self.peers)

    @property
    def grows(self) -> bool:
        """Somebody waits for whom there is room in a new round."""
        return 0 < len(self.slots) < min(self.size, self.policy.nodes_max)

    # -- facts

    def joined(self, fact: NodeJoined) -> str:
        """Take a node in; -> why it is refused, or nothing."""
        self.peers[fact.node] = peer = Peer(fact.node, fact.host, fact.workers, fact.place)
        refusal = self._refusal(peer)
        if refusal:
            self.tell_to_leave(peer, ExitCode.USAGE, refusal)
            del self.peers[peer.node]  # what it says from now on means nothing
        return refusal

    def _refusal(self, peer: Peer) -> str:
        if not self.policy.fixed_places:
            return ""
        if peer.place is None or not 0 < peer.place < self.policy.nodes_max:
            most = self.policy.nodes_max - 1
            return f"--node-rank {peer.place} is not one of the others' here, 1 to {most}"
        holder = next((p for p in self.peers.values() if p.place == peer.place and p is not peer), None)
        return f"--node-rank {peer.place} is taken by {holder.host}" if holder else ""

    def reported(self, fact: NodeReported, at: float) -> list[Fault]:
        """Keep how things stand there; -> the deaths that it tells of."""
        peer = self.peers.get(fact.node)
        if peer is None:
            return []
        peer.report = replace(fact.report, faults=())
        return [replace(fault, node=peer.node, host=peer.host, at=at) for fault in fact.report.faults]

    def lost(self, fact: NodeLost, at: float) -> Fault | None:
        """It takes part no more; -> what that means for the group, if it took part."""
        peer = self.peers.pop(fact.node, None)
        if peer is None:
            return None
        self.fenced = max(self.fenced, at + self.policy.fence)
        if peer.node not in self.slots or peer.assignment is None:
            return None
        first, *rest = peer.assignment.ranks
        status = ExitStatus(code=ExitCode.REQUEUE)
        return Fault(
            first, peer.node, FaultKind.NODE_LOST, Blame.CULPRIT, fact.because, at, status,
            restarts=peer.goal.restarts, host=peer.host, others=tuple(rest),
        )  # fmt: skip

    # -- forming a group

    def complete(self, at: float, patience: float) -> bool:
        """May a group be formed now? `patience`: seconds that fewer than all wait for more."""
        everybody = self.policy.nodes_max + self.policy.spares
        if not self.policy.nodes_min <= self.size < everybody:
            self.last_call = None
        elif self.last_call is None:
            self.last_call = at + patience
        due = max(self.fenced, self.last_call or 0.0)
        if self.size >= self.policy.nodes_min and at >= due:
            self.notice_at = self.give_up_at = None
            return True
        if self.size >= self.policy.nodes_min:
            self.give_up_at = None
        elif self.give_up_at is None:
            self.give_up_at = at + self.policy.join_wait
        if self.notice_at is None or at >= self.notice_at:
            first = self.notice_at is None
            if not first:
                self.out.append(Note(Severity.INFO, f"waiting: {self.missing()}"))
            self.notice_at = at + (NOTICE_AFTER if first else NOTICE_EVERY)
        self.look_at = min([t for t in (self.notice_at, self.give_up_at, due) if t is not None and t > at])
        return False

    def missing(self) -> str:
        """Who is waited for, in words."""
        if self.size < self.policy.nodes_min or self.policy.nodes_min == self.policy.nodes_max:
            wanted = self.policy.nodes_min
        else:
            wanted = self.policy.nodes_max
        if self.policy.fixed_places:
            there = {0, *(p.place for p in self.peers.values())}
            names = ", ".join(str(place) for place in range(wanted) if place not in there)
            return f"{self.size} of {wanted} nodes are there; missing: node rank {names}"
        return f"{self.size} of {wanted} nodes are there"

    def form(self) -> None:
        """Give every slot to a node: those who were there keep theirs, others fill gaps, then the end."""
        waiting = [peer for peer in self.peers.values() if peer.node not in self.slots]
        waiting.sort(key=lambda peer: (peer.place is None, peer.place or 0, peer.host, peer.node))
        slots: list[NodeId | None] = [node if node in self.peers else None for node in self.slots]
        slots += [None] * (self.policy.nodes_max - len(slots))
        slots[0] = HERE
        for number in range(1, len(slots)):
            if slots[number] is None and waiting:
                own = next((peer for peer in waiting if peer.place == number), waiting[0])
                waiting.remove(own)
                slots[number] = own.node
        self.slots = [node for node in slots if node is not None]
        self.last_call = None

    def assigned(self, base: Assignment) -> dict[NodeId, Assignment]:
        """Each node's part of the round; `base` says where rank 0 listens."""
        sizes = {node: self._workers(node) for node in self.slots}
        world, first, found = sum(sizes.values()), 0, {}
        for place, (node, size) in enumerate(sizes.items()):
            ranks = tuple(range(first, first + size))
            found[node] = replace(base, node_rank=place, ranks=ranks, world_size=world, nodes=len(sizes))
            first += size
        return found

    def _workers(self, node: NodeId) -> int:
        return self.here.site.local_world if node == HERE else self.peers[node].workers

    # -- deeds

    def start(self, base: Assignment, restarts: int, at: float) -> Assignment:
        """A life for every rank of the group; -> this node's part."""
        parts = self.assigned(base)
        for peer in self.team:
            peer.assignment = parts[peer.node]
            self._tell(peer, Aim.RUN, assignment=peer.assignment, restarts=restarts)
        self.here.start(parts[HERE], restarts, at)
        return parts[HERE]

    def stop(self, signum: int, at: float) -> None:
        """Ask everyone who has not been asked yet; SIGKILL follows after the grace."""
        self.here.stop(signum, at)
        self._tell_all((Aim.RUN, Aim.END), Aim.STOP, quiet=False, signum=signum)

    def kill(self, at: float) -> None:
        self.here.kill(at)
        self._tell_all((Aim.RUN, Aim.END, Aim.STOP, Aim.CLEAN), Aim.KILL)

    def sweep(self, at: float, *, gently: bool) -> None:
        self.here.sweep(at, gently=gently)
        self._tell_all((Aim.RUN, Aim.END, Aim.STOP, Aim.KILL), Aim.CLEAN, gently=gently)

    def device_broken(self, rank: Rank, at: float) -> Fault | None:
        """End a rank wherever it is; -> its fault, if that is known at once."""
        for peer in self.team:
            if peer.assignment is not None and rank in peer.assignment.ranks:
                self._tell(peer, Aim.END, ranks=(rank,), restarts=peer.goal.restarts)
                return None
        return self.here.device_broken(rank, at)

    def at_place(self, place: int) -> Peer | None:
        """The other node that has this group rank in the present round."""
        return self.peers.get(self.slots[place]) if 0 < place < len(self.slots) else None

    def tell_to_leave(self, peer: Peer, code: int, because: str) -> None:
        self._tell(peer, Aim.LEAVE, code=code, because=because)

    def disband(self, code: int, origin: Origin, because: str) -> None:
        """The job is over; every launcher ends with the same code."""
        for peer in self.peers.values():
            self._tell(peer, Aim.LEAVE, code=code, origin=origin, because=because)

    def _tell_all(self, after: Iterable[Aim], aim: Aim, *, quiet: bool = True, **more: Any) -> None:
        """`quiet`: also those where nothing lives."""
        for peer in self.team:
            if peer.goal.aim in after and (quiet or not peer.quiet):
                self._tell(peer, aim, restarts=peer.goal.restarts, **more)

    def _tell(self, peer: Peer, aim: Aim, **more: Any) -> None:
        peer.goal = Goal(peer.goal.seq + 1, aim, **more)
        self.out.append(Tell(peer.node, peer.goal))
