"""`elastic-run server` in a process of its own, for tests."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BOUND = 20.0
TOP = Path(__file__).parents[2]


class Server:
    """`elastic-run server` in a process of its own."""

    def __init__(self, *words: str, port: int = 0) -> None:
        self._words, self.port = words, port
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "elastic_run", "server", "--listen", f"127.0.0.1:{self.port}", *self._words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TOP)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)$", line.strip())
        assert found, f"no address in {line!r}"
        self.port = int(found[1])

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def tell(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "elastic_run", "server", *words, "--server", self.target]
        return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=30)

    def end(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        code = self.process.wait(BOUND)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def serving(*words: str) -> Iterator[Server]:
    server = Server(*words)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)
