"""The nouns of a job: exits, faults, strategies, reports and assignments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from signal import Signals

Rank = int
NodeId = int


def signal_name(number: int) -> str:
    """Name of a signal (`9` -> `SIGKILL`); real-time signals are counted from SIGRTMIN."""
    try:
        return Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - Signals.SIGRTMIN}" if number > Signals.SIGRTMIN else f"signal {number}"


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: an exit code, or the signal that killed it."""

    code: int | None = None
    signal: int | None = None
    core: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def shell_code(self) -> int:
        """The code a shell shows for it: the code itself, or 128 + signal."""
        return 128 + self.signal if self.signal is not None else self.code or 0

    def describe(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        return f"{signal_name(self.signal)}{' (core dumped)' if self.core else ''}"


@dataclass(frozen=True, slots=True)
class WorkerError:
    """What a worker wrote into its error file (torch's format)."""

    message: str
    wall_time: float | None = None


class FaultKind(Enum):
    CRASHED = "crashed"
    KILLED = "killed"
    OUT_OF_MEMORY = "out of memory"
    NOT_STARTED = "not started"
    HUNG = "hung"
    DEVICE = "device"
    TOLD = "told"
    """By ClusterD, of no rank here."""
    NODE_LOST = "node lost"
    NODE_JOINED = "node joined"
    """Nobody failed: the group forms anew with more nodes."""
    STORE_LOST = "store lost"
    """Of no rank: the job's own part failed."""


class Blame(Enum):
    """Who is to blame for a death, most likely first; the order decides between several deaths."""

    CULPRIT = 0
    STOPPED_WHILE_FAILING = 1
    """We stopped it, but it had already printed a failure of its own."""
    VICTIM = 2
    """It failed because a peer was gone."""
    STOPPED = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """One rank's death, judged. `at` in monotonic seconds; `because` is the reason shown to people."""

    rank: Rank
    node: NodeId
    kind: FaultKind
    blame: Blame
    because: str
    at: float
    status: ExitStatus
    pid: int | None = None
    error: WorkerError | None = None
    tail: str = ""
    restarts: int = 0
    """Of the group, before the start of the life that ended."""
    host: str = ""
    """Where it was, if not on the host of whoever tells of it."""
    others: tuple[Rank, ...] = ()
    """Ranks that were lost with it."""

    @property
    def code(self) -> int:
        """What a job that ends with this fault exits with; our own signal says nothing about the failure."""
        ours = self.blame is Blame.STOPPED_WHILE_FAILING and self.status.signal is not None
        return 1 if ours else self.status.shell_code


class Origin(Enum):
    """Whose exit code the launcher ends with."""

    WORKERS = "workers"
    SIGNAL = "signal"
    LAUNCHER = "launcher"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Ranks of this node in one round, and where rank 0 listens."""

    round: int
    node_rank: NodeId
    ranks: tuple[Rank, ...]
    world_size: int
    master_addr: str
    master_port: int
    hosted: bool = False
    """The store listens there already: rank 0 need not open it."""
    nodes: int = 1
    """That take part."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where this agent runs: its node, the host's name and how many workers it holds.

    `leads`: it decides for the job; else it does what the leader's agent asks.
    """

    node: NodeId
    host: str
    local_world: int
    leads: bool = True
