"""The workers' store of each round, on one node: the launcher listens, and a fork of the template serves."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from typing import Protocol

from elastic_run.core.events import Event, RendezvousFinished, StoreLost
from elastic_run.rendezvous.static import LOOPBACK
from elastic_run.supervisor import orphans
from elastic_run.supervisor.loop import Sources
from elastic_run.supervisor.template import Template

BACKLOG = 4096


class Rendezvous(Protocol):
    def begin(self, round: int) -> RendezvousFinished | None: ...


@dataclass(slots=True)
class Stored:
    """A rendezvous that also opens a new store: an old one holds the addresses of dead workers.

    The port is known before anything is forked, and who connects early waits in the backlog: a store that is opened
    only 20 ms after its first client makes that one wait half a second (measured).
    """

    rendezvous: Rendezvous
    template: Template
    sources: Sources
    serving: set[int]
    """Pids that a search for leftovers spares; the host's is put there."""
    life: socket.socket | None = field(default=None, init=False)
    host: int | None = field(default=None, init=False)
    """Pid of the present host, once it has told it."""

    def begin(self, round: int) -> RendezvousFinished | None:
        self.close()
        met = self.rendezvous.begin(round)
        if met is None or met.assignment is None:
            return met
        listening = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        port = listening.getsockname()[1]
        life, its = socket.socketpair()
        hosted = self.template.host_store(listening.fileno(), its.fileno(), LOOPBACK, port)
        listening.close()
        its.close()
        if not hosted:
            life.close()
            return met
        self.life = life
        self.sources.listen(life, lambda: self._read(life, round))
        return replace(met, assignment=replace(met.assignment, master_addr=LOOPBACK, master_port=port, hosted=True))

    def _read(self, life: socket.socket, round: int) -> list[Event]:
        try:
            said = life.recv(32)
        except ConnectionResetError:
            said = b""
        if said:
            self.host = int(said)
            self.serving.add(self.host)
            return []
        self._forget()
        return [StoreLost(round)]

    def _forget(self) -> None:
        if self.life is not None:
            self.sources.forget(self.life)
            self.life.close()
            self.life = None
        if self.host is not None:
            self.serving.discard(self.host)
            self.host = None

    def close(self) -> None:
        """End the present host: nobody uses its store any more."""
        host = self.host
        self._forget()
        if host is not None:
            orphans.end(host)
