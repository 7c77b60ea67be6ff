"""torch's file timer (torch.distributed.elastic.timer): workers set themselves deadlines through a FIFO.

A message is one line of JSON with `pid`, `scope_id`, `expiration_time` (seconds since 1970; negative: released) and
`signal`; source: FileTimerClient of torch 2.1 to 2.15.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_run.core.events import Event, WorkerHung

LONGEST_LINE = 64 << 10


class FileTimer:
    """A source of the loop and a clock of it. Times in seconds.

    Raises:
        OSError: the FIFO cannot be made; a file that is no FIFO is never replaced.
    """

    def __init__(self, path: str, post: Callable[[Event], None]) -> None:
        self.path = path
        self._post = post
        self._begun = b""
        self._set: dict[tuple[int, str], tuple[float, float, int]] = {}
        """Process and scope -> when it expires (monotonic), how long it was set for, the signal."""
        if os.path.lexists(path) and stat.S_ISFIFO(os.lstat(path).st_mode):
            os.unlink(path)  # an earlier launcher's
        os.mkfifo(path, 0o600)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # a writer of our own: never end of file

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[Event]:
        """Take in what workers have written; what is no such message is dropped."""
        try:
            *lines, self._begun = (self._begun + os.read(self._fd, 1 << 16)).split(b"\n")
        except BlockingIOError:
            return []
        if len(self._begun) > LONGEST_LINE:
            self._begun = b""
        for line in lines:
            self._take(line)
        return []

    def _take(self, line: bytes) -> None:
        try:
            said: Any = json.loads(line)
            pid, scope = int(said["pid"]), str(said["scope_id"])
            expires, signum = float(said["expiration_time"]), int(said["signal"])
            left = expires - time.time()
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return
        if expires < 0:
            self._set.pop((pid, scope), None)
        elif signum > 0:  # torch ends nobody without a signal either
            self._set[pid, scope] = (time.monotonic() + left, left, signum)

    def deadline(self) -> float | None:
        return min((at for at, _, _ in self._set.values()), default=None)

    def tick(self) -> None:
        """Tell of each process whose timer has expired; its other timers say no more."""
        now = time.monotonic()
        for (pid, scope), (at, lasted, signum) in sorted(self._set.items(), key=lambda entry: entry[1]):
            if at <= now and (pid, scope) in self._set:
                self._set = {key: value for key, value in self._set.items() if key[0] != pid}
                self._post(WorkerHung(pid, f"its timer {scope!r} of {round(lasted, 1):g} s has expired", signum))

    def close(self) -> None:
        os.close(self._fd)
        Path(self.path).unlink(missing_ok=True)
