"""Server: gRPC around Registry, in one thread. It decodes, hands on, and writes what controllers say."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from elastic_run.clusterd import convert
from elastic_run.clusterd.case import LinksToSwitch, RanksToTest
from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.machine import Answered, Ended, OperatorTold, Out
from elastic_run.clusterd.operations import BAD_PARAMETERS
from elastic_run.clusterd.operator import Operator
from elastic_run.clusterd.pb import operator as op
from elastic_run.clusterd.pb import recover as pb
from elastic_run.clusterd.registry import UNREGISTERED, Registry
from elastic_run.clusterd.store import Store
from elastic_run.core.events import SignalReceived

OPTIONS = (
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", 8 << 20),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_500),  # clients of ClusterD ping every 3 s
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)
QUEUE = 100
"""Signals that a subscriber may be behind; then its stream ends, and it may begin again."""
HEALTH_FACTOR = 10
"""Health checks have a limit of their own, so many times that of all other calls."""
WORDS = {
    "ReportStopComplete": "receive ReportStopComplete",
    "ReportRecoverStrategy": "receive ReportRecoverStrategy",
    "ReportRecoverStatus": "receive ReportRecoverStatus",
}


@dataclass(slots=True)
class Rate:
    """A bucket of tokens: `limit` calls a second, as many at once."""

    limit: float
    tokens: float = 0.0
    at: float = 0.0

    def allows(self, at: float) -> bool:
        self.tokens = min(self.limit, self.tokens + (at - self.at) * self.limit)
        self.at = at
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


@dataclass(slots=True)
class Streams:
    """What waits to be written to one job's streams; None ends a stream."""

    signals: asyncio.Queue[Any] | None = None
    links: list[asyncio.Queue[Any]] = field(default_factory=list)
    tests: list[asyncio.Queue[Any]] = field(default_factory=list)
    operators: list[asyncio.Queue[Any]] = field(default_factory=list)


class Server:
    """`clock` gives seconds that never go back."""

    def __init__(
        self, registry: Registry, store: Store | None = None, limit: float = 1000.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.registry, self._store, self._clock = registry, store, clock
        self._streams: dict[str, Streams] = {}
        self._answers: dict[int, asyncio.Future[tuple[int, str]]] = {}
        self._tickets = 0
        self._rate, self._health = Rate(limit), Rate(limit * HEALTH_FACTOR)
        self._timer: asyncio.TimerHandle | None = None
        self._armed = float("inf")
        self._operator = Operator(registry, self.took, self.changed, clock)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        recover = {name: self._handler(pb.METHODS[name], getattr(self, f"_{_snake(name)}")) for name in pb.METHODS}
        operate = {name: self._handler(op.METHODS[name], self._operator.method(name)) for name in op.METHODS}
        return [
            grpc.method_handlers_generic_handler("Recover", recover),
            grpc.method_handlers_generic_handler("elastic_run.operator.Operator", operate),
        ]

    def changed(self, job: str) -> None:
        """What survives a restart may have changed."""
        if self._store is not None:
            self._store.save(self.registry, job, self._clock(), time.time())

    # -- what controllers say

    def took(self, job: str, told: list[Out]) -> None:
        """Write it where it belongs, and look again when it is time."""
        streams = self._streams.setdefault(job, Streams()) if told else Streams()
        for out in told:
            match out:
                case SignalReceived():
                    self._put(job, streams.signals, convert.signal_message(job, out))
                case Answered():
                    answer = self._answers.pop(out.ticket, None)
                    if answer is not None and not answer.done():
                        answer.set_result((out.code, out.info))
                case Ended():
                    self._end(streams)
                    self.changed(job)
                case LinksToSwitch():
                    ranks = [str(rank) for rank, _ in out.ranks]
                    switch = pb.SwitchRankList(rankID=ranks, op=[to for _, to in out.ranks], jobId=job)
                    self._put_one(streams.links, switch)
                case RanksToTest():
                    test = pb.StressTestRankParams(jobId=job)
                    for rank, ops in out.tests:
                        test.stressParam[str(rank)].ops.extend(ops)
                    self._put_one(streams.tests, test)
                case OperatorTold():
                    for queue in streams.operators:
                        queue.put_nowait(out.text)
        if job not in self.registry.controllers:
            self._streams.pop(job, None)
        self._arm()

    def _put(self, job: str, queue: asyncio.Queue[Any] | None, message: Any) -> None:
        if queue is None:
            return
        if queue.qsize() >= QUEUE:  # it does not read
            self._gone(job, queue)
            queue.put_nowait(None)
        else:
            queue.put_nowait(message)

    def _put_one(self, queues: list[asyncio.Queue[Any]], message: Any) -> None:
        if queues:
            queues[-1].put_nowait(message)

    def _end(self, streams: Streams) -> None:
        if streams.signals is not None:
            streams.signals.put_nowait(None)
            streams.signals = None
        for queue in (*streams.links, *streams.tests):
            queue.put_nowait(None)

    def _gone(self, job: str, queue: asyncio.Queue[Any]) -> None:
        """A subscriber left; if it was the present one, its incident is forgotten."""
        streams, controller = self._streams.get(job), self.registry.controllers.get(job)
        if streams is not None and streams.signals is queue:
            streams.signals = None
            if controller is not None:
                self.took(job, self.registry.moved(job, controller.unsubscribe(self._clock())))

    def _arm(self) -> None:
        due = self.registry.deadline()
        if due is not None and due < self._armed:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = due
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - self._clock()), self._tick)

    def _tick(self) -> None:
        self._armed, self._timer = float("inf"), None
        for job, told in self.registry.tick(self._clock()):
            self.took(job, told)
        self._arm()

    # -- calls of a job

    async def _init(self, request: Any, context: Any) -> Any:
        known = request.jobId in self.registry.initialised
        code, info = self.registry.init(request.jobId)
        if code == 0 and not known:
            self.changed(request.jobId)
        return pb.Status(code=code, info=info)

    async def _register(self, request: Any, context: Any) -> Any:
        known = request.jobId in self.registry.controllers
        code, info = self.registry.register(request.jobId, self._clock())
        if code == 0 and not known:
            self.changed(request.jobId)
        return pb.Status(code=code, info=info)

    async def _health_check(self, request: Any, context: Any) -> Any:
        return pb.Status(info=f"jobId={request.jobId}, receive HeathCheck")

    async def _subscribe_process_manage_signal(self, request: Any, context: Any) -> AsyncIterator[Any]:
        job = request.jobId
        streams = self._streams.get(job) or Streams()
        old = streams.signals
        told = self.registry.subscribe(job, self._clock())
        if told is None:
            await context.abort(grpc.StatusCode.UNKNOWN, f"jobId={job} not registed")
        assert told is not None
        if old is not None:
            old.put_nowait(None)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._streams.setdefault(job, streams).signals = queue
        self.took(job, told)
        try:
            async for message in _until_none(queue):
                yield message
        finally:
            self._gone(job, queue)

    async def _report_process_fault(self, request: Any, context: Any) -> Any:
        return await self._report("ReportProcessFault", request)

    async def _report_stop_complete(self, request: Any, context: Any) -> Any:
        return await self._report("ReportStopComplete", request)

    async def _report_recover_strategy(self, request: Any, context: Any) -> Any:
        return await self._report("ReportRecoverStrategy", request)

    async def _report_recover_status(self, request: Any, context: Any) -> Any:
        return await self._report("ReportRecoverStatus", request)

    async def _report(self, name: str, request: Any) -> Any:
        job, controller = request.jobId, self.registry.controllers.get(request.jobId)
        uuid = controller.case.uuid if controller is not None else ""
        self._tickets += 1
        ticket = self._tickets
        answer = self._answers[ticket] = asyncio.get_running_loop().create_future()
        self.took(job, self.registry.report(job, convert.report_of(request), self._clock(), ticket))
        try:
            code, info = await answer
        finally:
            self._answers.pop(ticket, None)
        said = f"jobId={job}, uuid={uuid}, {WORDS[name]}" if name in WORDS else "receive ReportProcessFault"
        return pb.Status(code=code, info=info or said)

    # -- links and stress tests

    async def _switch_nic_track(self, request: Any, context: Any) -> Any:
        return await self._operate(request.jobID, lambda c: c.switch_links(links(c, request), self._clock()))

    async def _stress_test(self, request: Any, context: Any) -> Any:
        return await self._operate(request.jobID, lambda c: c.stress_test(tests(c, request), self._clock()))

    async def _operate(self, job: str, ask: Callable[[Controller], tuple[int, list[Out]]]) -> Any:
        controller = self.registry.controllers.get(job)
        if controller is None:
            return pb.Status(code=BAD_PARAMETERS, info=f"jobId={job} is not registered")
        code, told = ask(controller)
        self.took(job, self.registry.moved(job, told))
        return pb.Status(code=code, info="the operation was distributed" if code == 0 else "it was refused")

    async def _subscribe_notify_switch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for message in self._follow(request.jobId, "links", context):
            yield message

    async def _subscribe_notify_exec_stress_test(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for message in self._follow(request.jobId, "tests", context):
            yield message

    async def _subscribe_switch_nic_signal(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for text in self._follow(request.jobID, "operators", context):
            yield pb.SwitchNicResponse(jobID=request.jobID, msg=text)
            return

    async def _subscribe_stress_test_response(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for text in self._follow(request.jobID, "operators", context):
            yield pb.StressTestResponse(jobID=request.jobID, msg=text)
            return

    async def _follow(self, job: str, which: str, context: Any) -> AsyncIterator[Any]:
        if job not in self.registry.controllers:
            await context.abort(grpc.StatusCode.UNKNOWN, f"jobId={job} not registed")
        queue: asyncio.Queue[Any] = asyncio.Queue()
        queues: list[asyncio.Queue[Any]] = getattr(self._streams.setdefault(job, Streams()), which)
        queues.append(queue)
        try:
            async for item in _until_none(queue):
                yield item
        finally:
            queues.remove(queue)

    async def _reply_switch_nic_result(self, request: Any, context: Any) -> Any:
        return self._replied(request.jobId, lambda c: c.links_switched(request.result, self._clock()))

    async def _reply_stress_test_result(self, request: Any, context: Any) -> Any:
        results = {convert.number(rank): told for rank, told in request.stressResult.items()}
        codes = {r: {op.code for op in told.rankResult.values()} for r, told in results.items() if r is not None}
        return self._replied(request.jobId, lambda c: c.stress_tested(codes, self._clock()))

    def _replied(self, job: str, tell: Callable[[Controller], list[Out]]) -> Any:
        controller = self.registry.controllers.get(job)
        if controller is None:
            return pb.Status(code=UNREGISTERED, info=f"jobId={job} not registed")
        self.took(job, self.registry.moved(job, tell(controller)))
        return pb.Status(info="reply success")

    # -- every call

    def _handler(self, method: Any, answer: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
        read, write = method.request.FromString, method.answer.SerializeToString
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(answer, read, write)
        rate = self._health if method.path.endswith("/HealthCheck") else self._rate

        async def limited(request: Any, context: Any) -> Any:
            if not rate.allows(self._clock()):
                await context.abort(grpc.StatusCode.UNKNOWN, f"qps exceeded, method={method.path}")
            result: Awaitable[Any] = answer(request, context)
            return await result

        return grpc.unary_unary_rpc_method_handler(limited, read, write)


async def _until_none(queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
    while (item := await queue.get()) is not None:
        yield item


def links(controller: Controller, request: Any) -> tuple[tuple[int, bool], ...]:
    """Ranks and where their links go; empty if the request makes no sense. Nodes and devices are numbers."""
    found: list[tuple[int, bool]] = []
    for node, devices in request.nicOps.items():
        ranks = [_rank(controller, node, device) for device in devices.dev]
        if len(devices.dev) != len(devices.op) or None in ranks:
            return ()
        found += [(rank, to) for rank, to in zip(ranks, devices.op, strict=True) if rank is not None]
    return tuple(found)


def tests(controller: Controller, request: Any) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Each rank's tests, 0 or 1, none twice; empty if the request makes no sense."""
    terms = controller.terms
    asked = {convert.number(node): tuple(told.ops) for node, told in request.stressParam.items()}
    if request.allNodesOps:
        asked = dict.fromkeys(range(terms.nodes), tuple(request.allNodesOps))
    good = all(n is not None and n < terms.nodes and ops and set(ops) <= {0, 1} and len(set(ops)) == len(ops)
               for n, ops in asked.items())  # fmt: skip
    per = terms.ranks_per_node
    return tuple((n * per + i, ops) for n, ops in asked.items() if n is not None for i in range(per)) if good else ()


def _rank(controller: Controller, node: str, device: str) -> int | None:
    n, d, terms = convert.number(node), convert.number(device), controller.terms
    known = n is not None and d is not None and n < terms.nodes and d < terms.ranks_per_node
    return n * terms.ranks_per_node + d if known and n is not None and d is not None else None


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


async def serve(
    registry: Registry, address: str, credentials: grpc.ServerCredentials | None, store: Store | None, limit: float,
    ready: Callable[[int], None], stop: asyncio.Event,
) -> None:  # fmt: skip
    """Until `stop` is set. `address` is HOST:PORT, port 0 for a free one, which `ready` is told.

    Raises:
        OSError: the address cannot be taken.
    """
    server, ours = grpc.aio.server(options=OPTIONS), Server(registry, store, limit)
    server.add_generic_rpc_handlers(tuple(ours.handlers()))
    try:
        add = server.add_insecure_port if credentials is None else server.add_secure_port
        port = add(address) if credentials is None else add(address, credentials)  # type: ignore[call-arg]
    except RuntimeError as error:
        raise OSError(f"{address} cannot be listened on; is the port taken?") from error
    await server.start()
    ours._arm()
    ready(port)
    await stop.wait()
    await server.stop(grace=1.0)


def fresh_name() -> str:
    """For the ids of incidents: unlike those of an earlier life of this server."""
    return f"{time.time_ns():X}-{secrets.token_hex(8)}"
