"""Leader's end of the fleet: accepts members, turns what they say into facts, and writes to each what it is told."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from elastic_run import __version__
from elastic_run.core.events import Event, NodeJoined, NodeLost, NodeReported
from elastic_run.core.goals import Aim, Goal, NodeReport
from elastic_run.core.vocabulary import NodeId
from elastic_run.errors import ExitCode
from elastic_run.fleet.pulse import Pulse, Terms
from elastic_run.fleet.secret import Secret, nonce
from elastic_run.fleet.wire import (
    METHOD,
    MOST_BYTES,
    Beat,
    Challenge,
    Heard,
    Join,
    Message,
    Refusal,
    Welcome,
    pack,
    unpack,
)

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what matters is told by us, once
import grpc
import grpc.aio

JOIN_WITHIN = 5.0
"""Seconds for a stranger to prove that it belongs to the job."""
MOST_UNSENT = 1000
"""Messages for a member that does not read; it is silent too, then, and will be lost."""
OPTIONS = (
    ("grpc.so_reuseport", 0),  # or a second leader on this port would get half of the members
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


@dataclass(frozen=True, slots=True)
class Job:
    """What a member must agree with."""

    id: str
    secret: Secret
    most: int
    """Members at one time."""


@dataclass(slots=True)
class _Member:
    node: NodeId
    host: str
    unsent: asyncio.Queue[Message | None]
    stream: asyncio.Task[None] | None
    lost: str = ""


@dataclass(slots=True)
class Leader:
    """`post` takes facts from any thread, `say` lines for people. Everything but the methods is the thread's own."""

    job: Job
    terms: Terms
    post: Callable[[Event], None]
    say: Callable[[str], None]
    credentials: grpc.ServerCredentials | None = None
    refused: int = 0
    """Who was turned away since the start."""
    _members: dict[NodeId, _Member] = field(default_factory=dict)
    _nodes: int = 0
    _pulse: Pulse = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _thread: threading.Thread | None = None
    _bound: threading.Event = field(default_factory=threading.Event)
    _closing: asyncio.Event = field(init=False)
    _run: str = ""
    _open: asyncio.Event = field(init=False)
    port: int = 0
    """Where it listens; 0 if the address could not be had."""

    def start(self, addresses: list[str]) -> bool:
        """Listen on each HOST:PORT; -> False if one of them is taken or not of this host."""
        self._pulse = Pulse(self.terms)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(addresses)), name="fleet", daemon=True)
        self._thread.start()
        self._bound.wait()
        return self.port != 0

    def accept(self, run: str) -> None:
        """Let members in from now on; `run` names the run directory."""
        self._run = run
        self._loop.call_soon_threadsafe(self._open.set)

    def tell(self, node: NodeId, goal: Goal) -> None:
        self._loop.call_soon_threadsafe(self._queue, node, goal)

    def answer(self, report: NodeReport) -> None:
        raise AssertionError("a leader answers to nobody")

    def close(self, seconds: float) -> None:
        """Send what is unsent, within that time, and end all streams."""
        if self._thread is not None and self.port:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(seconds)

    # -- in the thread

    async def _serve(self, addresses: list[str]) -> None:
        self._loop, self._closing, self._open = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=self.job.most + 100)
        handler: Any = grpc.stream_stream_rpc_method_handler(self._member)
        service, _, method = METHOD.strip("/").rpartition("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        try:
            for address in addresses:
                if self.credentials is None:
                    port = server.add_insecure_port(address)
                else:
                    port = server.add_secure_port(address, self.credentials)
            await server.start()
            self.port = port
        except RuntimeError:
            return  # taken
        finally:
            self._bound.set()
        watch = asyncio.create_task(self._watch())
        await self._closing.wait()
        watch.cancel()
        for member in self._members.values():
            member.unsent.put_nowait(None)
        await server.stop(JOIN_WITHIN)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.terms.beat / 2)
            suspects, lost = self._pulse.look(time.monotonic())
            for node in suspects:
                silent = f"the node on {self._members[node].host} has been silent for {3 * self.terms.beat:g} s"
                self.say(f"{silent}; it counts as lost after {self.terms.lost_after:g} s")
            for node in lost:
                self._give_up(node, f"silent for {self.terms.lost_after:g} s")

    async def _member(self, _: Any, context: Any) -> None:
        """One stream, from the challenge to its end."""
        challenge = nonce()
        await context.write(pack(Challenge(__version__, challenge)))
        try:
            join = unpack(await asyncio.wait_for(_read(context), JOIN_WITHIN))
            if not isinstance(join, Join):
                raise ValueError("no Join")
        except (ValueError, TypeError, asyncio.TimeoutError):
            self.refused += 1
            return
        refusal = self._refusal(join, challenge)
        if refusal is not None:
            self.refused += 1
            if self.refused == 1 or self.refused % 100 == 0:
                self.say(f"refused a launcher on {join.host[:80]!r}: {refusal.because} ({self.refused} so far)")
            await context.write(pack(refusal))
            return
        await self._take_in(join, context)

    def _refusal(self, join: Join, challenge: str) -> Refusal | None:
        if join.version != __version__:
            because = f"the leader is elastic-run {__version__}, this is {join.version}; install one version everywhere"
            return Refusal(because, ExitCode.USAGE)
        if join.job != self.job.id:
            return Refusal(f"another job leads there: --rdzv-id is not {join.job!r}", ExitCode.USAGE)
        if not self.job.secret.fits(join.proof, "member", challenge, join.nonce, join.job, join.host):
            return Refusal("it does not know the job's secret; give ELASTIC_RUN_TOKEN or --token-file", ExitCode.USAGE)
        if len(self._members) >= self.job.most:
            return Refusal(f"{len(self._members)} launchers take part already", ExitCode.UNAVAILABLE)
        return None

    async def _take_in(self, join: Join, context: Any) -> None:
        await self._open.wait()
        self._nodes += 1
        node = self._nodes
        member = _Member(node, join.host, asyncio.Queue(MOST_UNSENT), asyncio.current_task())
        self._members[node] = member
        self._pulse.hear(node, time.monotonic())
        proof = self.job.secret.proof("leader", join.nonce, node)
        reading: asyncio.Task[None] | None = None
        try:
            await context.write(pack(Welcome(proof, node, self._run, self.terms.beat, self.terms.self_stop)))
            self.post(NodeJoined(node, join.host, join.workers, join.place))
            reading = asyncio.create_task(self._hear(member, context))
            while (message := await member.unsent.get()) is not None:
                await context.write(pack(message))
        finally:
            if reading is not None:
                reading.cancel()
            self._give_up(node, "its launcher has ended")

    async def _hear(self, member: _Member, context: Any) -> None:
        try:
            while (data := await _read(context)) is not None:
                message = unpack(data)
                if self._pulse.hear(member.node, time.monotonic()):
                    self.say(f"the node on {member.host} is heard again")
                match message:
                    case Beat():
                        member.unsent.put_nowait(Heard(message.seq))
                    case NodeReport():
                        self.post(NodeReported(member.node, message))
                    case _:
                        raise ValueError(f"a member does not say {type(message).__name__}")
        except (ValueError, asyncio.QueueFull) as error:
            self._give_up(member.node, f"its launcher does not keep to the protocol ({error})")
        else:
            self._give_up(member.node, "its launcher has ended")

    def _give_up(self, node: NodeId, because: str) -> None:
        """It is a member no more, and what it still says is not heard."""
        member = self._members.pop(node, None)
        self._pulse.forget(node)
        if member is not None:
            self.post(NodeLost(node, because))
            if member.stream is not None and member.stream is not asyncio.current_task():
                member.stream.cancel()

    def _queue(self, node: NodeId, goal: Goal) -> None:
        member = self._members.get(node)
        if member is None:
            return
        try:
            member.unsent.put_nowait(goal)
        except asyncio.QueueFull:
            self._give_up(node, "its launcher does not read")
            return
        if goal.aim is Aim.LEAVE:
            member.unsent.put_nowait(None)


async def _read(context: Any) -> Any:
    """The next message; None at the end of the stream."""
    data = await context.read()
    return None if data is grpc.aio.EOF else data
