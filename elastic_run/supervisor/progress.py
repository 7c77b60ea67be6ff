"""Looks at the progress file in a thread: it may lie on a file system that hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from elastic_run.core.events import Event, ProgressRead


class ProgressFile:
    """The token changes whenever the file is written or replaced. A look that hangs posts nothing."""

    def __init__(self, path: str | None, post: Callable[[Event], None]) -> None:
        self._path = path
        self._post = post

    def look(self, seq: int) -> None:
        threading.Thread(target=self._look, args=(seq,), name="progress", daemon=True).start()

    def _look(self, seq: int) -> None:
        token = None
        if self._path is not None:
            try:
                stat = os.stat(self._path)
                token = f"{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
            except OSError:
                token = None  # not there yet: no progress so far
        self._post(ProgressRead(seq, token))
