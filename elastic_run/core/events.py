"""Facts that come in, as past participles. The loop stamps each with the time it was received."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_run.core.dialogue import Action, FaultRank, Ruler, SignalKind, Strategy
from elastic_run.core.goals import Goal, NodeReport
from elastic_run.core.vocabulary import Assignment, ExitStatus, NodeId, Rank, WorkerError


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """`oom_kills` is the cgroup's count of OOM kills at that moment; None where the kernel does not say."""

    rank: Rank
    incarnation: int
    pid: int
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """`tail` is the end of the worker's stderr, or of all output where both were one stream; empty if not captured."""

    rank: Rank
    incarnation: int
    status: ExitStatus
    error: WorkerError | None = None
    tail: str = ""
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerHung:
    """A process lives and does not get on; `because` says how that was seen, `signum` is what may end it."""

    pid: int
    because: str
    signum: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    rank: Rank
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class Swept:
    """A search for leftover processes was done; `left` is how many were still alive then."""

    seq: int
    left: int


@dataclass(frozen=True, slots=True)
class RendezvousFinished:
    """Either an assignment or, in `error`, why there is none."""

    round: int
    assignment: Assignment | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class StoreLost:
    """The process that hosts the workers' store of this round has ended."""

    round: int


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """The controller told something about the incident `uuid`. `timeout` in seconds, 0 for none."""

    uuid: str
    kind: SignalKind
    ranks: tuple[FaultRank, ...] = ()
    strategy: Strategy | None = None
    actions: tuple[Action, ...] = ()
    nodes: tuple[NodeId, ...] = ()
    timeout: float = 0.0
    in_place: bool = False
    """RECOVER: the listed nodes start their processes again, none is replaced."""
    last: bool = False
    """EXIT as the end of a recovery: not a question, no status is awaited."""
    source: Ruler = Ruler.EMBEDDED


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """ClusterD listens to us and we to it from now on (`up`), or no more; it has forgotten what was before.

    `forgo`: it never will. `because` is shown to people.
    """

    up: bool
    because: str
    forgo: bool = False


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The report sent as `seq` was answered with `code` (0 is fine)."""

    seq: int
    code: int
    info: str = ""


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """Another launcher wants to take part. `node` is given once; `place` is the group rank that it asks for."""

    node: NodeId
    host: str
    workers: int
    place: int | None = None


@dataclass(frozen=True, slots=True)
class NodeReported:
    node: NodeId
    report: NodeReport


@dataclass(frozen=True, slots=True)
class NodeLost:
    """It takes part no more; what it still says is not heard."""

    node: NodeId
    because: str


@dataclass(frozen=True, slots=True)
class LeaderTold:
    """The leader asks this node to bring something about."""

    goal: Goal


@dataclass(frozen=True, slots=True)
class LeaderLost:
    """This node belongs to the job no more, or never did; `code` is what its launcher ends with."""

    because: str
    code: int


@dataclass(frozen=True, slots=True)
class ProgressRead:
    """State of the progress file; it changes when training advances. None: there is no such file yet."""

    seq: int
    token: str | None


@dataclass(frozen=True, slots=True)
class QuitRequested:
    signum: int


@dataclass(frozen=True, slots=True)
class LauncherFrozen:
    """The guard found this launcher stopped and ended the job; told when the launcher wakes up."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened until the deadline."""


Event = (
    WorkerStarted
    | WorkerExited
    | WorkerHung
    | SpawnFailed
    | Swept
    | RendezvousFinished
    | StoreLost
    | SignalReceived
    | LinkChanged
    | CallFinished
    | NodeJoined
    | NodeReported
    | NodeLost
    | LeaderTold
    | LeaderLost
    | ProgressRead
    | QuitRequested
    | LauncherFrozen
    | Tick
)
