"""Where each rank's output and error file go: the plan's choice, the run directory, or a plug-in's places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elastic_run.core.vocabulary import Rank
from elastic_run.observe.rundir import RunDirectory
from elastic_run.plan.output import Choice, Place
from elastic_run.plan.plan import Plan
from elastic_run.supervisor import terminal, writer
from elastic_run.supervisor.logs import Treatment
from elastic_run.supervisor.terminal import Terminal
from elastic_run.supervisor.writer import Writer


@dataclass(slots=True)
class Streams:
    plan: Plan
    run: RunDirectory | None
    host: str
    writer: Writer
    terminal: Terminal
    errors: dict[Rank, bytes] = field(default_factory=dict, init=False)
    """The newest error file of each rank."""
    local_ranks: dict[Rank, int] = field(default_factory=dict, init=False)
    """Of the ranks that were started here."""
    placed: Mapping[str, Mapping[str, str]] | None = field(default=None, init=False)
    """What a plug-in (--logs-specs) says of the present attempt: torch's LogsDest, paths by local rank."""

    def attempt(self, restarts: int) -> int:
        """Number of the attempt, for the logs: a requeued job goes on counting."""
        return restarts + (self.run.first_attempt if self.run else 0)

    def joined(self, local_rank: int) -> bool:
        """Whether a rank's stdout and stderr are one stream, which keeps their order: they end in the same place, and
        nothing asks for files apart."""
        return self.terminal.one_place and self.placed is None and not self.plan.output.asked(local_rank)

    def treatment(self, rank: Rank, local_rank: int, name: str, restarts: int) -> Treatment | None:
        """None: the worker has the launcher's own stream."""
        self.local_ranks[rank] = local_rank
        choice = self._choice(rank, local_rank, name)
        if choice is None:
            return None
        path = self._file(rank, local_rank, name, restarts) if choice.copy else None
        readers = [*([writer.READER] if path else []), *([terminal.READER] if choice.show else [])]
        filters = tuple(map(os.fsencode, choice.filters))
        apart = self.joined(local_rank) or not self.terminal.one_place
        return Treatment(tuple(readers), path, choice.prefix, filters, self.plan.workers == 1 and apart)

    def logs_of(self, rank: Rank, restarts: int) -> str | None:
        """Where a person finds the rank's output; None: it was not kept."""
        local_rank = self.local_ranks.get(rank)
        if local_rank is None:
            return None  # on another node
        treatment = self.treatment(rank, local_rank, "stderr", restarts)
        return str(treatment.path.parent) if treatment is not None and treatment.path is not None else None

    def keep_error(self, rank: Rank, attempt: int, said: bytes) -> None:
        local_rank = str(self.local_ranks[rank])
        self.errors[rank] = said
        if self.placed is not None and self.placed["error_files"].get(local_rank):
            self.writer.replace(Path(self.placed["error_files"][local_rank]), said)
        elif self.run is not None:
            self.writer.replace(self.run.rank(attempt, rank) / "error.json", said)

    def _choice(self, rank: Rank, local_rank: int, name: str) -> Choice | None:
        on_terminal = self.terminal.on_terminal[name]
        auto = self.plan.prefix == "auto" and self.plan.workers > 1 and on_terminal
        prefixed = self.plan.prefix == "always" or auto
        place = Place(rank, local_rank, self.plan.role, self.host, self.plan.workers == 1)
        if self.placed is None:
            return self.plan.output.choose(place, name, prefixed, on_terminal)
        redirected, tee = (bool(self.placed[kind].get(str(local_rank))) for kind in (f"{name}s", f"tee_{name}s"))
        return self.plan.output.placed(place, redirected, tee, on_terminal)

    def _file(self, rank: Rank, local_rank: int, name: str, restarts: int) -> Path | None:
        if self.placed is not None:
            path = self.placed[f"{name}s"].get(str(local_rank)) or self.placed[f"tee_{name}s"].get(str(local_rank))
            return Path(path) if path and path != os.devnull else None
        return self.run.rank(self.attempt(restarts), rank) / f"{name}.log" if self.run is not None else None
