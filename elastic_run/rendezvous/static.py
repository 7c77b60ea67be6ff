"""Where rank 0 listens: address and port of a round. Its ranks are those of one node; the core knows of others."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from elastic_run.core.events import RendezvousFinished
from elastic_run.core.vocabulary import Assignment

LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class Static:
    """`port` 0: a new one for each round. `host` None: the loopback of a single node.

    The port is kept bound, not listening, so that nobody else is given it meanwhile. Rank 0's store can still bind it:
    both sockets carry SO_REUSEADDR, and Linux refuses that only while one listens.
    """

    workers: int
    host: str | None = None
    port: int = 0
    held: socket.socket | None = field(default=None, init=False)

    def begin(self, round: int) -> RendezvousFinished:
        try:
            port = self.hold()
        except OSError as error:
            return RendezvousFinished(round, None, f"port {self.port} for rank 0's store: {error.strerror}")
        ranks = tuple(range(self.workers))
        return RendezvousFinished(round, Assignment(round, 0, ranks, self.workers, self.host or LOOPBACK, port))

    def hold(self) -> int:
        """Take the port of the next round; OSError if somebody else has it."""
        self.close()
        self.held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.held.bind((LOOPBACK if self.host is None else "", self.port))
        port: int = self.held.getsockname()[1]
        return port

    def close(self) -> None:
        """Give the port back."""
        if self.held is not None:
            self.held.close()
            self.held = None
