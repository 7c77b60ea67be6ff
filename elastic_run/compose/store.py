"""The workers' store of each round, on one node: the launcher listens, and a fork of the template serves."""

from __future__ import annotations

import socket
from collections.abc import Callable
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
    start_cold: Callable[[int, int, str, int], int]
    """Exec a host of its own for (listening, life, address, port); -> its pid."""
    address: str | None = None
    """Where other nodes reach it; None: there are none."""
    never: bool = field(default=False, init=False)
    cold: bool = field(default=False, init=False)
    """The present host was exec'ed."""
    listening: socket.socket | None = field(default=None, init=False)
    life: socket.socket | None = field(default=None, init=False)
    host: int | None = field(default=None, init=False)
    """Pid of the present host, once it is known."""
    serves: bool = field(default=False, init=False)

    def begin(self, round: int) -> RendezvousFinished | None:
        self.close()
        met = self.rendezvous.begin(round)
        if met is None or met.assignment is None:
            return met
        if self.template.child is None:
            self.never = True  # ranks see whether there is a store: in all rounds or in none
        if self.never:
            return met
        self.listening = socket.create_server((LOOPBACK if self.address is None else "", 0), backlog=BACKLOG)
        port = self.listening.getsockname()[1]
        self._host(round, port, lambda listening, life: self.template.host_store(listening, life, LOOPBACK, port))
        address = self.address or LOOPBACK
        return replace(met, assignment=replace(met.assignment, master_addr=address, master_port=port, hosted=True))

    def _host(self, round: int, port: int, start: Callable[[int, int], object]) -> None:
        """Let somebody serve on the listening socket, which stays ours until he says that he does."""
        assert self.listening is not None
        life, its = socket.socketpair()
        start(self.listening.fileno(), its.fileno())
        its.close()
        self.life = life
        self.sources.listen(life, lambda: self._read(life, round, port))

    def _read(self, life: socket.socket, round: int, port: int) -> list[Event]:
        try:
            said = life.recv(32)
        except ConnectionResetError:
            said = b""
        if said:
            self.host, self.serves = int(said), True
            self.serving.add(self.host)
            self._let_go_of_socket()
            return []
        began, by_itself = self.serves, self.cold
        self._forget(keep_socket=not began)
        if began or by_itself:
            self._let_go_of_socket()
            return [StoreLost(round)]
        self.cold = True  # the template was lost before it served; whoever connects waits in the backlog
        self._host(round, port, lambda listening, life: self._exec(listening, life, port))
        return []

    def _exec(self, listening: int, life: int, port: int) -> None:
        self.host = self.start_cold(listening, life, LOOPBACK, port)
        self.serving.add(self.host)

    def _let_go_of_socket(self) -> None:
        if self.listening is not None:
            self.listening.close()
            self.listening = None

    def _forget(self, *, keep_socket: bool = False) -> None:
        if not keep_socket:
            self._let_go_of_socket()
            self.cold = False
        if self.life is not None:
            self.sources.forget(self.life)
            self.life.close()
            self.life = None
        if self.host is not None:
            self.serving.discard(self.host)
        self.host, self.serves = None, False

    def close(self) -> None:
        """End the present host: nobody uses its store any more."""
        host = self.host
        self._forget()
        if host is not None:
            orphans.end(host)
