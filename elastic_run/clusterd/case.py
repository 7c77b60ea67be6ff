"""PURE: what a controller knows of its present incident; a reset forgets all of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_run.core.dialogue import FaultRank, FaultType, Report, Strategy
from elastic_run.core.vocabulary import NodeId, Rank


@dataclass(frozen=True, slots=True)
class LinksToSwitch:
    """For the job: which ranks' links go to the spare one (True) or come back."""

    ranks: tuple[tuple[Rank, bool], ...]


@dataclass(frozen=True, slots=True)
class RanksToTest:
    """For the job: the stress tests of each rank."""

    tests: tuple[tuple[Rank, tuple[int, ...]], ...]


@dataclass(slots=True)
class Case:
    uuid: str = ""
    retry: dict[Rank, FaultType] = field(default_factory=dict)
    """Faults that doing the step again may cure."""
    normal: set[Rank] = field(default_factory=set)
    leaving: set[NodeId] = field(default_factory=set)
    """Nodes whose devices stay faulty: they cannot start again in place."""
    replaced: set[NodeId] = field(default_factory=set)
    """Nodes that have come back since the last reset."""
    offered: tuple[Strategy, ...] = ()
    struck: set[Strategy] = field(default_factory=set)
    """Not to be chosen any more."""
    last: Strategy | None = None
    """What the last status was about."""
    in_place: bool = False
    reschedule_by: float | None = None
    """Until when nodes are waited for; None: no more."""
    links: LinksToSwitch | None = None
    """What an operator asked for; `tests` likewise."""
    tests: RanksToTest | None = None
    kept: dict[type[Report], Report] = field(default_factory=dict)
    """One place for each kind of report; an early one waits here for its state."""
    blocked: list[tuple[int, Report]] = field(default_factory=list)
    """Reports whose place was taken, with their tickets; not answered yet."""

    def merge(self, faults: tuple[FaultRank, ...]) -> None:
        """The first word on a rank stands, unless it was that a retry may cure it."""
        for fault in faults:
            if fault.type is FaultType.OTHER:
                self.normal.add(fault.rank)
            else:
                self.retry.setdefault(fault.rank, fault.type)

    def demote(self) -> None:
        """Treat all faults as such that no retry cures."""
        self.normal |= set(self.retry)
        self.retry.clear()

    @property
    def reported(self) -> tuple[FaultRank, ...]:
        return self.retryable + tuple(FaultRank(rank) for rank in sorted(self.normal))

    @property
    def retryable(self) -> tuple[FaultRank, ...]:
        return tuple(FaultRank(rank, kind) for rank, kind in sorted(self.retry.items()))

    def nodes(self, ranks_per_node: int) -> set[NodeId]:
        return {rank // ranks_per_node for rank in (*self.retry, *self.normal)}


def whole(nodes: set[NodeId], ranks_per_node: int) -> tuple[FaultRank, ...]:
    """All ranks of these nodes."""
    return tuple(FaultRank(node * ranks_per_node + i) for node in sorted(nodes) for i in range(ranks_per_node))
