"""The embedded controller behind the port that a client of a real ClusterD has: no wire, same dialogue."""

from __future__ import annotations

import time
from collections.abc import Callable

from elastic_run.clusterd.controller import Controller
from elastic_run.core.commands import Call
from elastic_run.core.events import CallFinished, Event


class Loopback:
    """Answers each report and passes on the controller's signals by posting facts."""

    def __init__(self, controller: Controller, post: Callable[[Event], None]) -> None:
        self._controller = controller
        self._post = post

    def send(self, call: Call) -> None:
        signals = self._controller.report(call.report, time.monotonic())
        self._post(CallFinished(call.seq, 0))
        for signal in signals:
            self._post(signal)

    def tick(self) -> None:
        for signal in self._controller.tick(time.monotonic()):
            self._post(signal)

    def deadline(self) -> float | None:
        return self._controller.deadline()
