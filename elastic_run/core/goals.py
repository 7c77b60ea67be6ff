"""What the leader of a job asks of its members, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elastic_run.core.vocabulary import Assignment, Fault, Origin, Rank


class Aim(Enum):
    """What a member is to bring about; a later one takes the place of an earlier one."""

    WAIT = "wait"
    RUN = "run"
    STOP = "stop"
    END = "end"
    """SIGKILL for some ranks: their device is broken."""
    KILL = "kill"
    CLEAN = "clean"
    """Nothing that workers left behind lives any more."""
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Goal:
    """`seq` counts the goals of one member; its answers name the newest one that they are about."""

    seq: int
    aim: Aim
    assignment: Assignment | None = None
    """RUN: a life for each of its ranks."""
    restarts: int = 0
    """RUN: of the group, before this start."""
    signum: int = 0
    """STOP: what asks workers to stop; SIGKILL follows after the grace."""
    ranks: tuple[Rank, ...] = ()
    """END: these."""
    gently: bool = False
    """CLEAN: SIGTERM and the rest of the grace come first."""
    code: int = 0
    """LEAVE: what the launcher ends with."""
    origin: Origin = Origin.LAUNCHER
    """LEAVE: whose code that is."""
    because: str = ""
    """LEAVE: why, for people."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """How things stand at a member, and the deaths since its last answer."""

    seq: int = 0
    alive: int = 0
    """Workers whose process lives or may live."""
    running: bool = False
    """Every worker runs or has succeeded."""
    succeeded: bool = False
    swept: bool = False
    stuck: str = ""
    """What cannot be killed, in words."""
    faults: tuple[Fault, ...] = ()
    quit: int = 0
    """Signal by which that launcher was told to stop; 0 for none."""


NOTHING = Goal(0, Aim.WAIT)
NO_REPORT = NodeReport()
