"""Ranks known without asking anybody: one node holds them all. Each round gets a port of its own for its store."""

from __future__ import annotations

import socket

from elastic_run.core.events import RendezvousFinished
from elastic_run.core.vocabulary import Assignment

LOOPBACK = "127.0.0.1"


class SingleNode:
    """Hands out ranks 0 … n-1. The port is kept bound, not listening, so that nobody else is given it meanwhile.

    Rank 0's store can still bind it: both sockets carry SO_REUSEADDR, and Linux refuses that only while one listens.
    """

    def __init__(self, workers: int, port: int = 0) -> None:
        self._workers = workers
        self._port = port
        self._held: socket.socket | None = None

    def begin(self, round: int) -> RendezvousFinished:
        self.close()
        self._held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((LOOPBACK, self._port))
        except OSError as error:
            return RendezvousFinished(round, None, f"port {self._port} on {LOOPBACK}: {error.strerror}")
        port: int = self._held.getsockname()[1]
        ranks = tuple(range(self._workers))
        return RendezvousFinished(round, Assignment(round, 0, ranks, self._workers, LOOPBACK, port))

    def close(self) -> None:
        """Give the port back."""
        if self._held is not None:
            self._held.close()
            self._held = None
