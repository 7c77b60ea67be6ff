"""The one thread that owns the files of the run directory. Whatever a disk does, the loop does not wait for it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from elastic_run.supervisor.logs import Logs, Stream

READER = "files"
QUEUE_LIMIT = 16 << 20
CHUNK = 1 << 20
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Writer:
    """Appends, replaces and copies in order. Records that cannot be written are counted, not retried.

    `complain` is called once, from the thread, with the first error.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._queue: deque[tuple[Callable[[], object], int]] = deque()
        self._queued = 0
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._closing = False
        self._torn: set[Path] = set()
        self._logs: Logs | None = None
        self._max_size: int | None = None
        self.lost_records = 0
        self.moved = 0
        """Grows with every piece of work that is done: tells a slow disk from a hung one."""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def follow(self, logs: Logs, max_size: int | None) -> None:
        """Copy the workers' output to its files from now on, in files of at most `max_size` bytes."""
        self._logs, self._max_size = logs, max_size

    def append(self, path: Path, data: bytes) -> None:
        """Add a whole record to the end of a file."""
        self._put(lambda: self._append(path, data), len(data))

    def replace(self, path: Path, data: bytes) -> None:
        """Give a file new content, all of it or nothing (rename)."""
        self._put(lambda: self._replace(path, data), len(data))

    def call(self, work: Callable[[], object]) -> None:
        """Any other piece of file work, in its turn."""
        self._put(work, 0)

    def close(self, wait: float) -> bool:
        """Write what is queued; False if that took longer than `wait` seconds, and the rest is lost."""
        self._closing = True
        self._wake.set()
        self._thread.join(wait)
        self.lost_records += len(self._queue)
        return not self._thread.is_alive()

    def _put(self, work: Callable[[], object], size: int) -> None:
        if self._queued + size > QUEUE_LIMIT:
            self.lost_records += 1
            return
        self._queued += size
        self._queue.append((work, size))
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            closing = self._closing
            while self._queue:
                work, size = self._queue[0]
                self._attempt(work)
                self._queue.popleft()
                self._queued -= size
            self._copy_logs()
            if closing:
                return

    def _attempt(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except OSError as error:
            if self.lost_records == 0:
                where = f"{error.filename}: " if error.filename else ""
                self._complain(f"cannot write records ({where}{error.strerror}); the job goes on without them")
            self.lost_records += 1
            return False
        finally:
            self.moved += 1
        return True

    def _append(self, path: Path, data: bytes) -> None:
        """A record cut short by a full disk gets its line ended before the next one."""
        whole = b"\n" + data if path in self._torn else data
        try:
            fd = os.open(path, FLAGS, 0o600)
        except FileNotFoundError:
            _make_private(path.parent)
            fd = os.open(path, FLAGS, 0o600)
        try:
            written = 0
            while written < len(whole):
                written += os.write(fd, whole[written:])
        except OSError as error:
            if written:
                self._torn.add(path)
            error.filename = str(path)
            raise
        finally:
            os.close(fd)
        self._torn.discard(path)

    def _replace(self, path: Path, data: bytes) -> None:
        """A link, a pipe or a device is written through: it must stay what it is."""
        if path.is_symlink() or (path.exists() and not path.is_file()):
            with open(path, "wb", buffering=0) as file:
                file.write(data)
            return
        new = path.with_name(path.name + ".new")
        new.unlink(missing_ok=True)
        try:
            self._append(new, data)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        os.replace(new, path)

    def _copy_logs(self) -> None:
        for stream in self._logs.streams(READER) if self._logs is not None else []:
            path = stream.treatment.path
            while path is not None:
                at, data = stream.read(READER, min(CHUNK, self._max_size or CHUNK))
                if not data:
                    break
                if self._max_size is not None:
                    data = data[: data.rfind(b"\n") + 1] or data  # files are cut between lines
                kept = self._attempt(partial(self._add_output, path, data))
                stream.took(READER, at, len(data), lost=0 if kept else len(data))
                if stream.treatment.filters:
                    self._attempt(partial(self._filter, stream, path, data))

    def _add_output(self, path: Path, data: bytes) -> None:
        if self._max_size is not None and path.exists() and path.stat().st_size + len(data) > self._max_size:
            path.replace(path.with_name(path.name + ".1"))
        self._append(path, data)

    def _filter(self, stream: Stream, path: Path, data: bytes) -> None:
        """Copy lines with one of the stream's texts into the attempt's filtered log."""
        *lines, stream.begun = (stream.begun + data).split(b"\n")
        prefix, filters = stream.treatment.prefix, stream.treatment.filters
        chosen = [prefix + line + b"\n" for line in lines if any(text in line for text in filters)]
        if chosen:
            self._append(path.parent.parent / f"filtered_{stream.name}.log", b"".join(chosen))


def _make_private(directory: Path) -> None:
    """As mkdir -p, but every directory that is made is 0700."""
    if not directory.exists():
        _make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
