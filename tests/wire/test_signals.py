"""The other way round: the recorded signals of the real ClusterD, given to our client's conversion and our core.

Whatever it says, the job answers with the right report: once, with the incident's id, and only with what it can do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from elastic_run.clusterd import convert
from elastic_run.clusterd.pb import recover as pb
from elastic_run.core.agent import Agent
from elastic_run.core.commands import BeginRendezvous, Call, Command, Exit, Kill, Spawn, Sweep
from elastic_run.core.dialogue import (
    FaultReported,
    Ruler,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.events import (
    CallFinished,
    Event,
    LinkChanged,
    RendezvousFinished,
    SignalReceived,
    Swept,
    WorkerExited,
    WorkerStarted,
)
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, ExitStatus, Site

TRACES = Path(__file__).parents[3] / "shared" / "traces"
RANKS = 8


class Job:
    """An agent of all eight ranks, whose workers do at once what they are told."""

    def __init__(self) -> None:
        self.agent = Agent(Policy(clusterd=True, max_restarts=None, max_no_progress=99), Site(1, "host", RANKS))
        self.at = 0.0
        self.calls: list[Call] = []
        self.left: Exit | None = None
        self.lives: dict[int, int] = {}
        self.waiting: list[Event] = []
        self.obey(self.agent.start(0.0))
        self.give(LinkChanged(True, "recorded"))

    def give(self, fact: Event) -> None:
        self.waiting.append(fact)
        while self.waiting and self.left is None:
            self.at += 0.001
            self.obey(self.agent.handle(self.waiting.pop(0), self.at))
            self.agent.check()

    def obey(self, orders: list[Command]) -> None:
        for order in orders:
            match order:
                case BeginRendezvous():
                    ranks = tuple(range(RANKS))
                    place = Assignment(order.round, 1, ranks, RANKS, "h", 1)
                    self.waiting.append(RendezvousFinished(order.round, place))
                case Spawn():
                    self.lives[order.rank] = order.incarnation
                    self.waiting.append(WorkerStarted(order.rank, order.incarnation, 100 + order.rank))
                case Kill():
                    status = ExitStatus(signal=order.signum)
                    self.waiting.append(WorkerExited(order.rank, order.incarnation, status))
                case Sweep():
                    self.waiting.append(Swept(order.seq, 0))
                case Call():
                    self.calls.append(order)
                    self.waiting.append(CallFinished(order.seq, 0))
                case Exit():
                    self.left = order

    def die(self, rank: int) -> None:
        if rank in self.lives:
            self.give(WorkerExited(rank, self.lives[rank], ExitStatus(signal=11)))


def played(name: str) -> Iterator[tuple[SignalReceived, list[Call], Job]]:
    """Each signal of the job's first client, and what was reported on it."""
    job, client = Job(), None
    over: set[str] = set()
    """Incidents that our job has recovered from; the recorded one may have failed to, and heard more."""
    for line in (TRACES / f"{name}.jsonl").read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        client = client or event.get("client")
        if event.get("client") != client or job.left is not None:
            continue
        if event["kind"] == "c->s" and event["rpc"] == "ReportProcessFault":
            for fault in event["msg"].get("faultRanks", ()):
                if (rank := convert.number(fault["rankId"])) is not None:
                    job.die(rank)
        elif event["kind"] == "stream-end":
            job.give(LinkChanged(True, "again"))
        elif event["kind"] == "s->c" and event.get("stream") == "signal":
            message = json_format.ParseDict(event["msg"], pb.ProcessManageSignal())
            signal, odd = convert.signal_of(message)
            assert odd == []
            if signal is not None and (not signal.uuid or signal.uuid not in over):
                before = len(job.calls)
                job.give(signal)
                calls = job.calls[before:]
                over |= {c.uuid for c in calls if isinstance(c.report, StatusReported) and c.report.code == 0}
                yield signal, calls, job


def answer(signal: SignalReceived, calls: list[Call], job: Job) -> None:
    reports = [call.report for call in calls]
    assert all(call.to is Ruler.CLUSTERD for call in calls)
    match signal:
        case SignalReceived(kind=SignalKind.KEEP_ALIVE):
            assert reports == []
        case SignalReceived(kind=SignalKind.STOP_TRAIN):
            assert reports[-1:] == [StopCompleted()]
        case SignalReceived(kind=SignalKind.GLOBAL_FAULT):
            assert reports == [StrategiesOffered((Strategy.RECOVER, Strategy.EXIT))]
        case SignalReceived(kind=SignalKind.CHANGE_STRATEGY, strategy=Strategy.RECOVER):
            assert reports == [StatusReported(0, Strategy.RECOVER)]
        case SignalReceived(kind=SignalKind.CHANGE_STRATEGY, strategy=Strategy.EXIT):
            assert job.left is not None
        case SignalReceived(kind=SignalKind.CHANGE_STRATEGY, strategy=strategy):
            assert reports == [StatusReported(1, strategy)]  # it was not offered
        case SignalReceived(kind=SignalKind.SAVE_AND_EXIT):
            assert reports == [StatusReported(1, Strategy.DUMP)]  # these workers save nothing
        case SignalReceived(kind=SignalKind.PRE_EXIT):
            told = {fault.rank for c in job.calls if isinstance(c.report, FaultReported) for fault in c.report.ranks}
            assert {fault.rank for fault in signal.ranks} <= told
        case SignalReceived(kind=SignalKind.KILL_MASTER):
            assert job.left is not None
            assert job.left.code == 75
        case _:
            raise AssertionError(f"a signal without a row here: {signal}")
    named = [call.uuid for call in calls if not isinstance(call.report, FaultReported)]
    assert set(named) <= {signal.uuid}


def names() -> list[str]:
    """Of traces in which the server keeps to one dialogue; where it is led astray on purpose, ours would not."""
    astray = ("f11a", "f11c", "f12b", "f13", "f06i", "f10a_retry_failed_code_405", "f07a")
    return sorted(p.stem for p in TRACES.glob("f*.jsonl") if not p.stem.startswith(astray))


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded dialogues are not beside this clone (../shared/traces)")
@pytest.mark.parametrize("name", names())
def test_the_job_answers_the_real_clusterd(name: str) -> None:
    for signal, calls, job in played(name):
        answer(signal, calls, job)
