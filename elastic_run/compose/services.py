"""What a launch offers beside supervision, where it is asked for: torch's agent services and torchrun's plug-ins."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from elastic_run.compose.places import Places
from elastic_run.compose.streams import Streams
from elastic_run.core.events import Event, RendezvousFinished
from elastic_run.errors import ConfigError
from elastic_run.observe.torch_events import TorchEvents
from elastic_run.plan.plan import Plan
from elastic_run.plan.services import HEALTH_PORT, TIMER_FILE
from elastic_run.rendezvous.environment import MARK
from elastic_run.supervisor.blocked import Blocked
from elastic_run.supervisor.file_timer import FileTimer
from elastic_run.supervisor.loop import Clock, Journal, Sources
from elastic_run.supervisor.plugins import Plugins
from elastic_run.supervisor.process import Processes


class Rendezvous(Protocol):
    def begin(self, round: int) -> RendezvousFinished | None: ...


class Services:
    """Raises ConfigError, at creation and in `start`, where something that is asked for cannot be had."""

    def __init__(self, plan: Plan, post: Callable[[Event], None], sources: Sources, say: Callable[[str], None]) -> None:
        self._plan, self._post, self._sources, self._say = plan, post, sources, say
        self.clocks: list[Clock] = []
        self.variables: dict[str, str] = {}
        """For the workers."""
        self._timer: FileTimer | None = None
        self._plugins: Plugins | None = None
        port = plan.services.health_port
        if port is not None:
            from elastic_run.supervisor.health import Health  # here: an HTTP server takes 13 ms to import

            try:
                health = Health(port)
            except OSError as error:
                raise ConfigError(f"the variable {HEALTH_PORT}={port}: {error.strerror}; choose another") from error
            sources.listen(health, health.read)

    def start(self, job: str, places: Places, processes: Processes, streams: Streams) -> None:
        wanted = self._plan.services
        self._places = places
        if wanted.timer:
            path = wanted.timer_file or f"{places.scratch}/timer"
            try:
                self._timer = FileTimer(path, self._post)
            except OSError as error:
                raise ConfigError(f"the variable {TIMER_FILE}={path}: {error.strerror}; name a new file") from error
            self._sources.listen(self._timer, self._timer.read)
            self.clocks.append(self._timer)
            self.variables[TIMER_FILE] = path
        if wanted.blocked_limit is not None:
            self.clocks.append(Blocked(wanted.blocked_limit, processes.pids, self._post))
        if self._plan.plugins is not None:
            self._start_plugins(job, processes, streams)

    def _start_plugins(self, job: str, processes: Processes, streams: Streams) -> None:
        asked = self._plan.plugins
        assert asked is not None

        def placed(answer: Any) -> None:
            streams.placed = answer

        env = {**os.environ, MARK: ":".join(filter(None, [os.environ.get(MARK), job]))}
        self._plugins = Plugins(asked.asked(), self._plan.interpreter, env, placed, self._say)
        processes.serving.add(self._plugins.child.pid)
        self._sources.listen(self._plugins, self._read_plugins)

    def _read_plugins(self) -> list[Event]:
        assert self._plugins is not None
        facts = self._plugins.read()
        if self._plugins.gone:
            self._sources.forget(self._plugins)
        return facts

    def records(self) -> list[Journal]:
        """Who hears of facts and orders beside the journal."""
        plugins = self._plugins
        if plugins is None or self._plan.plugins is None or self._plan.plugins.event_log_handler == "null":
            return []
        role, rdzv = self._plan.role, self._plan.nodes.backend
        return [TorchEvents(plugins.record, self._places.run_id, role, rdzv, self._plan.argv[0])]

    def rounds(self, rendezvous: Rendezvous) -> Rendezvous:
        """A rendezvous after which it is known where output goes."""
        plugins = self._plugins
        if plugins is None or not plugins.places:
            return rendezvous
        return _Placed(rendezvous, plugins, self._places.run_id)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.close()
        if self._plugins is not None:
            self._plugins.close()


@dataclass(slots=True)
class _Placed:
    """A rendezvous that is finished when the plug-in has said where output goes."""

    rendezvous: Rendezvous
    plugins: Plugins
    run_id: str

    def begin(self, round: int) -> RendezvousFinished | None:
        met = self.rendezvous.begin(round)
        if met is None or met.assignment is None or self.plugins.gone:
            return met
        job = {"TORCHELASTIC_RUN_ID": self.run_id, "TORCHELASTIC_RESTART_COUNT": str(round)}
        place = met.assignment
        envs = {
            local_rank: {**job, "RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(place.world_size)}
            for local_rank, rank in enumerate(place.ranks)
        }
        self.plugins.place(place, envs)
        return None
