"""Incident: one fault from notice to recovered; its deaths, whose fault it was, and what was said about it so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from elastic_run.core.budget import Verdict
from elastic_run.core.dialogue import FaultRank, Offer, Ruler, Strategy
from elastic_run.core.faults import culprit
from elastic_run.core.vocabulary import Blame, Fault, FaultKind

OWN_DEATH = frozenset({Blame.CULPRIT, Blame.VICTIM})


@dataclass(slots=True)
class Incident:
    ordinal: int
    opened_at: float
    uptime: float
    faults: list[Fault]
    announced: Fault
    """The one people were told of at once; another may turn out to be the culprit."""
    culprit_by: float | None = None
    """Until when a culprit is waited for; None once there is one, or nobody who could be."""
    uuid: str = ""
    stop_told: bool = False
    global_told: bool = False
    choice: Strategy | None = None
    ruler: Ruler = Ruler.EMBEDDED
    reported: tuple[FaultRank, ...] = ()
    """What the ruler was told of."""
    begun: int = 0
    """How often its dialogue began again."""
    forgotten: bool = False
    """By its ruler, while the way back is under way: no status is due."""
    failed: set[Strategy] = field(default_factory=set)
    """Strategies that were reported as failed."""
    save: bool = False
    """Workers save and exit; how that went is all that is reported."""
    timeout: float = 0.0
    """Seconds for which the ruler says that it may be silent."""
    pause: bool = False
    """Asked for by an operator: it costs no restart."""
    verdict: Verdict | None = None
    offer: Offer | None = None
    progress_by: float | None = None
    """Until when the progress file is waited for; None once it is known or needs no look."""
    progress_seq: int = 0

    def add(self, fault: Fault) -> None:
        """The end of a life that was judged before, because it hung, only brings that one's last words."""
        for place, known in enumerate(self.faults):
            if known.kind is FaultKind.HUNG and (known.rank, known.restarts) == (fault.rank, fault.restarts):
                told = replace(known, error=fault.error, tail=fault.tail)
                self.announced = told if self.announced is known else self.announced
                self.faults[place] = told
                return
        self.faults.append(fault)

    @property
    def culprit(self) -> Fault:
        """Of the newest start: a failure of the recovery is not the failure that it was to recover from."""
        newest = max(fault.restarts for fault in self.faults if fault.blame in OWN_DEATH)
        return culprit(fault for fault in self.faults if fault.restarts == newest)

    @property
    def dead(self) -> tuple[FaultRank, ...]:
        ranks = {rank for f in self.faults if f.blame in OWN_DEATH for rank in (f.rank, *f.others)}
        return tuple(FaultRank(rank) for rank in sorted(ranks))
