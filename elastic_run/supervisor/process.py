"""Processes: the workers' lives as the kernel tells them; start, signal, reap, exit status, error file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any, Protocol

from elastic_run.core.events import Event, LauncherFrozen, SpawnFailed, Swept, WorkerExited, WorkerStarted
from elastic_run.core.vocabulary import ExitStatus, Rank, WorkerError
from elastic_run.supervisor import oom, orphans
from elastic_run.supervisor.guard import Guard

ERROR_FILE_LIMIT = 1 << 20


@dataclass(slots=True)
class Running:
    rank: Rank
    incarnation: int
    attempt: int
    error_file: str
    oom_file: Path | None


@dataclass(frozen=True, slots=True)
class Start:
    """What is exec'ed for one worker. `fds` become its stdin, stdout and stderr."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    fds: tuple[int, int, int]
    attempt: int
    error_file: str
    cpus: Sequence[int] | None = None
    """Cores it may use; None: as we."""


class Warm(Protocol):
    """A quicker way to workers than the guard's exec; see template.py."""

    def takes(self, start: Start) -> bool: ...
    def spawn(self, key: int, start: Start) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Processes:
    """Main thread only.

    `last_words(rank, incarnation)` gives the end of a worker's stderr; `keep_error(rank, attempt, content)` takes its
    error file.
    """

    def __init__(
        self,
        job: str,
        last_words: Callable[[Rank, int], str],
        keep_error: Callable[[Rank, int, bytes], None],
        make_guard: Callable[[Callable[[], Mapping[int, int]], Callable[[], list[Event]]], Guard],
    ) -> None:
        self._job = job
        self._last_words = last_words
        self._keep_error = keep_error
        self._running: dict[int, Running] = {}
        self._asked: dict[int, tuple[Rank, int, Start]] = {}
        self._latest: dict[Rank, tuple[int, int]] = {}
        """Pid and start time of each rank's newest life."""
        self.serving: set[int] = set()
        """Pids of the job's processes that are no workers and serve us; a search for leftovers spares them."""
        self.warm: Warm | None = None
        self._keys = 0
        self.guard = make_guard(self._leaders, self.answered)

    def next_key(self) -> int:
        """A number for the next start; the worker's mark carries it."""
        self._keys += 1
        return self._keys

    def start(self, key: int, rank: Rank, incarnation: int, start: Start) -> None:
        """Ask for a worker: at once if it starts cold, with `flush` if a warm one can be had."""
        self._asked[key] = (rank, incarnation, start)
        if self.warm is not None and self.warm.takes(start):
            self.warm.spawn(key, start)
        else:
            self.start_cold(key)

    def start_cold(self, key: int) -> None:
        _, _, start = self._asked[key]
        self.guard.spawn(key, start.argv, start.env, start.cwd, start.fds, start.cpus)

    def flush(self) -> None:
        """All starts of this turn have been asked for."""
        if self.warm is not None:
            self.warm.flush()

    def answered(self) -> list[Event]:
        """What the guard says about starts that were asked for."""
        answers = self.guard.read()
        if answers is None:
            return [LauncherFrozen()]
        return [self.started(a.key, 0 if a.error else a.pid, a.error or "the guard could not fork") for a in answers]

    def started(self, key: int, pid: int, error: str) -> Event:
        """What became of a start; without a pid, `error` says why."""
        rank, incarnation, start = self._asked.pop(key)
        if start.fds[0] > 2:
            os.close(start.fds[0])  # opened for this worker; outputs stay open for those who read them
        if not pid:
            return SpawnFailed(rank, incarnation, error)
        oom_file = oom.counter_file(pid)
        self._running[pid] = Running(rank, incarnation, start.attempt, start.error_file, oom_file)
        stat = orphans.stat_of(pid)
        if stat is not None:  # it is our child, not reaped yet
            self._latest[rank] = (pid, stat.started)
            self.guard.learn({pid: stat.started})
        return WorkerStarted(rank, incarnation, pid, oom.read_counter(oom_file))

    def kill_unheard(self, mark: str) -> None:
        """End workers that somebody forked and did not live to tell us of."""
        known = {*self._running, *self.serving, self.guard.pid}
        for pid in orphans.children_of_me():
            if pid not in known and orphans.is_marked(pid, mark):
                orphans.send_group(pid, SIGKILL)

    def kill(self, rank: Rank, incarnation: int, signum: int) -> None:
        """Signal the worker's process group. A pid that is not reaped yet cannot have been reused."""
        for pid, worker in self._running.items():
            if (worker.rank, worker.incarnation) == (rank, incarnation):
                orphans.send_group(pid, signum)

    def pids(self) -> list[int]:
        """Of the workers that run."""
        return list(self._running)

    def sweep(self, seq: int, signum: int) -> Swept:
        """Signal whatever of the job still lives; to be called when no worker does."""
        found = [pid for pid in orphans.ours(self._job, self._leaders()) if pid not in self.serving]
        for pid in found:
            orphans.send(pid, signum)
        return Swept(seq, len(found))

    def _leaders(self) -> Mapping[int, int]:
        return dict(self._latest.values())

    def collect(self) -> list[Event]:
        """Reap who has ended: workers, the guard, and strangers that the kernel gave us to adopt."""
        facts: list[Event] = [
            self._exited(pid, s) for pid in list(self._running) if (s := orphans.reap(pid)) is not None
        ]
        status = orphans.reap(self.guard.pid)
        if status is not None:
            self.guard.died(status)
        if not self._asked:  # a start that is not answered yet may be among the unknown children
            while self._reap_strangers():
                pass
        return facts

    def _reap_strangers(self) -> bool:
        known = {*self._running, self.guard.pid}
        strangers = [pid for pid in orphans.children_of_me() if pid not in known]
        reaped = [pid for pid in strangers if orphans.reap(pid) is not None]
        return bool(reaped)

    def _exited(self, pid: int, status: int) -> WorkerExited:
        worker = self._running.pop(pid)
        said = read_error_file(worker.error_file)
        if said:
            self._keep_error(worker.rank, worker.attempt, said)
        return WorkerExited(
            worker.rank,
            worker.incarnation,
            _exit_status(status),
            parse_error(said),
            self._last_words(worker.rank, worker.incarnation),
            oom.read_counter(worker.oom_file),
        )


def _exit_status(status: int) -> ExitStatus:
    if os.WIFSIGNALED(status):
        return ExitStatus(signal=os.WTERMSIG(status), core=os.WCOREDUMP(status))
    return ExitStatus(code=os.WEXITSTATUS(status))


def read_error_file(path: str) -> bytes:
    """What the worker wrote into its error file; empty if there is none that may be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, ERROR_FILE_LIMIT)
    except OSError:  # a directory, a FIFO that somebody holds open
        return b""
    finally:
        os.close(fd)


def parse_error(data: bytes) -> WorkerError | None:
    """An error file in torch's format; None where the content is torn, foreign or hostile."""
    try:
        said: Any = json.loads(data)["message"]
        if isinstance(said, dict):
            stamp = said.get("extraInfo", {}).get("timestamp")
            return WorkerError(str(said["message"]), None if stamp is None else float(stamp))
        return WorkerError(str(said))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
