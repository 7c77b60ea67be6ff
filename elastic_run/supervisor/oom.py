"""Whether the kernel's out-of-memory killer was at work: the counters of a process's memory cgroup, v2 and v1."""

from __future__ import annotations

from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


def counter_file(pid: int, mount: Path = MOUNT, proc: Path = Path("/proc")) -> Path | None:
    """The file that counts OOM kills in the cgroup of `pid`; None where there is none.

    In a container the path in /proc/PID/cgroup may be the host's; then the mount's own root is meant.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            roots, name = [mount, mount / "unified"], "memory.events"
        elif "memory" in controllers.split(","):
            roots, name = [mount / "memory"], "memory.oom_control"
        else:
            continue
        for candidate in [p / name for root in roots for p in (root / path.lstrip("/"), root)]:
            if read_counter(candidate) is not None:
                return candidate
    return None


def read_counter(file: Path | None) -> int | None:
    """The `oom_kill` value of a cgroup file; None if it cannot be told."""
    if file is None:
        return None
    try:
        words = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return None
    return next((int(w[1]) for w in words if len(w) == 2 and w[0] == "oom_kill"), None)
