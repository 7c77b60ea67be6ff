"""Subscription: a job's one stream of signals from ClusterD, got again whenever it ends, in a thread of its own."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Protocol

import grpc

from elastic_run.clusterd.channel import cause, rpc
from elastic_run.clusterd.convert import KEEP_ALIVE
from elastic_run.clusterd.pb import recover as pb

OK, SWITCHED_OFF = 0, 403
CALL_WAIT = 10.0
ENTER_WAIT = 60.0
"""ClusterD reads from Kubernetes, and tries again, before it answers Init."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
SHORT = 1.0
"""A stream that ends well sooner than this, without a signal, was taken by somebody else."""


class Listener(Protocol):
    """Called in the subscription's thread."""

    def up(self, because: str) -> None:
        """A new stream stands; ClusterD has forgotten what was before."""

    def lost(self, because: str) -> None: ...
    def refused(self, because: str) -> None:
        """Recovery is off for this job; nothing more is tried."""

    def message(self, message: pb.ProcessManageSignal) -> None:
        """Of this job; signs of life too."""

    def say(self, text: str) -> None:
        """A line for people."""


class Refused(Exception):
    """ClusterD will not serve this job, whatever we do."""


class NotServed(grpc.RpcError):
    """An answer that says no, treated like none: tried again."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.FAILED_PRECONDITION

    def details(self) -> str:
        return str(self)


class Subscription:
    def __init__(self, channel: grpc.Channel, target: str, info: pb.ClientInfo, listener: Listener) -> None:
        self._target, self._info, self._listener = target, info, listener
        self._call = {name: rpc(channel, name) for name in pb.METHODS}
        self._stream: Any = None
        self._up = False
        self._spoken = False
        """The present stream has brought a signal, so that its end is that of an incident."""
        self.session = 0
        """Counts streams that stood."""
        self.heard = 0.0
        """When anything came last (CLOCK_MONOTONIC)."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clusterd-signals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def renew(self, session: int | None = None) -> None:
        """Subscribe anew, unless the stream is not that of `session` any more; ClusterD then forgets all."""
        if self._stream is not None and session in (None, self.session):
            self._stream.cancel()

    def close(self) -> None:
        self._closed.set()
        self.renew()

    def _run(self) -> None:
        pause, entered = FIRST_PAUSE, False
        while not self._closed.is_set():
            began, because, self._spoken = time.monotonic(), "", False
            try:
                if not entered:
                    enter(self._call, self._info, self._target)
                    entered = True
                self._subscribe()
                self._read()
            except Refused as error:
                self._listener.refused(str(error))
                return
            except ValueError:
                if not self._closed.is_set():
                    raise
                return  # the channel was closed while a call began
            except grpc.RpcError as error:
                because = self._why(error)
                entered = entered and not because
            self._tell(because)
            of_use = self._spoken or time.monotonic() - began >= SHORT
            pause = FIRST_PAUSE if of_use else pause
            if because or not of_use:
                self._closed.wait(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE)
                if not because and pause == LONGEST_PAUSE:
                    self._listener.say(f"another client takes the subscription of job {self._info.jobId}; stop one")

    def _subscribe(self) -> None:
        self._stream = self._call["SubscribeProcessManageSignal"](self._info)
        try:
            self._call["HealthCheck"](self._info, timeout=CALL_WAIT)  # behind the subscription on the same connection
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
        if not self._stream.is_active():
            next(self._stream)  # raises what ended it
        self.heard, self._up = time.monotonic(), True
        self.session += 1
        if not self._closed.is_set():
            self._listener.up(f"{self._target}, job {self._info.jobId}")

    def _read(self) -> None:
        """Until the stream ends well, as it does after each incident.

        Raises:
            grpc.RpcError: it broke.
        """
        for message in self._stream:
            self.heard = time.monotonic()
            if self._closed.is_set():
                return
            if message.jobId != self._info.jobId:
                self._listener.say(f"ClusterD sent a signal of another job, {message.jobId!r}; ignored")
            else:
                self._spoken = self._spoken or message.signalType != KEEP_ALIVE
                self._listener.message(message)

    def _why(self, error: grpc.RpcError) -> str:
        """It broke, in words; empty if we ended it ourselves and may subscribe again at once."""
        return "" if error.code() is grpc.StatusCode.CANCELLED else f"{self._target}: {cause(error)}"

    def _tell(self, because: str) -> None:
        if not because or self._closed.is_set():
            return
        if self._up:
            self._up = False
            self._listener.lost(because)
        else:
            self._listener.say(f"ClusterD is not there yet: {because}")


def enter(call: Any, info: pb.ClientInfo, target: str) -> None:
    """Init and Register: cheap where they were done before.

    Raises:
        Refused: recovery is off for this job.
        grpc.RpcError: no answer, or one that says no.
    """
    for name in ("Init", "Register"):
        status = call[name](info, timeout=ENTER_WAIT)
        if status.code == SWITCHED_OFF:
            raise Refused(f"its recovery is switched off for job {info.jobId} (403)")
        if status.code != OK:
            raise NotServed(f"{target} answers {name} with {status.code} {status.info}".strip())
