"""The way to both controllers, as the shell knows one: ClusterD where an order says so, the embedded one otherwise."""

from __future__ import annotations

from elastic_run.clusterd.client import Client
from elastic_run.clusterd.loopback import Loopback
from elastic_run.core.commands import Call
from elastic_run.core.dialogue import Ruler


class Routes:
    def __init__(self, embedded: Loopback, clusterd: Client) -> None:
        self._embedded, self._clusterd = embedded, clusterd
        self.tick, self.deadline = embedded.tick, embedded.deadline

    def send(self, call: Call) -> None:
        (self._clusterd if call.to is Ruler.CLUSTERD else self._embedded).send(call)

    def renew(self) -> None:
        self._clusterd.renew()
