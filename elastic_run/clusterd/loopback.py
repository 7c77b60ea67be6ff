"""The embedded controller behind the port that a client of a real ClusterD has: no wire, same dialogue."""

from __future__ import annotations

import time
from collections.abc import Callable

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.machine import Answered, Ended, Out
from elastic_run.core.commands import Call
from elastic_run.core.events import CallFinished, Event, SignalReceived


class Loopback:
    """Answers each report and passes on the controller's signals by posting facts."""

    def __init__(self, controller: Controller, post: Callable[[Event], None]) -> None:
        self._controller = controller
        self._post = post
        controller.subscribe(time.monotonic())

    def send(self, call: Call) -> None:
        self._pass_on(self._controller.report(call.report, time.monotonic(), call.seq))

    def renew(self) -> None:
        """There is nothing to subscribe to."""

    def tick(self) -> None:
        self._pass_on(self._controller.tick(time.monotonic()))

    def deadline(self) -> float | None:
        return self._controller.deadline()

    def _pass_on(self, told: list[Out]) -> None:
        for out in told:
            match out:
                case SignalReceived():
                    self._post(out)
                case Answered():
                    self._post(CallFinished(out.ticket, out.code, out.info))
                case Ended():
                    self._controller.subscribe(time.monotonic())
                case _:  # no operator asks an embedded controller for anything
                    pass
