"""Signals of the launcher: handlers that do nothing, a wakeup descriptor, and what each signal means.

The byte on the wakeup descriptor is the message, so no Python code ever runs in the middle of another.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType

from elastic_run.core.events import Event, QuitRequested

ONE_ACT = 0.2
"""Seconds within which the same signal twice is one request."""
DEFAULT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


def _noted(signum: int, frame: FrameType | None) -> None:
    """The wakeup descriptor has told the loop already."""


class Signals:
    """Handles `chosen` from creation to `restore()`. Main thread only.

    A default signal that was inherited as ignored stays ignored (nohup); one that the user names is handled.
    """

    def __init__(self, extra: Iterable[int] = (), on_suspend: Callable[[], None] = lambda: None) -> None:
        wanted = {s for s in DEFAULT if signal.getsignal(s) is not signal.SIG_IGN} | set(extra)
        self._on_suspend = on_suspend
        self._quit = frozenset(wanted)
        self._seen: dict[int, float] = {}
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before: dict[int, Handler] = {}
        for signum in sorted({*wanted, signal.SIGCHLD, signal.SIGTSTP}):
            self._before[signum] = signal.signal(signum, _noted)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before.keys())
        if signal.SIGQUIT not in wanted:
            faulthandler.register(signal.SIGQUIT, file=2, all_threads=True, chain=False)

    def fileno(self) -> int:
        return self._read

    def read(self) -> list[Event]:
        """Facts from the signals that have come; SIGCHLD has no fact of its own, it only wakes the loop."""
        try:
            numbers = os.read(self._read, 4096)
        except BlockingIOError:
            return []
        if signal.SIGTSTP in numbers:
            self._on_suspend()
        return [QuitRequested(signum) for signum in numbers if signum in self._quit and not self._is_echo(signum)]

    def _is_echo(self, signum: int) -> bool:
        """A shell and the kernel both tell of a terminal that is gone; a wrapper passes on what the whole group got."""
        now, before = time.monotonic(), self._seen.get(signum)
        self._seen[signum] = now
        return before is not None and (signum == signal.SIGHUP or now - before < ONE_ACT)

    def restore(self) -> None:
        faulthandler.unregister(signal.SIGQUIT)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)
