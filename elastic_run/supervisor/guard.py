"""The launcher's side of its guard: keeps one alive, asks it for workers, hears its answers as facts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elastic_run.errors import PlatformError
from elastic_run.supervisor import orphans
from elastic_run.supervisor.link import receive, send

PROGRAM = os.path.join(os.path.dirname(__file__), "guard_main.py")
MOST_UNANSWERED = 64
"""Requests on their way: an answer that finds no room would stop the guard, and then us (some 280 have room)."""
MAX_REPLACED = 20
"""More guards than this dying in one job is no accident."""


def worker_mark(job: str, key: int) -> str:
    """Mark of what one start of one worker brought about, beside the mark of its job."""
    return f"{job}.{key}"


@dataclass(frozen=True, slots=True)
class Started:
    """The guard's answer to a request: a pid, or 0 and why not."""

    key: int
    pid: int
    error: str


@dataclass(slots=True)
class Guard:
    """`job`: the mark to look for. `grace` in seconds. `scratch` is removed when all is over."""

    job: str
    grace: float
    scratch: str
    on_change: Callable[[socket.socket, socket.socket], None]
    """Called with the old one and the new one when `link` changes: the loop must listen to that instead."""
    leaders: Callable[[], Mapping[int, int]]
    link: socket.socket = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)
    waiting: dict[int, tuple[dict[str, object], tuple[int, ...]]] = field(default_factory=dict)
    heard: list[Started] = field(default_factory=list)
    """Answers that came while others were asked for."""
    frozen: bool = False
    replaced: int = 0

    def __post_init__(self) -> None:
        self._exec()

    @property
    def pid(self) -> int:
        return self.process.pid

    def spawn(
        self,
        key: int,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        fds: tuple[int, int, int],
        cpus: Sequence[int] | None,
    ) -> None:
        """Ask for a worker; `Started` comes back from `read()`. The descriptors stay open until then."""
        while len(self.waiting) >= MOST_UNANSWERED and self._hear():
            pass
        request = {"id": key, "argv": list(argv), "env": dict(env), "cwd": cwd, "cpus": cpus and list(cpus)}
        self.waiting[key] = (request, fds)
        self._send(request, fds)

    def learn(self, leaders: Mapping[int, int]) -> None:
        """Pids and start times of workers that somebody else started: their sessions are ours as well."""
        self._send({"leaders": list(leaders.items())}, ())

    def read(self) -> list[Started] | None:
        """Answers that have come. None: the guard ended the job because this launcher was frozen."""
        if not self.frozen:
            self._hear()
        heard, self.heard = self.heard, []
        return None if self.frozen else heard

    def _hear(self) -> bool:
        """The next answer, for `read`; False: none will come from this one."""
        answer, _ = receive(self.link)
        if answer is None:
            return False  # it is dead; its exit is seen by whoever reaps
        if "stopped" in answer:
            self.frozen = True
            return False
        self.waiting.pop(answer["id"], None)
        self.heard.append(Started(answer["id"], answer["pid"], answer["error"]))
        return True

    def died(self, status: int) -> None:
        """It was reaped: start another, and ask that one for what is unanswered."""
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.replaced += 1
        if self.replaced > MAX_REPLACED:
            raise PlatformError(f"the guard process died {self.replaced} times; something kills it")
        for key in self.waiting:  # what the dead one may have started without saying so
            for pid in orphans.ours(worker_mark(self.job, key)):
                orphans.send(pid, signal.SIGKILL)
        dead = self.link
        self._exec()
        self.on_change(dead, self.link)
        dead.close()
        self.learn(self.leaders())
        for request, fds in self.waiting.values():
            self._send(request, fds)

    def close(self, wait: float) -> None:
        """Let it finish: it looks for leftovers once more, removes the scratch directory and exits."""
        self.link.close()
        orphans.send(self.process.pid, signal.SIGCONT)  # somebody may have stopped it
        try:
            self.process.wait(wait)
        except subprocess.TimeoutExpired:
            pass  # it goes on cleaning up without us: that is what it is for

    def _exec(self) -> None:
        ours, its = socket.socketpair()
        argv = [
            sys.executable,
            "-I",
            "-S",
            PROGRAM,
            str(its.fileno()),
            self.job,
            str(os.getpid()),
        ]
        self.process = subprocess.Popen(
            [*argv, str(self.grace), self.scratch],
            pass_fds=(its.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        its.close()
        self.link = ours

    def _send(self, request: dict[str, object], fds: tuple[int, ...]) -> None:
        try:
            send(self.link, request, list(fds))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has just died; `died` asks the next one again
