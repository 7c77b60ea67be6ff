"""PURE: the way of a fault from stop train to the last signal, and what each answer and each silence leads to."""

from __future__ import annotations

from elastic_run.clusterd.case import whole
from elastic_run.clusterd.choice import choose, may_retry
from elastic_run.clusterd.machine import Machine
from elastic_run.clusterd.states import State
from elastic_run.core.dialogue import (
    Action,
    FaultRank,
    FaultReported,
    FaultType,
    Report,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.vocabulary import NodeId

ISOLATE = 201
RETRY_AGAIN = 405
CANNOT_SAVE = 499
NETWORK_TIMEOUT = 33.0
"""Seconds that a job is told to give a step that met a network fault."""


def fault_occurred(m: Machine, at: float) -> None:
    """Begin an incident; faults of one that is under way only join it."""
    if m.state not in (State.INIT, State.SCALED_IN) or not m.subscribed:
        return
    m.case.uuid = m.begin()
    if m.state is State.INIT and m.terms.dump_only:
        m.case.offered = (Strategy.DUMP,)
        m.tell(SignalKind.SAVE_AND_EXIT, Action.SAVE_AND_EXIT, nodes=_nodes(m))
        m.wait(State.WAIT_DUMP, at)
    else:
        stop(m, at)


def stop(m: Machine, at: float) -> None:
    m.tell(SignalKind.STOP_TRAIN, Action.STOP_TRAIN, ranks=m.case.reported)
    m.wait(State.WAIT_STOP, at)


def heard(m: Machine, report: Report, at: float) -> None:
    """The report that the present state waits for."""
    match report:
        case StopCompleted(code=404):
            kill(m)  # it cannot take part
        case StopCompleted():
            _stopped(m, at)
        case StrategiesOffered():
            m.case.offered = report.strategies
            _decide(m, at)
        case StatusReported():
            _judge(m, report, at)
        case FaultReported():  # pragma: no cover - no state waits for one
            pass


def look(m: Machine, at: float) -> None:
    """At nodes and job, in the states that wait for them."""
    case = m.case
    match m.state:
        case State.CALMING if not m.hardware:
            _global_fault(m, at)
        case State.WAIT_RESOURCES if _rescheduled(m):
            _change(m, _choice(m, enough=True), at)
        case State.WAIT_RECOVER if case.reschedule_by is not None:
            if _rescheduled(m):
                case.reschedule_by = None
            elif at >= case.reschedule_by + m.timing.poll:
                _not_rescheduled(m, at)
        case State.LISTENING if m.running and _nodes(m) <= case.replaced:
            m.wait(State.RESTARTING, at)
        case State.PAUSED if m.running:
            m.paused = False
            m.finish()


def overdue(m: Machine, at: float) -> None:
    """The present state has lasted as long as it may."""
    match m.state:
        case State.FLUSHING:
            _flushed(m, at)
        case State.RELEASING:
            _released(m, at)
        case State.CALMING:
            m.case.leaving |= m.hardware
            _global_fault(m, at)
        case State.WAIT_RESOURCES:
            _change(m, _choice(m, enough=False), at)
        case State.CONVERGING:
            _tell_retry(m, at)
        case State.LISTENING if m.running:
            m.wait(State.RESTARTING, at)
        case State.PAUSED:
            kill(m)
        case State.WAIT_ISOLATE:
            m.case.struck.add(Strategy.SCALE_IN)
            _decide(m, at)
        case _:
            pause(m, at)


def kill(m: Machine) -> None:
    m.tell(SignalKind.KILL_MASTER)
    m.finish()


# -- from stop to decision


def _stopped(m: Machine, at: float) -> None:
    if may_retry(m.terms, m.case) and not m.paused:
        _retry_fault(m, at)
    else:
        m.case.demote()
        m.wait(State.FLUSHING, at)


def _flushed(m: Machine, at: float) -> None:
    m.case.demote()
    m.wait(State.RELEASING, at)


def _released(m: Machine, at: float) -> None:
    m.case.demote()
    if Strategy.RECOVER_IN_PLACE in m.terms.strategies and not m.paused:
        m.wait(State.CALMING, at)
    else:
        _global_fault(m, at)


def _retry_fault(m: Machine, at: float) -> None:
    ranks = m.case.retryable
    timeout = NETWORK_TIMEOUT if _network(ranks) else 0.0
    m.tell(SignalKind.GLOBAL_FAULT, Action.ON_GLOBAL_RANK, ranks=ranks, timeout=timeout)
    _ask(m, at)


def _global_fault(m: Machine, at: float) -> None:
    case, nodes = m.case, _nodes(m)
    case.demote()
    one_node_or_hardware = len(nodes) == 1 or bool(m.hardware)
    allowed = Strategy.RECOVER_IN_PLACE in m.terms.strategies and not m.paused
    case.in_place = allowed and one_node_or_hardware and bool(nodes - case.leaving)
    ranks, leaving = (_in_place(m), case.leaving) if case.in_place else (_spread(m), nodes - case.replaced)
    actions = (Action.ON_GLOBAL_RANK, Action.FAULT_NODES_EXIT)
    m.tell(SignalKind.GLOBAL_FAULT, *actions, ranks=ranks, nodes=leaving)
    _ask(m, at)


def _ask(m: Machine, at: float) -> None:
    watched = m.terms.scheduled and Strategy.RECOVER in m.terms.strategies
    m.case.reschedule_by = at + m.terms.reschedule_wait if watched else None
    m.case.offered = ()
    m.wait(State.WAIT_STRATEGIES, at)


def _decide(m: Machine, at: float) -> None:
    choice = _choice(m, enough=False)
    if choice is Strategy.SCALE_IN and m.terms.rescheduling:
        m.wait(State.WAIT_RESOURCES, at)
    elif choice is Strategy.RETRY and _network(m.case.retryable):
        m.wait(State.CONVERGING, at)
    elif choice is Strategy.RETRY:
        _tell_retry(m, at)
    else:
        _change(m, choice, at)


def _choice(m: Machine, *, enough: bool) -> Strategy:
    """`enough`: nodes have come, so that nothing need go on with fewer."""
    if enough:
        m.case.struck.add(Strategy.SCALE_IN)
    return choose(m.terms, m.case)


# -- the strategies


def _tell_retry(m: Machine, at: float) -> None:
    ranks = m.case.retryable
    change, nodes = Action.CHANGE_STRATEGY, _nodes(m)
    m.tell(SignalKind.CHANGE_STRATEGY, change, ranks=ranks, nodes=nodes, strategy=Strategy.RETRY)
    m.wait(State.WAIT_RETRY, at)


def _change(m: Machine, choice: Strategy, at: float) -> None:
    """Tell the strategy (not RETRY) and wait for what comes of it."""
    case = m.case
    case.demote()
    ranks, nodes, actions = _spread(m), _nodes(m), [Action.CHANGE_STRATEGY]
    told, in_place = choice, choice is Strategy.RECOVER_IN_PLACE
    if in_place:
        told, ranks, nodes = Strategy.RECOVER, _in_place(m), nodes - case.leaving
        actions.append(Action.FAULT_NODES_RESTART)
    elif case.in_place:
        actions.append(Action.FAULT_NODES_EXIT)
    elif choice is Strategy.RECOVER:
        nodes = nodes - case.replaced
    m.tell(SignalKind.CHANGE_STRATEGY, *actions, ranks=ranks, nodes=nodes, strategy=told, in_place=in_place)
    if told is Strategy.EXIT:
        _let_restart(m, at)
    else:
        m.wait(_AWAITS[told], at)


_AWAITS = {
    Strategy.RECOVER: State.WAIT_RECOVER,
    Strategy.DUMP: State.WAIT_DUMP,
    Strategy.SCALE_IN: State.WAIT_ISOLATE,
}


def _judge(m: Machine, status: StatusReported, at: float) -> None:
    """What the job says counts, also about another strategy than the one it was told."""
    case, good = m.case, status.code == 0
    match status.strategy:
        case None:
            m.finish()
            return
        case Strategy.RETRY | Strategy.RECOVER | Strategy.SCALE_OUT if good:
            m.finish()
            return
        case Strategy.DUMP:
            _exit(m)
            _let_restart(m, at)
            return
        case Strategy.EXIT:
            _let_restart(m, at)
            return
        case Strategy.SCALE_IN if status.code == ISOLATE:
            left = {rank // m.terms.ranks_per_node for rank in status.isolate} - _nodes(m)
            m.tell(SignalKind.FAULT_NODES_EXIT, Action.FAULT_NODES_EXIT, nodes=left)
            m.wait(State.WAIT_SCALE_IN, at)
            return
        case Strategy.SCALE_IN if good:
            case.last = Strategy.SCALE_IN
            m.wait(State.SCALED_IN, at)
            return
    case.last = status.strategy
    if status.strategy is Strategy.RETRY and status.code == RETRY_AGAIN:
        case.demote()
        m.wait(State.FLUSHING, at)
        return
    if status.strategy is Strategy.RETRY:
        case.struck |= {Strategy.RECOVER, Strategy.DUMP} if status.code == CANNOT_SAVE else {Strategy.RECOVER}
        case.demote()
    _decide(m, at)


def scale_out(m: Machine, at: float) -> bool:
    """A job that trains with fewer nodes gets its full size back when a node has come."""
    if not (m.running and _nodes(m) & m.case.replaced):
        return False
    change = Action.CHANGE_STRATEGY
    ranks, nodes = _spread(m), _nodes(m)
    m.tell(SignalKind.CHANGE_STRATEGY, change, ranks=ranks, nodes=nodes, strategy=Strategy.SCALE_OUT)
    m.wait(State.WAIT_SCALE_OUT, at)
    return True


# -- the end of the ladder


def _not_rescheduled(m: Machine, at: float) -> None:
    m.case.reschedule_by = None
    offered = Strategy.SCALE_IN in m.case.offered and Strategy.SCALE_IN in m.terms.strategies
    if offered and 0 not in _nodes(m):
        _change(m, Strategy.SCALE_IN, at)
    else:
        pause(m, at)


def _exit(m: Machine) -> None:
    nodes = {rank // m.terms.ranks_per_node for rank in m.case.normal}
    m.tell(SignalKind.CHANGE_STRATEGY, Action.CHANGE_STRATEGY, nodes=nodes, strategy=Strategy.EXIT, last=True)


def _let_restart(m: Machine, at: float) -> None:
    """The job exits; whoever schedules it starts it again, if anybody does."""
    if m.terms.scheduled:
        m.wait(State.LISTENING, at)
    else:
        m.finish()


def pause(m: Machine, at: float) -> None:
    """Recovery has come to its end: without it the job must run again by itself."""
    m.paused = m.terms.scheduled
    _exit(m)
    if m.paused:
        m.wait(State.PAUSED, at)
    else:
        m.finish()


# -- who is meant


def _nodes(m: Machine) -> set[NodeId]:
    return m.case.nodes(m.terms.ranks_per_node)


def _spread(m: Machine) -> tuple[FaultRank, ...]:
    """All ranks of the nodes with a fault."""
    return whole(_nodes(m), m.terms.ranks_per_node)


def _in_place(m: Machine) -> tuple[FaultRank, ...]:
    """The faulty ranks, and all of the nodes that must leave."""
    left = whole(m.case.leaving, m.terms.ranks_per_node)
    return tuple(sorted({*left, *(FaultRank(rank) for rank in m.case.normal)}, key=lambda fault: fault.rank))


def _network(ranks: tuple[FaultRank, ...]) -> bool:
    return any(fault.type is FaultType.NETWORK for fault in ranks)


def _rescheduled(m: Machine) -> bool:
    """The job runs, and at least one node with a fault was replaced, if there is one that must be."""
    nodes = _nodes(m)
    return m.running and (m.case.in_place or not nodes or bool(nodes & m.case.replaced))
