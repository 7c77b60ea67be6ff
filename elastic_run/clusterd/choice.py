"""PURE: choose(): the next strategy of an incident, from what is configured, offered and failed so far."""

from __future__ import annotations

from elastic_run.clusterd.case import Case
from elastic_run.clusterd.terms import Terms
from elastic_run.core.dialogue import Strategy

S = Strategy
LADDER = (S.RECOVER_IN_PLACE, S.RECOVER, S.SCALE_IN, S.DUMP)
"""Best first; EXIT needs neither configuration nor offer."""
AFTER: dict[Strategy | None, tuple[Strategy, ...]] = {
    None: LADDER,
    S.RETRY: LADDER,
    S.RECOVER: (S.DUMP,),
    S.SCALE_IN: (S.DUMP,),
    S.SCALE_OUT: (S.DUMP,),
}
"""What is left after a status about a strategy."""
OFFERED_AS = {S.RECOVER_IN_PLACE: S.RECOVER}
"""A job offers to recover; whether it may be in place is configured."""


def choose(terms: Terms, case: Case) -> Strategy:
    """The best strategy that is configured and offered."""
    if case.last is None and may_retry(terms, case) and S.RETRY in case.offered:
        return S.RETRY
    return next((s for s in AFTER.get(case.last, ()) if _possible(s, terms, case)), S.EXIT)


def may_retry(terms: Terms, case: Case) -> bool:
    """Only faults that a retry may cure, all of one kind, and none was tried before."""
    one_kind = len(set(case.retry.values())) == 1
    return S.RETRY in terms.strategies and one_kind and not case.normal and case.last is not S.RETRY


def _possible(strategy: Strategy, terms: Terms, case: Case) -> bool:
    word = OFFERED_AS.get(strategy, strategy)
    if strategy not in terms.strategies or word not in case.offered or word in case.struck:
        return False
    if strategy is S.RECOVER_IN_PLACE:
        return case.in_place
    return strategy is not S.SCALE_IN or 0 not in case.nodes(terms.ranks_per_node)
