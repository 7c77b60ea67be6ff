"""Watch: tells people what the core notes, and keeps state.json and summary.json."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elastic_run import __version__
from elastic_run.core.agent import Agent
from elastic_run.core.commands import Exit, Explain, Mark, Note
from elastic_run.core.phases import Phase
from elastic_run.observe.rundir import RunDirectory
from elastic_run.observe.words import box


@dataclass(slots=True)
class Watch:
    """`say` shows a line; `replace` gives a file new content; `logs(rank, restarts)` is where a rank's output is."""

    agent: Agent
    say: Callable[[str], None]
    replace: Callable[[Path, bytes], None]
    run: RunDirectory | None
    logs: Callable[[int, int], str | None]
    summary_file: Path | None = None
    began: float = field(default_factory=time.time)
    culprit: dict[str, Any] | None = None
    marks: list[tuple[int, str, float]] = field(default_factory=list)

    def note(self, order: Note) -> None:
        self.say(order.text)

    def explain(self, order: Explain) -> None:
        fault = order.fault
        host = fault.host or self.agent.site.host
        self.culprit = {
            "rank": fault.rank,
            "host": host,
            "pid": fault.pid,
            "because": fault.because,
            "error": fault.error.message if fault.error else None,
            "tail": fault.tail,
        }
        logs = self.logs(fault.rank, order.restarts) if fault.pid is not None else None
        for line in box(order, host, logs):
            self.say(line)

    def mark(self, order: Mark) -> None:
        self.marks.append((order.incident, order.phase.value, time.time()))
        self._keep_state()

    def _keep_state(self) -> None:
        if self.run is None:
            return
        job, node = self.agent.job, self.agent.node
        state = {
            "version": __version__,
            "host": self.agent.site.host,
            "phase": job.phase.value,
            "since": time.time(),
            "restarts": job.restarts,
            "incident": job.incident.ordinal if job.incident else None,
            "workers": [
                {"rank": w.rank, "pid": w.pid, "life": w.life.value, "incarnation": w.incarnation}
                for w in node.workers.values()
            ],
        }
        self.replace(self.run.state, _json(state))

    def close(self, left: Exit, code: int, lost: dict[str, int]) -> None:
        """Write the verdict; `code` is what the launcher really ends with."""
        self._keep_state()
        summary = {
            "version": __version__,
            "exit_code": code,
            "origin": left.origin.value,
            "because": left.because,
            "culprit": self.culprit if code else None,
            "restarts": self.agent.job.restarts,
            "incidents": self.agent.job.incidents,
            "began": self.began,
            "ended": time.time(),
            "phases": [{"incident": i, "phase": p, "at": at} for i, p, at in self.marks if p != Phase.DONE.value],
            "lost": lost,
        }
        for path in (self.run.summary if self.run else None, self.summary_file):
            if path is not None:
                self.replace(path, _json(summary))


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
