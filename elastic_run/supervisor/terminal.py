"""The one thread that writes to the launcher's stdout and stderr: our own lines, and the workers' output.

A console that is closed or never read costs what would have been shown there, counted, and nothing else.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque

from elastic_run.supervisor.logs import JOINED, Logs, Stream

READER = "console"
CHUNK = 1 << 20
LONGEST_LINE = 16 << 20
PIECE = 16 << 10
"""Bytes in one write: a pipe takes all of it before the write returns, and a slow one must be seen to move."""
PARTIAL_AFTER = 0.2
"""Seconds after which a line without its end (a progress bar, a prompt) is shown on a terminal."""
HELD = 1.0
"""The same elsewhere, where a line that another rank's output breaks in two does more harm."""
OURS_LIMIT = 10_000
"""Lines of our own that wait for a console nobody reads."""


class Terminal:
    """Knows the places behind 1 and 2, by the names of the streams that go there."""

    def __init__(self) -> None:
        self._fds = {"stdout": 1, "stderr": 2, JOINED: 1}
        self._closed: set[str] = set()
        self.on_terminal = {name: os.isatty(fd) for name, fd in self._fds.items()}
        self.one_place = os.path.sameopenfile(1, 2)
        """Both go to the same file, pipe or terminal."""
        self._place = {name: 1 if self.one_place else fd for name, fd in self._fds.items()}
        self._ours: deque[str] = deque()
        self._logs: Logs | None = None
        self._unfinished: dict[int, tuple[Stream, bool]] = {}
        """By place: whose line stands there without its end, and whether that stream's next line begins anew there."""
        self._since: dict[int, float] = {}
        self._wake = threading.Event()
        self._closing = False
        self.moved = 0
        """Grows with every write that returned: tells a slow console from a stuck one."""
        self.lost_lines = 0
        self._thread = threading.Thread(target=self._run, name="terminal", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def follow(self, logs: Logs) -> None:
        self._logs = logs

    def say(self, text: str) -> None:
        """A line of our own on stderr, behind the output that workers have written before."""
        if len(self._ours) >= OURS_LIMIT:
            self.lost_lines += 1
            return
        self._ours.append(text)
        self._wake.set()

    def close(self, patience: float) -> bool:
        """Show what is left; False if the console took nothing for `patience` seconds."""
        self._closing = True
        self._wake.set()
        moved = -1
        while self._thread.is_alive() and moved != self.moved:
            moved = self.moved
            self._thread.join(patience)
        self.lost_lines += len(self._ours)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # Else a background launcher that writes to its terminal under `stty tostop` would be stopped, and its guard
        # would end the job. Blocked in this thread only: workers inherit the main thread's mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        partial = False
        while True:
            self._wake.wait(PARTIAL_AFTER if partial else None)
            self._wake.clear()
            closing = self._closing
            ours, count = list(self._ours), len(self._ours)
            partial = self._show_workers(closing)
            if ours:
                text = "".join(f"elastic-run: {line}\n" for entry in ours for line in entry.splitlines())
                if not self._write("stderr", self._line_break("stderr") + text.encode(errors="replace")):
                    self.lost_lines += count
                for _ in range(count):
                    self._ours.popleft()
            if closing:
                return

    def _show_workers(self, closing: bool) -> bool:
        """Show whole lines of all workers in turn; True if some line still waits for its end."""
        waiting = False
        more = True
        while more:
            more, waiting = False, False
            for stream in self._logs.streams(READER) if self._logs else []:
                at, data = stream.read(READER, CHUNK)
                shown = self._ready(stream, data, closing)
                if shown:
                    ok = self._write(stream.name, self._framed(stream, shown))
                    stream.took(READER, at, len(shown), lost=0 if ok else len(shown))
                    more = True
                elif data:
                    waiting = True
        return waiting

    def _ready(self, stream: Stream, data: bytes, closing: bool) -> bytes:
        """As much of `data` as may be shown now."""
        if stream.treatment.alone:
            return data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        key = id(stream)
        if end or not data:
            self._since.pop(key, None)
            return data[:end]
        if len(data) >= CHUNK:  # a very long line: look further for its end
            _, data = stream.read(READER, LONGEST_LINE)
            end = data.find(b"\n") + 1
            closing = closing or stream.ended or stream.quiet
            return data[:end] if end else data if len(data) >= LONGEST_LINE or closing else b""
        if closing or stream.ended or stream.quiet:
            return data
        waits = time.monotonic() - self._since.setdefault(key, time.monotonic())
        return data if waits >= (PARTIAL_AFTER if self.on_terminal[stream.name] else HELD) else b""

    def _framed(self, stream: Stream, data: bytes) -> bytes:
        """With prefixes at line starts, and a line break where another stream's line stands unfinished."""
        owner, rewound = self._unfinished.get(self._place[stream.name], (None, False))
        goes_on = owner is stream and not rewound
        start = b"" if owner is stream else self._line_break(stream.name)
        rewinds = data.endswith(b"\r")
        self._unfinished[self._place[stream.name]] = (stream, rewinds)
        if data.endswith(b"\n") or (rewinds and self.on_terminal[stream.name]):
            del self._unfinished[self._place[stream.name]]
        prefix = stream.treatment.prefix
        if not prefix:
            return start + data
        body = data[:-1].replace(b"\n", b"\n" + prefix) + data[-1:]
        return start + (b"" if goes_on else prefix) + body

    def _line_break(self, name: str) -> bytes:
        """Ends the line that stands unfinished where the stream of that name goes."""
        return b"\n" if self._unfinished.pop(self._place[name], None) else b""

    def _write(self, name: str, data: bytes) -> bool:
        """All of `data`, or False once the console is closed."""
        if name in self._closed:
            return False
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fds[name], view[:PIECE]) :]
            except BlockingIOError:  # somebody else made it non-blocking
                time.sleep(0.05)
            except OSError:
                self._closed.add(name)
                return False
            self.moved += 1
        return True
