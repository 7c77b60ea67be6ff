"""The run directory: its name, who owns it, which attempt comes next, and the index of this host's runs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT = "elastic-run-logs"
OWNER = "owner.json"
NAMES_TRIED = 1000
LONGEST_NAME = 100
RESERVE = "reserve"
RESERVED = 64 << 10
"""Bytes kept free for the last state and the summary, should the disk fill up meanwhile."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """`<log-dir>/<job>/node_<k>`; 0700, its files 0600. `first_attempt` is behind every earlier one."""

    path: Path
    first_attempt: int
    instead_of: str = ""
    """Why the default place was not used, if it was not."""

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    def put_events_aside(self) -> None:
        """Rename events.jsonl to the next free events.<n>.jsonl."""
        numbers = [int(p.name[7:-6]) for p in self.path.glob("events.*.jsonl") if p.name[7:-6].isdigit()]
        self.events.rename(self.path / f"events.{max(numbers, default=-1) + 1}.jsonl")

    def reserve(self) -> None:
        """Set room aside for the last records."""
        fd = os.open(self.path / RESERVE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVED)
        finally:
            os.close(fd)

    def give_room(self) -> None:
        """The last records are about to be written."""
        (self.path / RESERVE).unlink(missing_ok=True)

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    def rank(self, attempt: int, rank: int) -> Path:
        return self.path / f"attempt_{attempt}" / str(rank)


def job_name(run_id: str | None, environ: Mapping[str, str]) -> tuple[str, bool]:
    """The job's name, and whether a later launch of the same job has the same name (a requeue)."""
    for variable in ("SLURM_JOB_ID", "MINDX_TASK_ID"):
        if environ.get(variable):
            return _safe(environ[variable]), True
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return (f"{_safe(run_id)}-{stamp}" if run_id else f"{stamp}-{os.getpid()}"), False


def take(given: str | None, name: str, returns: bool, node: int = 0) -> RunDirectory:
    """Make and own a run directory.

    A directory whose owner is dead is continued if the job `returns`; one whose owner lives is left alone and the
    next free name taken. Without `given` a read-only default place is replaced by the temporary directory.

    Raises:
        OSError: `given` cannot be written.
    """
    base = Path(given or DEFAULT).absolute()
    try:
        return _take(base, name, returns, node, "")
    except OSError as error:
        if given is not None:
            raise
        instead = Path(tempfile.gettempdir()) / f"{DEFAULT}-{os.getuid()}"
        return _take(instead, name, returns, node, f"{base} cannot be written ({error.strerror})")


def _take(base: Path, name: str, returns: bool, node: int, why: str) -> RunDirectory:
    for number in range(NAMES_TRIED):
        job = base / (name if number == 0 else f"{name}.{number}")
        path = job / f"node_{node}"
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        job.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            owned = _own(path, returns)
        except OSError:
            for made in (path, job, base):
                try:
                    made.rmdir()  # only what is empty
                except OSError:
                    break
            raise
        if owned:
            attempts = [int(p.name.removeprefix("attempt_")) for p in path.glob("attempt_*") if p.name[8:].isdigit()]
            return RunDirectory(path, max(attempts, default=-1) + 1, why)
    raise OSError(17, f"{NAMES_TRIED} live runs named {name} already", str(base))


def _own(path: Path, returns: bool) -> bool:
    """Of several that find a dead owner at once only one may remove its file, hence the lock of this host."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
    except OSError:
        pass  # a file system without locks
    try:
        return _own_alone(path, returns)
    finally:
        os.close(directory)


def _own_alone(path: Path, returns: bool) -> bool:
    me = {"host": os.uname().nodename, "pid": os.getpid(), "started": started(os.getpid())}
    owner = path / OWNER
    for _ in range(2):
        try:
            fd = os.open(owner, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if not returns or _alive(owner):
                return False
            owner.unlink(missing_ok=True)
            continue
        try:
            with os.fdopen(fd, "w") as file:
                json.dump(me, file)
        except OSError:
            owner.unlink()
            raise
        return True
    return False


def _alive(owner: Path) -> bool:
    """Whether the launcher named there may still live; one on another host is asked nothing and counts as dead."""
    try:
        said = json.loads(owner.read_text())
        pid, host, since = int(said["pid"]), said["host"], said["started"]
    except (ValueError, KeyError, TypeError):
        return time.time() - owner.stat().st_mtime < 5  # perhaps it is just being written
    return bool(host == os.uname().nodename and started(pid) == since)


def started(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot: with the pid it names one process only."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b") ")[2].split()[19])
    except OSError:
        return None


def index(run: Path, environ: Mapping[str, str]) -> None:
    """Name this run among the host's: a link under $XDG_STATE_HOME/elastic-run/runs; links to nothing are removed."""
    try:
        _index(run, environ)
    except OSError:
        pass  # a convenience; who has no writable home does without it


def _index(run: Path, environ: Mapping[str, str]) -> None:
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/nonexistent"), ".local/state")
    runs = Path(home) / "elastic-run" / "runs"
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    for link in runs.iterdir():
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)
    link = runs / f"{run.parent.name}-{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(run)


def _safe(name: str) -> str:
    """A name that is one path component."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", name).lstrip(".")[:LONGEST_NAME] or "job"
