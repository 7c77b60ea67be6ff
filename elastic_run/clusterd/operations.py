"""PURE: what operators ask for while a job trains: switching its links to the spare port, and stress tests."""

from __future__ import annotations

from elastic_run.clusterd import recovery
from elastic_run.clusterd.case import LinksToSwitch, RanksToTest
from elastic_run.clusterd.machine import Machine, OperatorTold
from elastic_run.clusterd.states import State
from elastic_run.core.dialogue import Action, FaultRank, Report, SignalKind, Strategy
from elastic_run.core.vocabulary import Rank

DONE = 0
BUSY = 411
BAD_PARAMETERS = 413
FAILED = 499
FAULT = 406
STRESS_TIMEOUT = 900.0
NODE_BAD = "2"
RANK_BAD = ("3", "4")


def switch_links(m: Machine, ranks: tuple[tuple[Rank, bool], ...], at: float) -> int:
    """Pause the job, then have it switch the links of these ranks. -> code"""
    if m.state is not State.INIT:
        return BUSY
    if not ranks or not m.running:
        return BAD_PARAMETERS
    m.case.links = LinksToSwitch(ranks)
    _pause(m, 0.0, at)
    return DONE


def stress_test(m: Machine, tests: tuple[tuple[Rank, tuple[int, ...]], ...], at: float) -> int:
    if m.state is not State.INIT:
        return BUSY
    if not tests:
        return BAD_PARAMETERS
    m.case.tests = RanksToTest(tests)
    _pause(m, STRESS_TIMEOUT, at)
    return DONE


def heard(m: Machine, report: Report, at: float) -> None:
    match m.state:
        case State.WAIT_PAUSE if report.code == FAILED:  # type: ignore[union-attr]  # a StopCompleted, by WAITS
            _tell_operator(m, "om failed, pause train failed")
            recovery.kill(m)
        case State.WAIT_PAUSE:
            _carry_out(m, at)
        case State.WAIT_NIC | State.WAIT_STRESS:
            if report.code == FAULT:  # type: ignore[union-attr]  # a StatusReported
                _failed(m, at)
        case _:
            if report.code == FAILED:  # type: ignore[union-attr]  # a StatusReported
                _tell_operator(m, "om failed, continue train failed")
                recovery.kill(m)
            else:
                if m.case.links is not None:
                    _tell_operator(m, "switch nic finish")
                m.finish()


def look(m: Machine, at: float) -> None:
    """No state here looks at the cluster."""


def overdue(m: Machine, at: float) -> None:
    if m.state in (State.WAIT_NIC, State.WAIT_STRESS):
        _failed(m, at)
    else:
        _tell_operator(m, "om failed, no answer from the job in time")
        recovery.kill(m)


def links_switched(m: Machine, done: bool, at: float) -> None:
    if m.state is State.WAIT_NIC:
        if done:
            _go_on(m, at)
        else:
            _failed(m, at)


def stress_tested(m: Machine, results: dict[Rank, set[str]], at: float) -> None:
    """A rank that failed is a fault; a node that must be left alone is one with all its ranks."""
    if m.state is not State.WAIT_STRESS:
        return
    per = m.terms.ranks_per_node
    nodes = {rank // per for rank, codes in results.items() if NODE_BAD in codes}
    bad = {rank for rank, codes in results.items() if codes & set(RANK_BAD)}
    bad |= {node * per + i for node in nodes for i in range(per)}
    m.case.uuid = m.begin()
    m.tell(SignalKind.CONTINUE_START, Action.CONTINUE_START)
    verdict = f"ranks {', '.join(map(str, sorted(bad)))} failed" if bad else "all ranks passed"
    _tell_operator(m, f"stress test finish: {verdict}")
    if bad:
        m.case.merge(tuple(FaultRank(rank) for rank in sorted(bad)))
        _as_fault(m, at)
    else:
        _go_on(m, at)


def _pause(m: Machine, timeout: float, at: float) -> None:
    m.case.uuid = m.begin()
    m.tell(SignalKind.STOP_TRAIN, Action.PAUSE_TRAIN, timeout=timeout)
    m.wait(State.WAIT_PAUSE, at)


def _carry_out(m: Machine, at: float) -> None:
    if m.case.links is not None:
        m.out.append(m.case.links)
        m.wait(State.WAIT_NIC, at)
    elif m.case.tests is not None:
        m.out.append(m.case.tests)
        m.case.uuid = m.begin()
        m.tell(SignalKind.PAUSE_START, Action.PAUSE_START)
        m.wait(State.WAIT_STRESS, at)


def _go_on(m: Machine, at: float) -> None:
    change = Action.CHANGE_STRATEGY
    m.tell(SignalKind.CHANGE_STRATEGY, change, strategy=Strategy.CONTINUE)
    m.wait(State.WAIT_CONTINUE, at)


def _failed(m: Machine, at: float) -> None:
    _tell_operator(m, "om failed, the job could not do it")
    if m.state is State.WAIT_STRESS:
        m.case.uuid = m.begin()
        m.tell(SignalKind.CONTINUE_START, Action.CONTINUE_START)
    _as_fault(m, at)


def _as_fault(m: Machine, at: float) -> None:
    """Go on as with any fault."""
    m.case.links = m.case.tests = None
    m.case.uuid = m.begin()
    recovery.stop(m, at)


def _tell_operator(m: Machine, text: str) -> None:
    m.out.append(OperatorTold(text))
