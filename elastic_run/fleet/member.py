"""Member's end of the fleet: one stream to the leader; beats, answers, and what the leader asks for as facts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from elastic_run import __version__
from elastic_run.core.events import Event, LeaderLost, LeaderTold
from elastic_run.core.goals import Aim, Goal, NodeReport
from elastic_run.core.vocabulary import NodeId
from elastic_run.errors import ConfigError, ElasticRunError, ExitCode, PlatformError
from elastic_run.fleet.pulse import Lease
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

AGAIN_AFTER = 0.2
"""Seconds between two attempts to reach a leader that may not have started yet."""
TELL_AFTER, TELL_EVERY = 2.0, 10.0
OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", MOST_BYTES),
)
NEVER_A_LEADER = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


@dataclass(frozen=True, slots=True)
class Me:
    """What a launcher says of itself."""

    job: str
    host: str
    workers: int
    place: int | None
    secret: Secret


@dataclass(slots=True)
class Member:
    """`post` takes facts from any thread, `say` lines for people."""

    target: str
    me: Me
    post: Callable[[Event], None]
    say: Callable[[str], None]
    credentials: grpc.ChannelCredentials | None = None
    _channel: Any = None
    _call: Any = None
    _unsent: SimpleQueue[Message | None] = field(default_factory=SimpleQueue)
    _lease: Lease = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)

    def join(self, within: float) -> Welcome:
        """Reach the leader, which may come later than we do, and be taken in. Blocks up to `within` seconds.

        Raises:
            ConfigError: the leader refuses this launcher, or is none.
            PlatformError: there is no leader within that time.
        """
        began = time.monotonic()
        told = began + TELL_AFTER
        self._channel = self._open()
        while True:
            sent = time.monotonic()
            try:
                welcome = self._try_to_join(began + within - sent)
            except grpc.RpcError as error:
                self._not_there(error)
            else:
                self._begin(welcome, sent)
                return welcome
            now = time.monotonic()
            if now - began >= within:
                self._channel.close()
                raise PlatformError(f"no leader at {self.target} within {within:g} s; is it started, and reachable?")
            if now >= told:
                self.say(f"waiting for the leader at {self.target}, {began + within - now:.0f} s more")
                told = now + TELL_EVERY
            self._closed.wait(AGAIN_AFTER)

    def answer(self, report: NodeReport) -> None:
        self._unsent.put(report)

    def tell(self, node: NodeId, goal: Goal) -> None:
        raise AssertionError("a member tells nobody what to do")

    def close(self, seconds: float) -> None:
        """End the stream, after what is unsent."""
        self._closed.set()
        self._unsent.put(None)
        if self._call is not None:
            done = threading.Event()
            if self._call.add_callback(done.set):
                done.wait(seconds)
        if self._channel is not None:
            self._channel.close()

    # -- joining

    def _open(self) -> Any:
        if self.credentials is None:
            return grpc.insecure_channel(self.target, options=OPTIONS)
        return grpc.secure_channel(self.target, self.credentials, options=OPTIONS)

    def _try_to_join(self, within: float) -> Welcome:
        """Hold the dialogue of the beginning on a new stream."""
        self._unsent = SimpleQueue()
        stub = self._channel.stream_stream(METHOD)
        self._call = stub(_messages(self._unsent))
        first = self._next(within)
        if not isinstance(first, Challenge):
            raise ConfigError(f"{self.target} is no leader of elastic-run; look at --rdzv-endpoint")
        own, me = nonce(), self.me
        proof = me.secret.proof("member", first.nonce, own, me.job, me.host)
        self._unsent.put(Join(__version__, me.job, me.host, me.workers, me.place, own, proof))
        said = self._next(within)
        if isinstance(said, Refusal):
            raise _refused(said.because, said.code)
        if not isinstance(said, Welcome) or not me.secret.fits(said.proof, "leader", own, said.node):
            raise ConfigError(f"whoever leads at {self.target} does not know the job's secret")
        return said

    def _next(self, within: float) -> Message:
        """The stream has no time limit of its own; a timer ends it if nothing comes."""
        timer = threading.Timer(max(within, 0.1), self._call.cancel)
        timer.daemon = True
        timer.start()
        try:
            return unpack(next(self._call))
        except StopIteration:
            raise ConfigError(f"{self.target} ended the stream; is it the leader of this job?") from None
        except ValueError as error:
            raise ConfigError(f"{self.target} is no leader of elastic-run; look at --rdzv-endpoint") from error
        finally:
            timer.cancel()

    def _not_there(self, error: Any) -> None:
        """Nobody listens yet, most likely; what can never become a leader is told at once."""
        self._unsent.put(None)
        if error.code() in NEVER_A_LEADER:
            raise ConfigError(
                f"{self.target} is no leader of elastic-run ({error.code().name}); look at --rdzv-endpoint"
            )

    # -- taking part

    def _begin(self, welcome: Welcome, sent: float) -> None:
        self._lease = Lease(welcome.self_stop, sent + welcome.self_stop)
        threading.Thread(target=self._hear, name="fleet-hear", daemon=True).start()
        threading.Thread(target=self._beat, args=(welcome.beat,), name="fleet-beat", daemon=True).start()

    def _hear(self) -> None:
        because = "the leader's launcher has ended"
        try:
            for data in self._call:
                message = unpack(data)
                match message:
                    case Heard():
                        with self._lock:
                            self._lease.answered(message.seq)
                    case Goal():
                        self.post(LeaderTold(message))
                        if message.aim is Aim.LEAVE:
                            self._closed.set()
                    case _:
                        raise ValueError(f"a leader does not say {type(message).__name__}")
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:
                because = "the leader has given this node up"
        except ValueError as error:
            because = f"the leader does not keep to the protocol ({error})"
        self._lose(because)

    def _beat(self, every: float) -> None:
        while not self._closed.is_set():
            now = time.monotonic()
            with self._lock:
                left = self._lease.ends_at - now
                if left > 0:
                    self._unsent.put(Beat(self._lease.send(now)))
            if left <= 0:
                self._lose(f"no answer from the leader for {self._lease.self_stop:g} s")
                self._call.cancel()
                return
            self._closed.wait(min(every, left))

    def _lose(self, because: str) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._unsent.put(None)
            self.post(LeaderLost(f"{because}; all workers here are ended; please requeue", ExitCode.REQUEUE))


def _messages(unsent: SimpleQueue[Message | None]) -> Iterator[bytes]:
    while (message := unsent.get()) is not None:
        yield pack(message)


def _refused(because: str, code: int) -> ElasticRunError:
    return ConfigError(because) if code == ExitCode.USAGE else PlatformError(because)
