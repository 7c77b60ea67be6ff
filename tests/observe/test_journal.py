"""The journal: what is written can be read, replayed and cut into segments."""

from __future__ import annotations

import json
from pathlib import Path
from signal import SIGTERM

import pytest

from elastic_run.core.agent import Agent
from elastic_run.core.codec import decode, encode
from elastic_run.core.commands import BeginRendezvous, Call, Command, Spawn, Sweep
from elastic_run.core.dialogue import FaultRank, FaultReported, SignalKind, StopCompleted, StrategiesOffered, Strategy
from elastic_run.core.events import (
    CallFinished,
    Event,
    QuitRequested,
    RendezvousFinished,
    SignalReceived,
    Swept,
    WorkerExited,
    WorkerStarted,
)
from elastic_run.core.phases import Phase
from elastic_run.core.policy import Policy
from elastic_run.core.vocabulary import Assignment, ExitStatus, Site, WorkerError
from elastic_run.observe.journal import Journal, records, replay

POLICY = Policy(max_restarts=None, max_no_progress=1000)


class Drive:
    """A job on a journal: facts go in one by one, effects are answered at once."""

    def __init__(self, path: Path, segment: int = 1 << 30, ranks: int = 2) -> None:
        self.path = path
        self.ranks = ranks
        self.agent = Agent(POLICY, Site(0, "host", ranks))
        self.asides = 0
        self.journal = Journal(self.append, self.rotate, self.agent, segment)
        self.at = 10.0
        self.journal.begin(self.at)
        self.obey(self.agent.start(self.at))

    def append(self, line: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(line)

    def rotate(self) -> None:
        self.path.rename(self.path.with_name(f"events.{self.asides}.jsonl"))
        self.asides += 1

    def give(self, fact: Event) -> None:
        self.at += 0.125
        self.journal.fact(fact, self.at)
        self.obey(self.agent.handle(fact, self.at))

    def obey(self, orders: list[Command]) -> None:
        self.journal.orders(orders, self.at)
        for order in orders:
            match order:
                case BeginRendezvous():
                    place = Assignment(order.round, 0, tuple(range(self.ranks)), self.ranks, "127.0.0.1", 1000)
                    self.give(RendezvousFinished(order.round, place))
                case Spawn():
                    self.give(WorkerStarted(order.rank, order.incarnation, 100 + order.rank))
                case Sweep():
                    self.give(Swept(order.seq, 0))
                case Call():
                    self.give(CallFinished(order.seq, 0))
                    self.answer(order)

    def answer(self, order: Call) -> None:
        match order.report:
            case FaultReported():
                self.give(SignalReceived(f"id-{self.agent.job.incidents}", SignalKind.STOP_TRAIN))
            case StopCompleted():
                self.give(SignalReceived(order.uuid, SignalKind.GLOBAL_FAULT))
            case StrategiesOffered():
                self.give(SignalReceived(order.uuid, SignalKind.CHANGE_STRATEGY, (), Strategy.RECOVER))

    def lose_a_rank(self) -> None:
        life = self.agent.node.workers[1].incarnation
        self.give(WorkerExited(1, life, ExitStatus(signal=9), WorkerError("böse", 1.5), "tail\n", 3))
        self.give(WorkerExited(0, life, ExitStatus(signal=15)))


def test_a_job_can_be_replayed_from_its_journal(tmp_path: Path) -> None:
    drive = Drive(tmp_path / "events.jsonl")
    drive.lose_a_rank()
    drive.give(QuitRequested(SIGTERM))
    assert replay(drive.path) is None


def test_its_size_grows_with_the_ranks_and_not_with_their_square(tmp_path: Path) -> None:
    sizes = []
    for ranks in (100, 400):
        drive = Drive(tmp_path / f"{ranks}.jsonl", ranks=ranks)
        assert replay(drive.path) is None
        sizes.append(drive.path.stat().st_size)
    assert sizes[1] < 5 * sizes[0]


def test_a_start_names_the_round_whose_ranks_it_belongs_to(tmp_path: Path) -> None:
    drive = Drive(tmp_path / "events.jsonl")
    drive.lose_a_rank()
    met = {r["round"]: r["assignment"] for r in records(drive.path) if r.get("fact") == "RendezvousFinished"}
    started = [r for r in records(drive.path) if r.get("order") == "Spawn"]
    assert [r["round"] for r in started] == [0, 0, 1, 1]
    assert all(r["rank"] in met[r["round"]]["ranks"] for r in started)
    drive.path.write_text(drive.path.read_text().replace('"restarts":1,"round":1,', '"restarts":1,"round":2,', 1))
    assert replay(drive.path) is not None


def test_a_replay_shows_the_first_difference(tmp_path: Path) -> None:
    drive = Drive(tmp_path / "events.jsonl")
    drive.lose_a_rank()
    text = drive.path.read_text()
    drive.path.write_text(text.replace('"signum":15', '"signum":2', 1))
    found = replay(drive.path)
    assert found is not None
    assert '"signum": 2' in found.recorded[-1]
    assert '"signum": 15' in found.replayed[-1]


def test_only_the_last_launch_of_a_continued_file_counts(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"start":{"garbage":1},"at":1}\n'[:20] + "\n")
    drive = Drive(tmp_path / "events.jsonl")
    drive.lose_a_rank()
    assert replay(drive.path) is None


def test_a_segment_begins_with_all_that_its_replay_needs(tmp_path: Path) -> None:
    drive = Drive(tmp_path / "events.jsonl", segment=4000)
    for _ in range(8):
        drive.lose_a_rank()
    assert drive.asides > 1
    assert len((tmp_path / "events.jsonl").read_bytes()) < 4000 + 8000
    drive.lose_a_rank()
    assert replay(drive.path) is None
    assert json.loads(drive.path.read_text().splitlines()[0])["start"]["past"]["restarts"] > 0


def test_no_segment_begins_in_the_middle_of_an_incident(tmp_path: Path) -> None:
    drive = Drive(tmp_path / "events.jsonl", segment=0)
    before = drive.asides
    drive.give(WorkerExited(1, 1, ExitStatus(code=1)))
    assert drive.agent.job.phase is Phase.STOPPING
    assert drive.agent.snapshot() is None
    drive.give(WorkerExited(0, 1, ExitStatus(signal=15)))
    assert drive.asides == before + 1


def test_torn_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"fact":"Tick","at":1}\n{"fact":"Ti\n[1]\n\xff\xfe\n{"order":"Exit"}\n')
    assert [list(r) for r in records(path)] == [["fact", "at"], ["order"]]


@pytest.mark.parametrize(
    "value",
    [
        WorkerExited(3, 2, ExitStatus(signal=11, core=True), WorkerError("x", None), "ü\x00", None),
        RendezvousFinished(1, None, "no port"),
        RendezvousFinished(1, Assignment(1, 0, (0, 1), 2, "::1", 5)),
        SignalReceived("u", SignalKind.CHANGE_STRATEGY, (FaultRank(1),), Strategy.EXIT),
        Policy(window=2.5),
    ],
)
def test_what_is_encoded_can_be_decoded(value: object) -> None:
    assert decode(type(value), json.loads(json.dumps(encode(value)))) == value


def test_a_wrong_type_is_no_value() -> None:
    with pytest.raises(ValueError, match="is no str"):
        decode(WorkerError, {"message": ["a"], "wall_time": None})
    with pytest.raises(ValueError, match="bogus"):
        decode(SignalReceived, {"uuid": "u", "kind": "bogus", "ranks": [], "strategy": None})
