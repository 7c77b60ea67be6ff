"""What survives a restart of the server: declared, initialised and registered jobs, and faults of devices.

One SQLite file. Times are written as wall clock and turned back into this process's clock when read.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.jobs import declared, written
from elastic_run.clusterd.registry import Declared, Registry
from elastic_run.core.dialogue import FaultRank, FaultType
from elastic_run.errors import ConfigError, PlatformError

VERSION = 1


class Store:
    """`path` is a directory, made if missing.

    Raises:
        PlatformError: it cannot be written, is no store, or another server holds it.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._base = sqlite3.connect(path / "jobs.sqlite", timeout=0.0, isolation_level=None)
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            self._base.execute("CREATE TABLE IF NOT EXISTS job (id TEXT PRIMARY KEY, version INTEGER, told TEXT)")
            self._base.execute("BEGIN IMMEDIATE")
            self._base.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise PlatformError(f"--state {path}: {error}; is another server running on it?") from error

    def load(self, registry: Registry, now: float, wall: float) -> None:
        """Fill a new registry. `now` is this process's clock, `wall` the wall clock, both in seconds."""
        for job, text in self._base.execute("SELECT id, told FROM job WHERE version = ?", (VERSION,)):
            try:
                self._restore(registry, job, json.loads(text), now, wall)
            except (ConfigError, KeyError, TypeError, ValueError) as error:
                raise PlatformError(f"the state of job {job} cannot be read: {error}; remove it or the file") from error

    def save(self, registry: Registry, job: str, now: float, wall: float) -> None:
        """One job as it is now; one that is not declared any more is removed."""
        if job not in registry.declared:
            self._base.execute("DELETE FROM job WHERE id = ?", (job,))
            return
        told = json.dumps(_told(registry, job, now, wall))
        self._base.execute("INSERT OR REPLACE INTO job VALUES (?, ?, ?)", (job, VERSION, told))

    def close(self) -> None:
        self._base.close()

    def _restore(self, registry: Registry, job: str, told: dict[str, Any], now: float, wall: float) -> None:
        registry.declare(job, declared(job, told["declared"]))
        if told["initialised"] is not None:
            registry.initialised[job] = declared(job, told["initialised"]).terms
        if told["registered"] is None:
            return
        registry.register(job, now)
        controller, kept = registry.controllers[job], told["registered"]
        controller.running, controller.paused, controller.switchable = (
            kept["running"],
            kept["paused"],
            kept["switchable"],
        )
        intake = controller.intake
        for rank, kind, since in kept["alarms"]:
            # A clock that was set back must not make a fault of the future: it counts as new.
            intake.alarms[FaultRank(rank, FaultType(kind))] = now - max(0.0, wall - since)
        intake.seen = {FaultRank(rank, FaultType(kind)) for rank, kind in kept["seen"]}
        intake.look_at = now if intake.alarms else None
        registry.moved(job, [])


def _told(registry: Registry, job: str, now: float, wall: float) -> dict[str, Any]:
    initialised, controller = registry.initialised.get(job), registry.controllers.get(job)
    return {
        "declared": written(registry.declared[job]),
        "initialised": None if initialised is None else written(Declared(initialised)),
        "registered": None if controller is None else _kept(controller, now, wall),
    }


def _kept(controller: Controller, now: float, wall: float) -> dict[str, Any]:
    intake = controller.intake
    return {
        "running": controller.running,
        "paused": controller.paused,
        "switchable": controller.switchable,
        "alarms": [(fault.rank, fault.type.value, wall - (now - since)) for fault, since in intake.alarms.items()],
        "seen": [(fault.rank, fault.type.value) for fault in intake.seen],
    }
