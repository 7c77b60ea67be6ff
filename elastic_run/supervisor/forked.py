"""From fork to worker: children that the launcher adopts, and what each does before it is its program. Stdlib only."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from elastic_run.supervisor import orphans

ADOPTION_WAIT = 5.0
OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a child of the launcher may treat in its own way; a worker gets back what was inherited."""
PYTHONS_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""By every interpreter at its start; a program that is exec'ed gets the default back, as from subprocess."""


def fork_adopted(count: int, child: Callable[[int], NoReturn]) -> list[int]:
    """Fork `count` children whose parent will be the nearest subreaper above us: the launcher.

    One process in the middle forks all of them and exits: two copies of the page tables for each would cost more. The
    pids may be told to the launcher only after that exit, or it would wait for a child that is not its own yet.
    """
    read, write = os.pipe()
    middle = os.fork()
    if middle == 0:
        code = 127
        try:
            for number in range(count):
                if os.fork() == 0:
                    os.close(read)
                    os.write(write, b"%d %d\n" % (number, os.getpid()))
                    os.close(write)
                    child(number)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)  # whatever happens, neither it nor a child goes on as its parent
    os.close(write)
    os.waitpid(middle, 0)
    said = b""
    while said.count(b"\n") < count and (chunk := os.read(read, 4096)):
        said += chunk
    os.close(read)
    lines = [line.split() for line in said.splitlines()]
    found = {int(number): int(pid) for number, pid in lines}
    return [found.get(number, 0) for number in range(count)]


def lasting_threads() -> int:
    """Threads of this process, without those that end before each fork and begin again at need, as OpenBLAS's do."""
    if _threads() > 1:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return _threads()


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def settle(launcher: int, gone: Callable[[], bool]) -> None:
    """A session of its own, adoption awaited, SIGTERM at the launcher's death.

    Armed before the adoption the kernel would send it when the process in the middle exits, so the parent is awaited
    first and looked at once more after arming: a launcher that died in between sends nothing.

    Raises:
        OSError: the launcher is gone, or never adopts us.
    """
    os.setsid()
    until = time.monotonic() + ADOPTION_WAIT
    while os.getppid() != launcher:
        if time.monotonic() > until or gone():
            raise OSError(0, "not adopted by the launcher")
        time.sleep(0.0002)
    orphans.signal_at_parent_death(signal.SIGTERM)
    if os.getppid() != launcher:
        os._exit(1)


def take_place(request: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Directory, cores and standard streams of the worker that `request` asks for."""
    os.chdir(request["cwd"])
    if request["cpus"]:
        os.sched_setaffinity(0, request["cpus"])
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
