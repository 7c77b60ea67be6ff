"""A child that serves the launcher beside the workers, such as a torch host: exec'ed, one link, ends with us."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_run.supervisor import orphans
from elastic_run.supervisor.link import receive, send


class Child:
    """`argv` gets the number of its end of the link as last word. Its stdin is empty, its outputs are ours.

    Its exit is reaped with those of strangers; that it is gone is seen as the end of file of the link.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.link, its = socket.socketpair()
        self._process = subprocess.Popen(
            [*argv, str(its.fileno())],
            env=env,
            stdin=subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
            start_new_session=True,
        )
        its.close()

    def fileno(self) -> int:
        return self.link.fileno()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """The descriptors may be closed afterwards. A child that is gone takes nothing; its link says so."""
        try:
            send(self.link, message, list(fds))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self) -> dict[str, Any] | None:
        """The next answer; None: it is gone."""
        return receive(self.link)[0]

    def close(self, wait: float) -> None:
        """Let it finish for so many seconds, then kill it. A guard that looks afterwards finds it gone."""
        self.link.shutdown(socket.SHUT_WR)
        self.link.settimeout(wait)
        try:
            while wait and self.link.recv(1 << 16):
                pass
        except OSError:
            pass  # it is slow; what it still had to do is lost
        self.link.close()
        orphans.end(self.pid)
        self._process.returncode = 0  # whatever it was, nobody asks any more
