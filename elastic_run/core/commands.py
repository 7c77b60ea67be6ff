"""Orders that go out, as imperatives. One with a result names the fact that brings it back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elastic_run.core.dialogue import Report, Ruler
from elastic_run.core.goals import Goal, NodeReport
from elastic_run.core.phases import Phase
from elastic_run.core.vocabulary import Assignment, Fault, NodeId, Origin, Rank


class Severity(Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class BeginRendezvous:
    """-> RendezvousFinished"""

    round: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """-> WorkerStarted | SpawnFailed, later WorkerExited"""

    rank: Rank
    local_rank: int
    incarnation: int
    restarts: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Kill:
    """Send a signal to the worker and its process group. -> nothing; its exit is the fact"""

    rank: Rank
    incarnation: int
    signum: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Signal what workers that have exited left behind. -> Swept"""

    seq: int
    signum: int


@dataclass(frozen=True, slots=True)
class Call:
    """Report to a controller. -> CallFinished"""

    seq: int
    uuid: str
    report: Report
    to: Ruler = Ruler.EMBEDDED


@dataclass(frozen=True, slots=True)
class Tell:
    """To a member of the job. -> NodeReported with its `seq`, or NodeLost"""

    node: NodeId
    goal: Goal


@dataclass(frozen=True, slots=True)
class Answer:
    """To the leader of the job."""

    report: NodeReport


@dataclass(frozen=True, slots=True)
class Renew:
    """Subscribe to ClusterD anew, so that it forgets an incident of its own. -> LinkChanged"""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """-> ProgressRead"""

    seq: int


@dataclass(frozen=True, slots=True)
class Note:
    """One line for people."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Show a failure: the culprit, its last words and what was decided (empty: the verdict follows as Exit).

    `restarts` counts those before the culprit's start and so finds its logs. `announced`: people have read already
    who it was and how it died.
    """

    fault: Fault
    restarts: int
    decision: str
    announced: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """The job entered a phase (in incident `incident`, 0 for none)."""

    incident: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    origin: Origin
    because: str


Command = (
    BeginRendezvous | Spawn | Kill | Sweep | Call | Tell | Answer | Renew | ReadProgress | Note | Explain | Mark | Exit
)
