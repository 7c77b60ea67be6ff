"""Events of torch's agent (torch.distributed.elastic.events), made from facts and orders: rounds, starts and ends."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from elastic_run.core.commands import BeginRendezvous, Command, Exit, Spawn
from elastic_run.core.events import Event, RendezvousFinished, WorkerExited, WorkerHung, WorkerStarted
from elastic_run.core.vocabulary import Rank, WorkerError

Record = Callable[[str, str, int, Mapping[str, Any]], None]
STATUS = "torchelastic.worker.status."
WATCHDOG = "kill worker process"
"""What torch calls it when a file timer has expired."""


class TorchEvents:
    """Hears what the journal hears. `record(name, source, timestamp, metadata)`; names and fields are those of torch
    2.13's agent (SimpleElasticAgent._construct_event, LocalElasticAgent._log_watchdog_event). Times in seconds, as
    there."""

    def __init__(self, record: Record, run_id: str, role: str, backend: str, program: str) -> None:
        self._record = record
        self._job = {"run_id": run_id, "role": role, "rdzv_backend": backend, "hostname": socket.gethostname()}
        self._entry_point = os.path.basename(program)
        self._spawned: dict[Rank, Spawn] = {}
        self._pids: dict[Rank, int] = {}
        self._began = 0.0
        self._meeting_since: float | None = None
        """When the rendezvous began whose ranks have not been told yet."""
        self._met_after: float | None = None
        """Seconds that it took, once it is finished."""

    def begin(self, at: float) -> None:
        self._began = at

    def fact(self, fact: Event, at: float) -> None:
        if isinstance(fact, WorkerStarted):
            self._pids[fact.rank] = fact.pid
            self._tell_worker("START", at, fact.rank)
        elif isinstance(fact, WorkerExited):
            if fact.status.ok:
                self._tell_worker("SUCCEEDED", at, fact.rank)
            else:
                code = -fact.status.signal if fact.status.signal is not None else fact.status.code
                self._tell_worker("FAILED", at, fact.rank, code, _error_file(fact.error))
        elif isinstance(fact, WorkerHung):
            said = {"watchdog_event": WATCHDOG, "worker_pid": str(fact.pid), "signal": str(fact.signum)}
            self._tell(WATCHDOG, "AGENT", "RUNNING", at, details={**said, "because": fact.because})
        elif isinstance(fact, RendezvousFinished) and self._meeting_since is not None:
            self._met_after = at - self._meeting_since
            if fact.assignment is None:
                self._tell_agent("RENDEZVOUS", at, json.dumps({"message": fact.error}), self._met_after)
                self._met_after = None

    def orders(self, orders: list[Command], at: float) -> None:
        for order in orders:
            if isinstance(order, BeginRendezvous):
                self._meeting_since = at
            elif isinstance(order, Spawn):
                self._spawned[order.rank] = order
            elif isinstance(order, Exit):
                because = json.dumps({"message": order.because}) if order.code else None
                self._tell_agent("SUCCEEDED" if order.code == 0 else "FAILED", at, because)
        if self._met_after is not None and any(isinstance(order, Spawn) for order in orders):
            self._tell_agent("RENDEZVOUS", at, duration=self._met_after)
            self._met_after = None

    def _tell_agent(self, state: str, at: float, raw_error: str | None = None, duration: float | None = None) -> None:
        self._tell(STATUS + state, "AGENT", state, at, raw_error=raw_error, duration=duration)

    def _tell_worker(
        self, state: str, at: float, rank: Rank, exit_code: int | None = None, raw_error: str | None = None
    ) -> None:
        spawned, pid = self._spawned[rank], self._pids.get(rank)
        details = {
            "local_rank": [spawned.local_rank],
            "role_rank": [rank],
            "role_world_size": [spawned.assignment.world_size],
            "exit_code": [exit_code],
            "worker_pid": [pid],
        }
        self._tell(STATUS + state, "WORKER", state, at, rank=rank, details=details, raw_error=raw_error)

    def _tell(
        self,
        name: str,
        source: str,
        state: str,
        at: float,
        *,
        rank: Rank | None = None,
        details: Mapping[str, Any] | None = None,
        raw_error: str | None = None,
        duration: float | None = None,
    ) -> None:
        latest = self._spawned[rank] if rank is not None else next(iter(self._spawned.values()), None)
        place = latest.assignment if latest is not None else None
        group = place.world_size // len(place.ranks) if place is not None else None
        metadata = {
            **self._job,
            "global_rank": rank,
            "group_rank": place.node_rank if place is not None else None,
            "worker_id": None if rank is None else str(self._pids.get(rank)),
            "state": state,
            "total_run_time": int(at - self._began),
            "raw_error": raw_error,
            "metadata": json.dumps({"group_world_size": group, "entry_point": self._entry_point, **(details or {})}),
            "agent_restarts": latest.restarts if latest is not None else 0,
            "duration_ms": None if duration is None else duration * 1000,
        }
        self._record(name, source, int(time.time() * 1000), metadata)


def _error_file(error: WorkerError | None) -> str:
    """As torch gives it: the content of the error file, or its words for none."""
    if error is None:
        return json.dumps({"message": "<NONE>"})
    if error.wall_time is None:
        return json.dumps({"message": error.message})
    return json.dumps({"message": {"message": error.message, "extraInfo": {"timestamp": str(int(error.wall_time))}}})
