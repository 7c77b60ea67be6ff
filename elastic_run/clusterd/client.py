"""Client: a job's subscription to ClusterD and its FIFO of reports. It posts facts and never decides.

Two threads: one reads signals (subscription.py); one sends reports, one at a time, each with a deadline.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

import grpc

from elastic_run.clusterd import convert
from elastic_run.clusterd.channel import cause, rpc
from elastic_run.clusterd.pb import recover as pb
from elastic_run.clusterd.subscription import CALL_WAIT, Subscription
from elastic_run.core.commands import Call
from elastic_run.core.dialogue import FaultReported
from elastic_run.core.events import CallFinished, Event, LinkChanged

ROLE = "elastic-run"
OK, UNREGISTERED = 0, 400
NO_ANSWER = -1
"""Code of a report that was not answered."""
FAULT_WAIT = 60.0
"""ClusterD writes to Kubernetes before it answers a fault."""
SILENCE = 30.0
"""Without a sign of life, which comes every 5 s where it comes at all, the stream is dead."""
LOST_AFTER = 2.0
"""An idle sign of life so long after a fault was taken means that it is lost: it came before the subscription."""
TRIES = 5


class Client:
    """`post` hands facts to the loop, `say` shows a line to people; both may be called from any thread."""

    def __init__(
        self, channel: grpc.Channel, target: str, job: str, post: Callable[[Event], None], say: Callable[[str], None]
    ) -> None:
        self._target, self._post, self._say = target, post, say
        self._job, self._channel = job, channel
        self._call = {name: rpc(channel, name) for name in pb.METHODS}
        self._subscription = Subscription(channel, target, pb.ClientInfo(jobId=job, role=ROLE), self)
        self._reports: SimpleQueue[Call | None] = SimpleQueue()
        self._taken = 0.0
        self._alive = False
        """The stream has shown signs of life."""
        self._closed = threading.Event()
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._send, name="clusterd-reports", daemon=True)

    def start(self) -> None:
        self._subscription.start()
        self._thread.start()

    def send(self, call: Call) -> None:
        """Queue a report. -> CallFinished"""
        self._reports.put(call)

    def renew(self) -> None:
        """Subscribe anew; ClusterD then forgets what it is about."""
        self._subscription.renew()

    def close(self) -> None:
        """Nothing is posted any more; ClusterD notices that the stream has ended."""
        self._closed.set()
        self._reports.put(None)
        self._subscription.close()
        self._channel.close()

    # -- what the subscription hears

    def up(self, because: str) -> None:
        self._alive, self._taken = False, 0.0
        self._tell(LinkChanged(True, because))

    def lost(self, because: str) -> None:
        self._tell(LinkChanged(False, because))

    def refused(self, because: str) -> None:
        self._tell(LinkChanged(False, because, forgo=True))

    def message(self, message: pb.ProcessManageSignal) -> None:
        if message.signalType == convert.KEEP_ALIVE:
            self._alive = True
            if not message.uuid and 0.0 < self._taken < time.monotonic() - LOST_AFTER:
                self._taken = 0.0
                self._tell(LinkChanged(True, f"{self._target}, a report was lost"))
            return
        self._taken = 0.0
        signal, odd = convert.signal_of(message)
        for word in odd:
            self.say(f"ClusterD says {word}; ignored")
        if signal is not None:
            self._tell(signal)

    def say(self, text: str) -> None:
        """Each line once."""
        if text not in self._said and not self._closed.is_set():
            self._said.add(text)
            self._say(text)

    # -- the reports

    def _send(self) -> None:
        while not self._closed.is_set():
            try:
                call = self._reports.get(timeout=SILENCE / 4)
            except Empty:
                call = None
            if self._alive and time.monotonic() - self._subscription.heard > SILENCE:
                self._alive = False
                self.renew()
            if call is not None:
                self._tell(self._reported(call))

    def _reported(self, call: Call) -> CallFinished:
        name, request = convert.request_of(self._job, call.report)
        wait = FAULT_WAIT if isinstance(call.report, FaultReported) else CALL_WAIT
        info, session = "", self._subscription.session
        for attempt in range(TRIES):
            try:
                status = self._call[name](request, timeout=wait)
            except ValueError:
                if not self._closed.is_set():
                    raise
                break  # the channel was closed as the call began
            except grpc.RpcError as error:
                info = cause(error)
                if "qps exceeded" in info:
                    self._closed.wait((attempt + 1) * random.uniform(0.5, 1.0))
                    continue
                break
            if status.code == OK and isinstance(call.report, FaultReported):
                self._taken = time.monotonic()
            if status.code == UNREGISTERED:
                self._subscription.renew(session)  # it was started anew: its stream is gone or will be
            return CallFinished(call.seq, status.code, status.info if status.code else "")
        self._subscription.renew(session)  # whether it was taken is not known: both sides begin again
        return CallFinished(call.seq, NO_ANSWER, info)

    def _tell(self, fact: Event) -> None:
        if not self._closed.is_set():
            self._post(fact)
