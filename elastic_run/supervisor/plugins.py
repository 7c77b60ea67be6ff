"""torchrun's plug-ins, in a torch host: asked where output goes before each attempt, told what happens to workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from elastic_run.core.events import Event, RendezvousFinished
from elastic_run.core.vocabulary import Assignment
from elastic_run.errors import ConfigError
from elastic_run.supervisor.child import Child

PROGRAM = os.path.join(os.path.dirname(__file__), "torch_host.py")
END_WAIT = 5.0
"""Seconds for a handler to deliver what it was told."""


class Plugins:
    """A source of the loop. `placed` is called with what a --logs-specs plug-in says of an attempt (torch's LogsDest).

    Raises:
        ConfigError: torch knows no such handler, or the plug-in cannot be made.
    """

    def __init__(
        self,
        asked: Mapping[str, Any],
        interpreter: str,
        env: Mapping[str, str],
        placed: Callable[[Mapping[str, Mapping[str, str]]], None],
        say: Callable[[str], None],
    ) -> None:
        self._placed = placed
        self._say = say
        self.gone = False
        """The host has ended; the job goes on without plug-ins."""
        self._waiting: list[Assignment | None] = []
        """One entry for each unanswered request: the assignment that waits for it."""
        self.places = asked["logs_specs"] is not None
        self.child = Child([interpreter, PROGRAM], env)
        self.child.send({"do": "begin", **asked})
        answer = self.child.receive()
        if answer is None or answer["error"]:
            self.child.close(0.0)
            raise ConfigError(answer["error"] if answer else "the plug-ins' host ended; its last words are above")

    def fileno(self) -> int:
        return self.child.link.fileno()

    def place(self, assignment: Assignment, envs: Mapping[int, Mapping[str, str]]) -> None:
        """Ask where output of this attempt goes; RendezvousFinished comes from `read` with the answer."""
        self._waiting.append(assignment)
        self.child.send({"do": "reify", "envs": {str(rank): dict(env) for rank, env in envs.items()}})

    def record(self, name: str, source: str, timestamp: int, metadata: Mapping[str, Any]) -> None:
        """An event in torch's form (torch.distributed.elastic.events.Event)."""
        self._waiting.append(None)
        event = {"name": name, "source": source, "timestamp": timestamp, "metadata": dict(metadata)}
        self.child.send({"do": "record", **event})

    def read(self) -> list[Event]:
        answer = self.child.receive()
        if answer is None:
            self.gone = True
            self._say("the process with torchrun's plug-ins has ended; the job goes on without them")
            return [RendezvousFinished(a.round, a) for a in self._waiting if a is not None]
        assignment, error = self._waiting.pop(0), answer.get("error", "")
        if assignment is None:
            if error:
                self._say(f"--event-log-handler: {error}")
            return []
        if error:
            return [RendezvousFinished(assignment.round, None, f"--logs-specs: {error}")]
        self._placed(answer)
        return [RendezvousFinished(assignment.round, assignment)]

    def close(self) -> None:
        self.child.close(END_WAIT)
