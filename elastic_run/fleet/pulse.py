"""PURE: who has been silent for how long, at both ends of a stream, and how long silence may last."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SUSPECT_AFTER = 3
"""Beats that do not come."""
DRIFT = 1.1
"""Clocks of two hosts run apart, and a loaded host wakes late."""
ROUNDING = 1e-6
KILL_TIME = 1.0
"""From SIGKILL to the end of a process."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds. A member that is not heard stops its own workers before the leader counts it as lost.

    Raises:
        ValueError: it would not have done so for sure.
    """

    beat: float
    self_stop: float
    lost_after: float

    def __post_init__(self) -> None:
        if self.self_stop < 2 * self.beat:
            raise ValueError(f"a member is to stop its workers after {self.self_stop:.3g} s, less than two beats")
        least = least_lost_after(self.beat, self.self_stop)
        if self.lost_after < least:
            raise ValueError(f"a silent node may be counted as lost after {least:.3g} s, not after {self.lost_after:g}")


def least_lost_after(beat: float, self_stop: float) -> float:
    return (self_stop + KILL_TIME + beat) * DRIFT


def terms(nodes: int, lost_after: float | None = None) -> Terms:
    """For a job of that many nodes: a beat each second up to 200 of them, then fewer.

    Raises:
        ValueError: `lost_after` is too short for a member to have stopped by itself.
    """
    beat = max(1.0, nodes / 200)
    if lost_after is None:
        self_stop = max(6.0, 3 * beat)
        return Terms(beat, self_stop, max(10.0, least_lost_after(beat, self_stop)))
    beat = min(beat, lost_after / 10)
    return Terms(beat, lost_after / DRIFT - KILL_TIME - beat - ROUNDING, lost_after)


@dataclass(slots=True)
class Pulse:
    """The leader's end: when each node was heard last."""

    terms: Terms
    heard: dict[int, float] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)

    def hear(self, node: int, at: float) -> bool:
        """-> whether it was a suspect."""
        self.heard[node] = at
        was = node in self.suspects
        self.suspects.discard(node)
        return was

    def forget(self, node: int) -> None:
        self.heard.pop(node, None)
        self.suspects.discard(node)

    def look(self, at: float) -> tuple[list[int], list[int]]:
        """-> who has become a suspect, and who is lost."""
        suspects = [
            node
            for node, since in self.heard.items()
            if at - since >= SUSPECT_AFTER * self.terms.beat and node not in self.suspects
        ]
        self.suspects |= set(suspects)
        return suspects, [node for node, since in self.heard.items() if at - since >= self.terms.lost_after]


@dataclass(slots=True)
class Lease:
    """The member's end: until when its workers may live. It counts from the sending of what was answered."""

    self_stop: float
    ends_at: float
    seq: int = 0
    sent: deque[tuple[int, float]] = field(default_factory=deque)
    """Beats that are not answered yet."""

    def send(self, at: float) -> int:
        self.seq += 1
        self.sent.append((self.seq, at))
        return self.seq

    def answered(self, seq: int) -> None:
        while self.sent and self.sent[0][0] <= seq:
            _, at = self.sent.popleft()
            self.ends_at = max(self.ends_at, at + self.self_stop)
