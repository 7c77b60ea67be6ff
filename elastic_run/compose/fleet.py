"""How the launchers of a job find each other: which of them leads, and the way from each to the others."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastic_run.core.events import Event
from elastic_run.core.goals import Goal, NodeReport
from elastic_run.core.vocabulary import NodeId
from elastic_run.errors import ConfigError
from elastic_run.plan.plan import Plan

if TYPE_CHECKING:
    from elastic_run.fleet.leader import Leader
    from elastic_run.fleet.member import Member
    from elastic_run.fleet.pulse import Terms
    from elastic_run.fleet.secret import Secret

Post = Callable[[Event], None]
Say = Callable[[str], None]
FLEET_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL for the workers of a launcher that is gone, where others go on without it."""


class Nobody:
    """The fleet of a job with one node."""

    def tell(self, node: NodeId, goal: Goal) -> None:
        raise AssertionError("there is no other node")

    def answer(self, report: NodeReport) -> None:
        raise AssertionError("there is no other node")

    def close(self, seconds: float) -> None:
        pass


@dataclass(slots=True)
class Met:
    """This launcher's part in the fleet. `run` is the run's name, where the leader has told it."""

    fleet: Nobody | Leader | Member
    leads: bool = True
    node: NodeId = 0
    run: str | None = None

    def open(self, run: str) -> None:
        """Members may join the run of that name from now on."""
        if self.leads and not isinstance(self.fleet, Nobody):
            self.fleet.accept(run)  # type: ignore[union-attr]  # who leads holds a Leader


def meet(plan: Plan, host: str, post: Post, say: Say) -> Met:
    """Lead, or join whoever leads; blocks until that is settled.

    Raises:
        ConfigError: the options do not fit, or the leader refuses this launcher.
        PlatformError: there is no leader.
    """
    nodes = plan.nodes
    if nodes.leader is None:
        return Met(Nobody())
    from elastic_run.fleet.pulse import terms
    from elastic_run.fleet.secret import VARIABLE, secret

    try:
        agreed = terms(nodes.most + nodes.spares, nodes.lost_after)
    except ValueError as error:
        raise ConfigError(f"--node-lost-after {nodes.lost_after:g}: {error}; give more") from error
    job = plan.run_id or ""
    known = secret(nodes.token_file, job, os.environ)
    os.environ.pop(VARIABLE, None)  # it is no business of the workers
    leads = is_local(nodes.leader[0]) if nodes.leads is None else nodes.leads
    if leads:
        leader = _lead(plan, job, known, agreed, post, say)
        if leader is not None:
            return Met(leader)
        if nodes.leads:
            option = "--fleet-port" if nodes.backend == "static" else "--rdzv-endpoint"
            raise ConfigError(f"port {nodes.leader[1]} is taken; choose another ({option})")
    return _join(plan, job, known, host, post, say)


def _lead(plan: Plan, job: str, known: Secret, agreed: Terms, post: Post, say: Say) -> Leader | None:
    from elastic_run.fleet.leader import Job, Leader

    nodes = plan.nodes
    assert nodes.leader is not None
    host, port = nodes.leader
    leader = Leader(Job(job, known, 2 * (nodes.most + nodes.spares)), agreed, post, say)
    loopback = is_loopback(host)
    if not leader.start(_addresses(loopback, port)):
        return None
    if known.derived and not loopback:
        say(f"port {port} lets in whoever knows the job's id; set ELASTIC_RUN_TOKEN on every node to have a secret")
    return leader


def _join(plan: Plan, job: str, known: Secret, host: str, post: Post, say: Say) -> Met:
    from elastic_run.fleet.member import Me, Member

    assert plan.nodes.leader is not None
    address, port = plan.nodes.leader
    target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    member = Member(target, Me(job, host, plan.workers, plan.nodes.place, known), post, say)
    welcome = member.join(plan.policy.join_wait)
    return Met(member, leads=False, node=welcome.node, run=welcome.run)


def _addresses(loopback: bool, port: int) -> list[str]:
    if loopback:
        return [f"127.0.0.1:{port}", *([f"[::1]:{port}"] if _has_ipv6() else [])]
    return [f"[::]:{port}" if socket.has_dualstack_ipv6() else f"0.0.0.0:{port}"]


def is_loopback(host: str) -> bool:
    """Every address of that name is of the loopback interface."""
    found = _resolved(host)
    return bool(found) and all(address.startswith("127.") or address == "::1" for address in found)


def is_local(host: str) -> bool:
    """One of the addresses of that name is of this host."""
    return any(_ours(address) for address in _resolved(host))


def _resolved(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def _ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _has_ipv6() -> bool:
    return _ours("::1")
