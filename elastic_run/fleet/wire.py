"""What goes over the stream between a leader and a member: the core's own records, as JSON.

Both ends are of one version, which the first message says; so the form is that of the journal, and needs no other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from elastic_run.core.codec import decode, encode
from elastic_run.core.goals import Goal, NodeReport

METHOD = "/elastic_run.Fleet/Join"
MOST_BYTES = 4 << 20
"""Of one message; the end of a worker's stderr is in it."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Leader: I am of this version; prove that you know the secret, with this nonce."""

    version: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Join:
    """Member: who I am, and the proof. `place` is the group rank that it was given, if any."""

    version: str
    job: str
    host: str
    workers: int
    place: int | None
    nonce: str
    proof: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Leader: my own proof; your number; the run's name; how often you are to be heard, in seconds."""

    proof: str
    node: int
    run: str
    beat: float
    self_stop: float


@dataclass(frozen=True, slots=True)
class Refusal:
    because: str
    code: int
    """What the launcher that is refused ends with."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Member: I live."""

    seq: int


@dataclass(frozen=True, slots=True)
class Heard:
    """Leader: that beat has come."""

    seq: int


Message = Challenge | Join | Welcome | Refusal | Beat | Heard | Goal | NodeReport
KINDS = {kind.__name__: kind for kind in (Challenge, Join, Welcome, Refusal, Beat, Heard, Goal, NodeReport)}


def pack(message: Message) -> bytes:
    return json.dumps({"is": type(message).__name__, **encode(message)}, separators=(",", ":")).encode()


def unpack(data: bytes) -> Message:
    """Raises ValueError where `data` is no message."""
    try:
        said = json.loads(data)
        kind = KINDS[said.pop("is")]
        message: Message = decode(kind, said)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"no message of the fleet: {error!r}") from error
    return message
