"""What template and standby have in common: how a warm process is made, and what a start says to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_run.supervisor import orphans
from elastic_run.supervisor.child import Child
from elastic_run.supervisor.process import Start

STORE_HOST = os.path.join(os.path.dirname(__file__), "store_host.py")
PROGRAM = os.path.join(os.path.dirname(__file__), "template_main.py")
READY_WAIT = 30.0
"""Seconds for the imports; where the disk is slower, workers start cold."""
BUSY_WAIT = 2.0
"""Seconds for a warm process that imports what it does not need at once; then it is quicker to start cold."""
ANSWER_WAIT = 10.0
"""Seconds from a start to its pid."""
ROOM_FOR_NAME = " " * 4096
"""A word of a warm process; its worker writes its own command over it, for ps and the like."""
FROZEN = frozenset(
    {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"}
)
"""Read when a library is loaded or the interpreter starts; a worker that needs another value starts cold."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`env` is that of all workers, but for what differs between ranks."""

    interpreter: str
    env: Mapping[str, str]
    first: Sequence[str]
    """Modules to import before the first start."""
    later: Sequence[str]
    """Modules to import when there is nothing else to do."""
    place: str
    """The program's own directory, first on its path."""
    launcher: int

    def child(self, job: str, mark: str, *, once: bool) -> Child:
        """A new warm process; `mark` beside the job's says what it brings about.

        It dies with the launcher's main thread, which therefore must be the one that calls this.
        """
        first, later = (",".join(names) for names in (self.first, self.later))
        words = [str(self.launcher), self.place, "once" if once else "many", first, later, ROOM_FOR_NAME]
        outer = self.env.get(orphans.MARK)
        marks = dict.fromkeys([*([outer] if outer else []), job, mark])
        argv = [self.interpreter, "-u", PROGRAM, *words]
        return Child(argv, {**self.env, orphans.MARK: ":".join(marks)})

    def store_host(self, job: str) -> Callable[[int, int, str, int], int]:
        """What starts a host of the workers' store that needs no template; -> its pid."""

        def start(listening: int, life: int, address: str, port: int) -> int:
            words = [self.interpreter, STORE_HOST, str(listening), str(life), address, str(port)]
            env = {**self.env, orphans.MARK: job}
            fds = (listening, life)
            host = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, pass_fds=fds, start_new_session=True)
            host.returncode = 0  # whatever it will be, nobody asks: its end is seen on `life`
            return host.pid

        return start

    def difference(self, start: Start) -> tuple[dict[str, str], list[str]]:
        """Variables to set, and to unset, in a process of this kind before it is that worker."""
        given = {name: value for name, value in start.env.items() if self.env.get(name) != value}
        return given, [name for name in self.env if name not in start.env]


def request(kind: Kind, key: int, start: Start) -> dict[str, Any]:
    given, unset = kind.difference(start)
    asked = {"id": key, "argv": list(start.argv), "set": given, "unset": unset, "cwd": start.cwd}
    return {**asked, "cpus": start.cpus and list(start.cpus)}
