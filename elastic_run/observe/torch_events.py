"""Events of torch's agent (torch.distributed.elastic.events), made from facts and orders: starts and ends."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from elastic_run.core.commands import Command, Exit, Spawn
from elastic_run.core.events import Event, WorkerExited, WorkerStarted
from elastic_run.core.vocabulary import Rank

Record = Callable[[str, str, int, Mapping[str, Any]], None]


class TorchEvents:
    """Hears what the journal hears. `record(name, source, timestamp, metadata)`; names and fields are those of torch
    2.13's agent (SimpleElasticAgent._construct_event). Times in seconds, as there."""

    def __init__(self, record: Record, run_id: str, role: str, backend: str, entry_point: str) -> None:
        self._record = record
        self._job = {"run_id": run_id, "role": role, "rdzv_backend": backend, "hostname": socket.gethostname()}
        self._entry_point = entry_point
        self._spawned: dict[Rank, Spawn] = {}
        self._pids: dict[Rank, int] = {}
        self._ending = False
        self._began = 0.0

    def begin(self, at: float) -> None:
        self._began = at

    def fact(self, fact: Event, at: float) -> None:
        if isinstance(fact, WorkerStarted):
            self._pids[fact.rank] = fact.pid
            self._tell("START", at, rank=fact.rank)
        elif isinstance(fact, WorkerExited):
            state = "SUCCEEDED" if fact.status.ok else "FAILED"
            code = -fact.status.signal if fact.status.signal is not None else fact.status.code
            raw = fact.error.message if fact.error is not None else None
            self._tell(state, at, rank=fact.rank, exit_code=None if fact.status.ok else code, raw_error=raw)

    def orders(self, orders: list[Command], at: float) -> None:
        for order in orders:
            if isinstance(order, Spawn):
                self._spawned[order.rank] = order
            elif isinstance(order, Exit):
                because = order.because if order.code else None
                self._tell("SUCCEEDED" if order.code == 0 else "FAILED", at, raw_error=because)

    def _tell(
        self,
        state: str,
        at: float,
        *,
        rank: Rank | None = None,
        exit_code: int | None = None,
        raw_error: str | None = None,
    ) -> None:
        worker = self._spawned.get(rank) if rank is not None else None
        some = worker or next(iter(self._spawned.values()), None)
        details: dict[str, Any] = {"entry_point": self._entry_point}
        if some is not None:
            details["group_world_size"] = some.assignment.world_size // len(some.assignment.ranks)
        if worker is not None and rank is not None:
            details |= {
                "local_rank": [worker.local_rank],
                "role_rank": [rank],
                "role_world_size": [worker.assignment.world_size],
                "exit_code": [exit_code],
                "worker_pid": [self._pids.get(rank)],
            }
        metadata = {
            **self._job,
            "global_rank": rank,
            "group_rank": some.assignment.node_rank if some is not None else None,
            "worker_id": None if rank is None else str(self._pids.get(rank)),
            "state": state,
            "total_run_time": int(at - self._began),
            "raw_error": raw_error,
            "metadata": json.dumps(details),
            "agent_restarts": some.restarts if some is not None else 0,
            "duration_ms": None,
        }
        source = "AGENT" if rank is None else "WORKER"
        self._record(f"torchelastic.worker.status.{state}", source, int(time.time() * 1000), metadata)
