"""Workers: what starting a rank takes: command, environment, streams and files, handed to Processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elastic_run.core.commands import Spawn
from elastic_run.core.events import Swept
from elastic_run.core.vocabulary import Rank
from elastic_run.supervisor.guard import worker_mark
from elastic_run.supervisor.logs import JOINED, Logs, Treatment
from elastic_run.supervisor.process import Processes, Start


@dataclass(slots=True)
class Workers:
    """`environment(order, mark, error_file)` is all the worker sees."""

    job: str
    argv: Sequence[str]
    cwd: str
    scratch: str
    processes: Processes
    logs: Logs
    treatment: Callable[[Rank, int, str, int], Treatment | None]
    """Of a stream, by rank, local rank, its name and the count of restarts; None: it is our own stream."""
    joined: Callable[[int], bool]
    """Whether stdout and stderr of a local rank are one stream, JOINED."""
    stdin: str | None
    """A file that each worker reads from its beginning; None: our own standard input."""
    cpus: Callable[[int], Sequence[int] | None]
    """Cores for a local rank; None: all that we may use."""
    environment: Callable[[Spawn, str, str], Mapping[str, str]]
    attempt: Callable[[int], int]
    """Number of the attempt, for the logs, from the count of restarts."""

    def spawn(self, order: Spawn) -> None:
        try:
            os.mkdir(self.scratch, 0o700)
        except FileExistsError:
            pass  # as it should be; but a cleaner of old temporary files may have taken it
        key = self.processes.next_key()
        error_file = f"{self.scratch}/{order.rank}.{order.incarnation}.error.json"
        attempt = self.attempt(order.restarts)
        out, err = self._outputs(order)
        env = self.environment(order, f"{self.job}:{worker_mark(self.job, key)}", error_file)
        stdin = 0 if self.stdin is None else os.open(self.stdin, os.O_RDONLY | os.O_CLOEXEC)
        start = Start(self.argv, env, self.cwd, (stdin, out, err), attempt, error_file, self.cpus(order.local_rank))
        self.processes.start(key, order.rank, order.incarnation, start)

    def _outputs(self, order: Spawn) -> tuple[int, int]:
        """Descriptors for stdout and stderr."""
        if self.joined(order.local_rank):
            return self._stream(order, JOINED)
        return self._stream(order, "stdout")[0], self._stream(order, "stderr")[1]

    def _stream(self, order: Spawn, name: str) -> tuple[int, int]:
        treatment = self.treatment(order.rank, order.local_rank, name, order.restarts)
        if treatment is None:
            return 1, 2
        return self.logs.open(order.rank, order.incarnation, name, treatment)

    def kill(self, rank: Rank, incarnation: int, signum: int) -> None:
        self.processes.kill(rank, incarnation, signum)

    def flush(self) -> None:
        self.processes.flush()

    def sweep(self, seq: int, signum: int) -> Swept:
        return self.processes.sweep(seq, signum)


def open_standard_streams() -> None:
    """Give 0, 1 and 2 something where the caller had closed them, so that no file of ours takes their place."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
