"""What operators ask of a server: jobs, and what happens to nodes and devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.jobs import declared, written
from elastic_run.clusterd.machine import Out
from elastic_run.clusterd.pb import operator as pb
from elastic_run.clusterd.registry import Registry
from elastic_run.core.dialogue import FaultRank, FaultType
from elastic_run.errors import ConfigError

KINDS = {"device": FaultType.OTHER, "memory": FaultType.MEMORY, "network": FaultType.NETWORK}
AILING = "ailing"


class Operator:
    def __init__(
        self, registry: Registry, took: Callable[[str, list[Out]], None], changed: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._registry, self._took, self._changed, self._clock = registry, took, changed, clock
        self._ailing: dict[str, set[int]] = {}

    def method(self, name: str) -> Callable[[Any, Any], Any]:
        answer = getattr(self, f"_{name.lower()}")

        async def call(request: Any, context: Any) -> Any:
            return answer(request)

        return call

    def _declare(self, request: Any) -> Any:
        try:
            self._registry.declare(request.id, declared(request.id, json.loads(request.terms)))
        except (ConfigError, ValueError, TypeError) as error:
            return pb.Done(error=str(error))
        self._changed(request.id)
        return pb.Done()

    def _delete(self, request: Any) -> Any:
        known = request.id in self._registry.declared
        self._took(request.id, self._registry.delete(request.id))
        self._ailing.pop(request.id, None)
        self._changed(request.id)
        return pb.Done(error="" if known else f"no job {request.id} is declared")

    def _list(self, request: Any) -> Any:
        return pb.Jobs(jobs=[self._state(job) for job in sorted(self._registry.declared)])

    def _state(self, job: str) -> Any:
        terms = json.dumps(written(self._registry.declared[job]))
        c = self._registry.controllers.get(job)
        if c is None:
            return pb.JobState(id=job, state="not registered", running=True, terms=terms)
        left = max(0.0, c.until - self._clock()) if c.until is not None else 0.0
        nodes = sorted(c.case.nodes(c.terms.ranks_per_node))
        return pb.JobState(
            id=job, state=c.state.value, incident=c.case.uuid, registered=True, subscribed=c.subscribed,
            running=c.running, paused=c.paused, faulty_nodes=nodes, seconds_left=left, terms=terms,
        )  # fmt: skip

    def _raise(self, request: Any) -> Any:
        def tell(c: Controller) -> list[Out]:
            ailing, shown = self._ailing.setdefault(request.id, set()), set(c.intake.alarms)
            if request.kind == AILING:
                (ailing.discard if request.clear else ailing.add)(request.rank)
            else:
                fault = FaultRank(request.rank, KINDS[request.kind])
                (shown.discard if request.clear else shown.add)(fault)
            return c.devices(frozenset(shown), frozenset(ailing), self._clock())

        if request.kind not in (*KINDS, AILING):
            return pb.Done(error=f"{request.kind!r} is no kind of fault; known are {', '.join((*KINDS, AILING))}")
        return self._tell(request, tell, rank=request.rank)

    def _changenode(self, request: Any) -> Any:
        change = Controller.node_gone if request.gone else Controller.node_back
        return self._tell(request, lambda c: change(c, request.node, self._clock()), node=request.node)

    def _setrunning(self, request: Any) -> Any:
        return self._tell(request, lambda c: c.runs(request.running, self._clock()))

    def _tell(self, request: Any, tell: Callable[[Controller], list[Out]], *, rank: int = 0, node: int = 0) -> Any:
        c = self._registry.controllers.get(request.id)
        if c is None:
            return pb.Done(error=f"job {request.id} is not registered")
        terms = c.terms
        if not 0 <= rank < terms.nodes * terms.ranks_per_node or not 0 <= node < terms.nodes:
            size = f"{terms.nodes} nodes with {terms.ranks_per_node} ranks each"
            return pb.Done(error=f"job {request.id} has {size}, counted from 0")
        self._took(request.id, self._registry.moved(request.id, tell(c)))
        self._changed(request.id)
        return pb.Done()
