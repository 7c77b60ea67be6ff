"""Which processes are ours, and what the kernel can tell of them. Stdlib only: the guard uses this too.

Ours is what carries the job's mark in its environment, and what stayed in a session that a worker of ours leads.
A job's mark is a path of ids, outermost launcher first, so that a launcher also knows what a nested one started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Mapping
from typing import NamedTuple

MARK = "ELASTIC_RUN_JOB"
_MARK_PREFIX = MARK.encode() + b"="
KTHREADD = 2
"""Parent of the kernel's threads, which have no environment either."""
MOST_LOOKS = 8
END_WAIT = 1.0
"""Seconds for the kernel to let go of a killed process."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def become_subreaper() -> None:
    """Orphaned descendants become our children instead of init's (PR_SET_CHILD_SUBREAPER)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_at_parent_death(signum: int) -> None:
    """The kernel sends us `signum` when the parent thread dies (PR_SET_PDEATHSIG); survives exec, not fork."""
    _prctl(_PR_SET_PDEATHSIG, signum)


class Stat(NamedTuple):
    """From /proc/PID/stat. `started` in clock ticks since boot: with the pid it names one process only."""

    state: str
    parent: int
    session: int
    started: int


def stat_of(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def is_marked(pid: int, job: str) -> bool:
    """Whether the environment that `pid` was started with names the job. False if we may not read it."""
    return _names(_environ(pid), job)


def _environ(pid: int) -> bytes:
    """Empty for one that is ending: its memory goes before its state says so. A kernel thread has none either."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _names(environ: bytes, job: str) -> bool:
    wanted, entries = job.encode(), environ.split(b"\0")
    return any(e.startswith(_MARK_PREFIX) and wanted in e[len(_MARK_PREFIX) :].split(b":") for e in entries)


def ours(job: str, leaders: Mapping[int, int] | None = None) -> list[int]:
    """Pids of living processes of the job, in no order; `leaders`: pids and start times of our sessions' leaders.

    Only this user's processes are looked at. A zombie has no environment and does not count. Where a process has ended
    since the last look, it may have left a child behind that was not listed yet, so that is looked for again.
    """
    ended: set[int] = set()
    for _ in range(MOST_LOOKS):
        found, now = _look(job, leaders)
        if found or now <= ended:
            break
        ended = now
    return found


def _look(job: str, leaders: Mapping[int, int] | None) -> tuple[list[int], set[int]]:
    """Pids of the job, and pids that were listed and had no life in them any more."""
    uid, me = os.getuid(), os.getpid()
    found, ended = [], set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        pid = int(name)
        try:
            if os.stat(f"/proc/{pid}").st_uid != uid:
                continue
        except FileNotFoundError:
            ended.add(pid)
            continue
        environ = _environ(pid)
        if _names(environ, job) or (leaders and _lives_in(pid, leaders)):
            found.append(pid)
        elif (stat := stat_of(pid)) is None or stat.state in "ZX" or not (environ or KTHREADD in (pid, stat.parent)):
            ended.add(pid)
    return found, ended


def _lives_in(pid: int, leaders: Mapping[int, int]) -> bool:
    """A session has the pid of its leader; once it is empty, the kernel may give both to a stranger."""
    stat = stat_of(pid)
    if stat is None or stat.session not in leaders or stat.state in "ZX":
        return False
    leader = stat_of(stat.session)
    return leader is None or leader.started == leaders[stat.session]


def send(pid: int, signum: int) -> None:
    """kill(2); a process that has just gone is no error."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass


def send_group(leader: int, signum: int) -> None:
    """killpg(2); falls back to the process where it has no group of its own any more."""
    try:
        os.killpg(leader, signum)
    except ProcessLookupError:
        send(leader, signum)


def reap(pid: int) -> int | None:
    """Wait status of our child if it has ended; never waits, never touches another child's status."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if done else None


def end(child: int) -> None:
    """Kill a child of ours with its group, and wait, for a second at most, until it is gone."""
    send_group(child, signal.SIGKILL)
    until = time.monotonic() + END_WAIT
    while reap(child) is None and stat_of(child) is not None and time.monotonic() < until:
        time.sleep(0.001)


def children_of_me() -> list[int]:
    """Pids of our children, adopted ones included."""
    found: list[int] = []
    tasks = "/proc/self/task"
    try:
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/children") as file:
                found += [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN, or a thread that has just ended
        me = os.getpid()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        found = [pid for pid in pids if (stat := stat_of(pid)) is not None and stat[1] == me]
    return found
