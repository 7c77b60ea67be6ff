"""Client: a job's one subscription to ClusterD and its FIFO of reports. It posts facts and never decides.

Two threads: one subscribes, again and again, and reads signals; one sends reports, one at a time, each with a deadline.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from elastic_run.clusterd import convert
from elastic_run.clusterd.channel import cause, rpc
from elastic_run.clusterd.pb import recover as pb
from elastic_run.core.commands import Call
from elastic_run.core.dialogue import FaultReported
from elastic_run.core.events import CallFinished, Event, LinkChanged

ROLE = "elastic-run"
OK, UNREGISTERED, SWITCHED_OFF, NOT_INITIALISED = 0, 400, 403, 408
NO_ANSWER = -1
"""Code of a report that was not answered."""
CALL_WAIT = 10.0
FAULT_WAIT = 60.0
"""ClusterD writes to Kubernetes before it answers a fault."""
SILENCE = 30.0
"""Without a sign of life, which comes every 5 s where it comes at all, the stream is dead."""
LOST_AFTER = 2.0
"""An idle sign of life so long after a fault was taken means that it is lost: it came before the subscription."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
SHORT = 1.0
"""A stream that ends well sooner than this was taken by somebody else."""
TRIES = 5


class Refused(Exception):
    """ClusterD will not serve this job, whatever we do."""


class Client:
    """`post` hands facts to the loop, `say` shows a line to people; both may be called from any thread."""

    def __init__(
        self, channel: grpc.Channel, target: str, job: str, post: Callable[[Event], None], say: Callable[[str], None]
    ) -> None:
        self._target, self._post, self._say = target, post, say
        self._info = pb.ClientInfo(jobId=job, role=ROLE)
        self._channel = channel
        self._call = {name: rpc(channel, name) for name in pb.METHODS}
        self._reports: SimpleQueue[Call | None] = SimpleQueue()
        self._stream: Any = None
        self._heard = self._taken = 0.0
        self._alive = False
        """The stream has shown signs of life."""
        self._closed = threading.Event()
        self._said: set[str] = set()
        self._threads = [
            threading.Thread(target=self._listen, name="clusterd-signals", daemon=True),
            threading.Thread(target=self._send, name="clusterd-reports", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def send(self, call: Call) -> None:
        """Queue a report. -> CallFinished"""
        self._reports.put(call)

    def renew(self) -> None:
        """Subscribe anew; ClusterD then forgets what it is about."""
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> None:
        """Nothing is posted any more; ClusterD notices that the stream has ended."""
        self._closed.set()
        self._reports.put(None)
        self._channel.close()

    # -- the stream

    def _listen(self) -> None:
        pause, entered, up = FIRST_PAUSE, False, False
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                if not entered:
                    self._enter()
                    entered = True
                self._subscribe()
                up = True
                self._read()
                because = ""
            except Refused as error:
                self._tell(LinkChanged(False, str(error), forgo=True))
                return
            except grpc.RpcError as error:
                because = self._broken(error)
                entered = entered and not because
            if because and up:
                up = False
                self._tell(LinkChanged(False, because))
            elif because:
                self._once(f"ClusterD is not there yet: {because}; until it is, the embedded controller decides")
            lived = time.monotonic() - began
            if because or lived < SHORT:
                self._closed.wait(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE)
                if not because and pause == LONGEST_PAUSE:
                    self._once(f"another client takes the subscription of job {self._info.jobId} to ClusterD; stop one")
            else:
                pause = FIRST_PAUSE

    def _enter(self) -> None:
        """Init and Register: cheap where they were done before.

        Raises:
            Refused: recovery is off for this job.
            grpc.RpcError: no answer, or one that says no.
        """
        for name in ("Init", "Register"):
            status = self._call[name](self._info, timeout=FAULT_WAIT)
            if status.code == SWITCHED_OFF:
                raise Refused(f"its recovery is switched off for job {self._info.jobId} (403)")
            if status.code != OK:
                raise NotServed(f"{self._target} answers {name} with {status.code} {status.info}".strip())

    def _subscribe(self) -> None:
        self._alive, self._taken = False, 0.0
        self._stream = self._call["SubscribeProcessManageSignal"](self._info)
        try:
            self._call["HealthCheck"](self._info, timeout=CALL_WAIT)  # behind the subscription on the same connection
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
        if not self._stream.is_active():
            next(self._stream)  # raises what ended it
        self._heard = time.monotonic()
        self._tell(LinkChanged(True, f"{self._target}, job {self._info.jobId}"))

    def _read(self) -> None:
        """Until the stream ends well, as it does after each incident.

        Raises:
            grpc.RpcError: it broke.
        """
        for message in self._stream:
            self._heard = time.monotonic()
            if message.jobId != self._info.jobId:
                self._once(f"ClusterD sent a signal of another job, {message.jobId!r}; ignored")
            elif message.signalType == convert.KEEP_ALIVE:
                self._alive = True
                if not message.uuid and 0.0 < self._taken < self._heard - LOST_AFTER:
                    self._taken = 0.0
                    self._tell(LinkChanged(True, f"{self._target}, a report was lost"))
            else:
                self._taken = 0.0
                signal, odd = convert.signal_of(message)
                for word in odd:
                    self._once(f"ClusterD says {word}; ignored")
                if signal is not None:
                    self._tell(signal)

    def _broken(self, error: grpc.RpcError) -> str:
        """Why the stream broke, in words; empty if we ended it ourselves and may subscribe again at once."""
        code = error.code()
        if code is grpc.StatusCode.CANCELLED:
            return ""
        return f"{self._target}: {cause(error)}"

    # -- the reports

    def _send(self) -> None:
        while not self._closed.is_set():
            try:
                call = self._reports.get(timeout=SILENCE / 4)
            except Empty:
                call = None
            if self._alive and time.monotonic() - self._heard > SILENCE:
                self._alive = False
                self.renew()
            if call is not None:
                self._tell(self._reported(call))

    def _reported(self, call: Call) -> CallFinished:
        name, request = convert.request_of(self._info.jobId, call.report)
        wait = FAULT_WAIT if isinstance(call.report, FaultReported) else CALL_WAIT
        info = ""
        for attempt in range(TRIES):
            try:
                status = self._call[name](request, timeout=wait)
            except grpc.RpcError as error:
                info = cause(error)
                if "qps exceeded" in info:
                    self._closed.wait((attempt + 1) * random.uniform(0.5, 1.0))
                    continue
                break
            if status.code == OK and isinstance(call.report, FaultReported):
                self._taken = time.monotonic()
            if status.code == UNREGISTERED:
                self.renew()  # it was started anew: its stream is gone or will be
            return CallFinished(call.seq, status.code, status.info if status.code else "")
        self.renew()  # whether it was taken is not known: both sides begin again
        return CallFinished(call.seq, NO_ANSWER, info)

    # -- to the loop

    def _tell(self, fact: Event) -> None:
        if not self._closed.is_set():
            self._post(fact)

    def _once(self, text: str) -> None:
        if text not in self._said and not self._closed.is_set():
            self._said.add(text)
            self._say(text)


class NotServed(grpc.RpcError):
    """An answer that says no, treated like none: tried again."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.FAILED_PRECONDITION

    def details(self) -> str:
        return str(self)
