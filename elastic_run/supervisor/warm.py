"""What template and standby have in common: how a warm process is made, and what a start says to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_run.supervisor import orphans
from elastic_run.supervisor.child import Child
from elastic_run.supervisor.process import Start

PROGRAM = os.path.join(os.path.dirname(__file__), "template_main.py")
READY_WAIT = 30.0
"""Seconds for the imports; where the disk is slower, workers start cold."""
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
        """A new warm process; `mark` beside the job's says what it brings about."""
        first, later = (",".join(names) for names in (self.first, self.later))
        words = [str(self.launcher), self.place, "once" if once else "many", first, later, ROOM_FOR_NAME]
        outer = self.env.get(orphans.MARK)
        marks = dict.fromkeys([*([outer] if outer else []), job, mark])
        argv = [self.interpreter, "-u", PROGRAM, *words]
        return Child(argv, {**self.env, orphans.MARK: ":".join(marks)})

    def difference(self, start: Start) -> tuple[dict[str, str], list[str]]:
        """Variables to set, and to unset, in a process of this kind before it is that worker."""
        given = {name: value for name, value in start.env.items() if self.env.get(name) != value}
        return given, [name for name in self.env if name not in start.env]


def request(kind: Kind, key: int, start: Start) -> dict[str, Any]:
    given, unset = kind.difference(start)
    asked = {"id": key, "argv": list(start.argv), "set": given, "unset": unset, "cwd": start.cwd}
    return {**asked, "cpus": start.cpus and list(start.cpus)}
