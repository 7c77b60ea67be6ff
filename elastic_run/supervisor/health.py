"""The health-check port: an HTTP server in a thread that answers 200 while the loop does, for probes of pods.

torch has the variable and an interface, but no server of its own.
"""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

from elastic_run.core.events import Event

ANSWER_WAIT = 5.0
"""Seconds in which the loop must answer a probe."""


class _Server(ThreadingTCPServer):
    """Not http.server's own: that one asks the name service for our name before it listens."""

    allow_reuse_address = True
    daemon_threads = True


class Health:
    """A source of the loop, which answers probes by reading it. Listens on all addresses: probes come from outside.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int, patience: float = ANSWER_WAIT) -> None:
        self._patience = patience
        self._asked = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._answer = threading.Condition()
        self._answered = 0
        health = self

        class Probe(BaseHTTPRequestHandler):
            timeout = ANSWER_WAIT

            def do_GET(self) -> None:
                alive = health._ask()
                self.send_response(200 if alive else 503)
                self.end_headers()
                self.wfile.write(b"ok\n" if alive else b"the launcher does not answer\n")

            def log_message(self, format: str, *args: object) -> None:
                """Probes are not worth a line each."""

        self._server = _Server(("", port), Probe)
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def fileno(self) -> int:
        return self._asked

    def read(self) -> list[Event]:
        """In the loop: say that it runs."""
        os.eventfd_read(self._asked)
        with self._answer:
            self._answered += 1
            self._answer.notify_all()
        return []

    def _ask(self) -> bool:
        with self._answer:
            before = self._answered
            os.eventfd_write(self._asked, 1)
            return self._answer.wait_for(lambda: self._answered != before, self._patience)
