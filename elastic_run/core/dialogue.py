"""What a job and its controller say to each other. Wire spellings live at the wire (clusterd/convert.py)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elastic_run.core.vocabulary import Rank


class Ruler(Enum):
    """Who decides an incident."""

    EMBEDDED = "embedded controller"
    CLUSTERD = "ClusterD"


class FaultType(Enum):
    """What a fault means for the way back: the first two may be cured by doing the step again."""

    MEMORY = "on-chip memory"
    NETWORK = "network"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FaultRank:
    rank: Rank
    type: FaultType = FaultType.OTHER


class Strategy(Enum):
    """What can be done about an incident."""

    RETRY = "retry"
    RECOVER_IN_PLACE = "recover in place"
    RECOVER = "recover"
    SCALE_IN = "scale in"
    SCALE_OUT = "scale out"
    DUMP = "dump"
    EXIT = "exit"
    CONTINUE = "continue"
    MIGRATE = "migrate"


@dataclass(frozen=True, slots=True)
class Offer:
    strategies: tuple[Strategy, ...]
    because: str


class SignalKind(Enum):
    """What the controller tells the job."""

    KEEP_ALIVE = "keep alive"
    STOP_TRAIN = "stop train"
    GLOBAL_FAULT = "global fault"
    CHANGE_STRATEGY = "change strategy"
    SAVE_AND_EXIT = "save and exit"
    FAULT_NODES_EXIT = "fault nodes exit"
    PRE_EXIT = "processes of a bad node exit"
    PAUSE_START = "pause start"
    CONTINUE_START = "continue start"
    HOT_SWITCH = "hot switch"
    KILL_MASTER = "kill master"


class Action(Enum):
    """What a signal asks for, in the order in which it is to be done."""

    STOP_TRAIN = "stop training"
    PAUSE_TRAIN = "pause training"
    ON_GLOBAL_RANK = "take note of the faulty ranks"
    CHANGE_STRATEGY = "take the strategy"
    SAVE_AND_EXIT = "save and exit"
    FAULT_NODES_EXIT = "faulty nodes exit"
    FAULT_NODES_RESTART = "faulty nodes restart their processes"
    PRE_EXIT = "end the processes of these ranks"
    PAUSE_START = "start no process"
    CONTINUE_START = "start processes again"
    HOT_SWITCH = "prepare the switch to a new node"
    NEW_POD_RUNNING = "the new node is there"
    STOP_SWITCH = "no new node comes"


@dataclass(frozen=True, slots=True)
class FaultReported:
    """Report: these ranks are dead."""

    ranks: tuple[FaultRank, ...]


@dataclass(frozen=True, slots=True)
class StopCompleted:
    """Report: nobody trains any more."""

    code: int = 0


@dataclass(frozen=True, slots=True)
class StrategiesOffered:
    """Report: what the job can honour now."""

    strategies: tuple[Strategy, ...]


@dataclass(frozen=True, slots=True)
class StatusReported:
    """Report: how the chosen strategy went; `code` 0 is success. No strategy: a word that the controller cannot know.

    `isolate`: ranks that scaling in leaves out, with code 201.
    """

    code: int
    strategy: Strategy | None
    isolate: tuple[Rank, ...] = ()


Report = FaultReported | StopCompleted | StrategiesOffered | StatusReported
