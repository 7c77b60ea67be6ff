"""Logs: workers write straight into node-local spool files; this follows them for those who copy or show.

No pipe lies between a worker and us: a slow reader cannot stall it, our death cannot SIGPIPE it, and a full or hung
log file system is not its concern. What all readers have taken is cut out of the spool (hole punching); a reader that
lags behind by more than LAG_LIMIT loses the oldest bytes, which are counted.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastic_run.core.vocabulary import Rank

LAG_LIMIT = 64 << 20
CUT_STEP = 1 << 20
TAIL = 16 << 10
"""Bytes at the end of each stream that are always kept, for the failure box."""
JOINED = "output"
"""Name of a stream that is a worker's stdout and stderr, in the order in which it wrote them."""
PAGE = 4096
_IN_MODIFY = 0x2
_PUNCH_HOLE_KEEP_SIZE = 0x3
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is to happen to a stream, and who reads it."""

    readers: tuple[str, ...]
    path: Path | None = None
    """The file that it is copied to."""
    prefix: bytes = b""
    """Of each line on the console."""
    filters: tuple[bytes, ...] = ()
    """A line with one of these is also copied into the attempt's filtered log."""
    alone: bool = False
    """No other rank writes where it is shown: it is shown as it comes."""


class Descriptor:
    """Of a spool file; closed when the last thread lets go of it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


@dataclass(slots=True)
class Stream:
    """One worker's stdout, stderr or both. `taken[reader]` is how far each reader has come, in bytes."""

    rank: Rank
    incarnation: int
    name: str
    treatment: Treatment
    file: Descriptor
    errors: Descriptor
    """The worker's stderr; another description of the same file if both are joined, so that its offset is the end of
    the last thing written to stderr."""
    taken: dict[str, int]
    lost: dict[str, int]
    size: int = 0
    cut: int = 0
    ended: bool = False
    """Nothing more will be written."""
    quiet: bool = False
    """The worker has ended: a line without its end is not waited for."""
    begun: bytes = b""
    """The line without its end that the filters saw last."""

    def measure(self) -> None:
        self.size = os.fstat(self.file.number).st_size

    def read(self, reader: str, limit: int) -> tuple[int, bytes]:
        """The next bytes for `reader` and their place."""
        at = self.taken[reader]
        return at, os.pread(self.file.number, min(limit, max(0, self.size - at)), at)

    def last_words(self) -> str:
        """The end of the stderr, at most TAIL bytes; of what is joined the end up to the last word on stderr.

        If that is long gone, or there was none, it is the end of all.
        """
        self.measure()
        said = os.lseek(self.errors.number, 0, os.SEEK_CUR) if self.name == JOINED else self.size
        end = said if said > self.cut else self.size
        start = max(self.cut, end - TAIL)
        return os.pread(self.file.number, end - start, start).decode(errors="replace")

    def took(self, reader: str, at: int, count: int, lost: int = 0) -> None:
        """`reader` is done with `count` bytes from `at`, `lost` of which reached nobody."""
        self.lost[reader] += lost
        if self.taken[reader] == at:  # else it was moved on meanwhile because it lagged
            self.taken[reader] = at + count

    @property
    def finished(self) -> bool:
        return self.ended and all(at >= self.size for at in self.taken.values())


class Logs:
    """`readers` name who copies or shows; each is woken through its function when there is something new."""

    def __init__(self, spool: str, readers: dict[str, Callable[[], None]]) -> None:
        self._spool = spool
        self._readers = readers
        self._lock = threading.Lock()
        self._streams: list[Stream] = []
        self._lost_before = dict.fromkeys(readers, 0)
        self._inotify = _libc.inotify_init1(os.O_CLOEXEC)
        if self._inotify < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1: raise fs.inotify.max_user_instances")
        threading.Thread(target=self._follow, name="logs", daemon=True).start()

    def open(self, rank: Rank, incarnation: int, name: str, treatment: Treatment) -> tuple[int, int]:
        """Descriptors for a new worker's stdout and stderr; the same one twice if the stream is only one of them.

        The rank's earlier stream of that name has ended.
        """
        spool = Path(self._spool) / f"{rank}.{incarnation}.{name}"
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        file = Descriptor(os.open(spool, flags | os.O_CREAT | os.O_EXCL, 0o600))
        errors = Descriptor(os.open(spool, flags)) if name == JOINED else file
        if _libc.inotify_add_watch(self._inotify, os.fsencode(spool), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch: raise fs.inotify.max_user_watches", str(spool))
        spool.unlink()  # nothing is left behind, however we end
        zero = dict.fromkeys([reader for reader in treatment.readers if reader in self._readers], 0)
        with self._lock:
            for old in self._streams:
                old.ended = old.ended or (old.rank, old.name) == (rank, name)
            new = Stream(rank, incarnation, name, treatment, file, errors, zero, dict(zero))
            self._streams.append(new)
        return file.number, errors.number

    def streams(self, reader: str) -> list[Stream]:
        """Those that `reader` is concerned with, sizes up to date."""
        return [stream for stream in self._measured() if reader in stream.taken]

    def _measured(self) -> list[Stream]:
        with self._lock:
            for stream in self._streams:
                stream.measure()
            for stream in [s for s in self._streams if s.finished]:
                self._streams.remove(stream)
                for reader, lost in stream.lost.items():
                    self._lost_before[reader] += lost
            return list(self._streams)

    def tail(self, rank: Rank, incarnation: int) -> str:
        """The last words of a worker that has ended."""
        with self._lock:
            of_it = [stream for stream in self._streams if (stream.rank, stream.incarnation) == (rank, incarnation)]
            for stream in of_it:
                stream.quiet = True
            for stream in of_it:
                if stream.name != "stdout":
                    return stream.last_words()
        return ""

    def lost(self, reader: str) -> int:
        """Bytes that `reader` has lost so far."""
        with self._lock:
            return self._lost_before[reader] + sum(s.lost.get(reader, 0) for s in self._streams)

    def drain(self, readers: dict[str, tuple[Callable[[], int], float]]) -> dict[str, int]:
        """At the end: wait until all output is read, or a reader's count stands still for so many seconds.

        Returns:
            Bytes that each reader has left unread.
        """
        with self._lock:
            for stream in self._streams:
                stream.ended = True
        ends = [(stream, stream.size) for stream in self._measured()]

        def unread(reader: str) -> int:
            return sum(max(0, end - s.taken[reader]) for s, end in ends if reader in s.taken)

        for wake in self._readers.values():
            wake()
        seen = {reader: (moved(), time.monotonic()) for reader, (moved, _) in readers.items()}
        while True:
            waiting = False
            for reader, (moved, patience) in readers.items():
                count, since = seen[reader]
                if moved() != count:
                    seen[reader] = (moved(), time.monotonic())
                waiting = waiting or (unread(reader) > 0 and time.monotonic() - since < patience)
            if not waiting:
                return {reader: unread(reader) for reader in readers}
            time.sleep(0.01)

    def _follow(self) -> None:
        """Thread: wait for writes, bound the backlog, wake the readers."""
        while True:
            os.read(self._inotify, 1 << 16)
            for stream in self._measured():
                self._bound(stream)
            for wake in self._readers.values():
                wake()

    def _bound(self, stream: Stream) -> None:
        for reader, at in stream.taken.items():
            lag = stream.size - at
            if lag > LAG_LIMIT:
                skip = lag - LAG_LIMIT // 2
                stream.took(reader, at, skip, lost=skip)
        keep = min([*stream.taken.values(), max(0, stream.size - TAIL)]) // PAGE * PAGE
        if keep - stream.cut >= CUT_STEP:
            # Where the file system cannot punch holes the spool grows as an ordinary log file would.
            _libc.fallocate(stream.file.number, _PUNCH_HOLE_KEEP_SIZE, stream.cut, keep - stream.cut)
            stream.cut = keep
