"""PURE: the exchange of a node that is not quite healthy for a new one, while the job trains ("hot switch")."""

from __future__ import annotations

from elastic_run.clusterd.case import whole
from elastic_run.clusterd.machine import Machine
from elastic_run.clusterd.states import State
from elastic_run.core.dialogue import Action, Report, SignalKind, StatusReported, StrategiesOffered, Strategy
from elastic_run.core.vocabulary import Rank

FRAMEWORKS = ("pytorch", "mindspore")
MOST_NODES = 10
"""More at once are no matter for an exchange."""


def begin(m: Machine, ailing: frozenset[Rank], at: float) -> None:
    """The first such node is exchanged; node 0 never is."""
    nodes = sorted({rank // m.terms.ranks_per_node for rank in ailing} - {0})
    if not nodes or not m.subscribed:
        return
    if len(nodes) > MOST_NODES or m.terms.framework not in FRAMEWORKS:
        m.switchable = False
        return
    m.case.merge(whole({nodes[0]}, m.terms.ranks_per_node))
    m.tell(SignalKind.HOT_SWITCH, Action.HOT_SWITCH, ranks=m.case.reported, uuid="")
    m.wait(State.WAIT_NEW_NODE, at)


def heard(m: Machine, report: Report, at: float) -> None:
    match report:
        case StrategiesOffered(strategies=offered) if set(offered) - {Strategy.EXIT}:
            m.wait(State.WAIT_OLD_NODE, at)
        case StatusReported(code=0):
            m.finish()
        case _:
            _stop_job(m)


def look(m: Machine, at: float) -> None:
    if m.state is State.WAIT_NEW_NODE and m.case.nodes(m.terms.ranks_per_node) <= m.case.replaced:
        m.tell(SignalKind.HOT_SWITCH, Action.NEW_POD_RUNNING, uuid="")
        m.wait(State.WAIT_MIGRATION, at)


def overdue(m: Machine, at: float) -> None:
    if m.state is State.WAIT_NEW_NODE:
        m.tell(SignalKind.HOT_SWITCH, Action.STOP_SWITCH, uuid="")
        m.switchable = False
        m.finish()
    else:
        _stop_job(m)


def old_node_gone(m: Machine, at: float) -> None:
    m.tell(SignalKind.CHANGE_STRATEGY, Action.CHANGE_STRATEGY, strategy=Strategy.MIGRATE, uuid="")
    m.wait(State.WAIT_MIGRATED, at)


def _stop_job(m: Machine) -> None:
    """The cluster ends the job; it must be started again as a whole."""
    m.switchable = m.running = False
    m.finish()
