"""What --dry-run shows: the plan in words, and where each value came from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from elastic_run.core.vocabulary import signal_name
from elastic_run.plan import numa
from elastic_run.plan.plan import Plan

USUAL = ("SIGTERM", "SIGINT", "SIGHUP")


def preview(plan: Plan, origins: Mapping[str, tuple[object, str]]) -> list[str]:
    """Lines: what each rank would exec, how many there are, what happens after a fault, and every option."""
    policy, nodes = plan.policy, plan.nodes
    lines = [
        f"each rank runs: {shlex.join(plan.argv)}",
        f"ranks: {plan.workers} here{_others(plan)}",
        f"rank 0's store: {nodes.master_addr or '127.0.0.1'}, "
        f"{f'port {nodes.master_port}' if nodes.master_port else 'a free port for each round'}",
        f"restarts: {'no limit' if policy.max_restarts is None else policy.max_restarts}"
        + (f" within {policy.window:g} s" if policy.window is not None else ""),
        f"forwarded signals: {', '.join(dict.fromkeys([*USUAL, *map(signal_name, plan.signals)]))}; "
        f"SIGKILL after {policy.stop_grace:g} s",
    ]
    cores = numa.binding(plan.numa_binding, plan.workers)
    if plan.numa_binding:
        lines += [f"cores of local rank {rank}: {list(cores(rank) or [])}" for rank in range(plan.workers)]
    width = max(len(name) for name in origins)
    lines += ["", *(f"{name:<{width}}  {_word(value)}  ({origin})" for name, (value, origin) in origins.items())]
    return lines


def _others(plan: Plan) -> str:
    nodes = plan.nodes
    if nodes.leader is None:
        return ""
    count = str(nodes.most) if nodes.least == nodes.most else f"{nodes.least} to {nodes.most}"
    place = "whose place the leader tells" if nodes.rank is None else f"with node rank {nodes.rank}"
    spares = f" and {nodes.spares} spare" if nodes.spares else ""
    return f", one of {count} nodes{spares}, {place}; the leader is at {nodes.leader[0]}:{nodes.leader[1]}"


def _word(value: object) -> str:
    return "-" if value in (None, "", ()) else str(value)
