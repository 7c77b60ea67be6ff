"""The agent: routes, settles, wakes, checks itself, tells its story, and can be resumed from a snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_run.core.agent import MAX_ROUNDS, STORY_LENGTH, Agent
from elastic_run.core.commands import Exit, Note, Severity
from elastic_run.core.dialogue import SignalKind, Strategy
from elastic_run.core.events import (
    CallFinished,
    LauncherFrozen,
    LinkChanged,
    ProgressRead,
    QuitRequested,
    RendezvousFinished,
    SignalReceived,
    SpawnFailed,
    StoreLost,
    Swept,
    Tick,
    WorkerExited,
    WorkerHung,
)
from elastic_run.core.member import Member
from elastic_run.core.phases import Life, Phase
from elastic_run.errors import InvariantBroken
from tests.core.drive import OK, TERM, Bench, Following
from tests.core.like import Like


def finished() -> Bench:
    bench = Bench().train()
    bench.exit(0, OK)
    bench.exit(1, OK)
    bench.swept()
    return bench


def test_time_never_goes_back() -> None:
    bench = Bench()
    assert bench.agent.now == 100.0
    bench.train()
    bench.agent.handle(Tick(), 150.0)
    bench.agent.handle(QuitRequested(15), 50.0)
    assert (bench.agent.now, bench.agent.deadline()) == (150.0, 160.0)


def test_the_earliest_deadline_is_told() -> None:
    bench = Bench(start_wait=7.0)
    assert bench.agent.deadline() == 107.0
    bench.train()
    assert bench.agent.deadline() is None
    bench.give(QuitRequested(15))
    assert bench.agent.deadline() == 110.0


def test_after_the_end_nothing_is_ordered_and_nothing_waited_for() -> None:
    bench = finished()
    assert bench.agent.deadline() is None
    for fact in (QuitRequested(15), WorkerExited(0, 1, OK), Tick()):
        assert bench.agent.handle(fact, 200.0) == []


def test_a_process_that_never_ended_is_not_waited_for_after_the_end() -> None:
    bench = Bench().train()
    bench.give(QuitRequested(15))
    bench.wake()
    assert bench.wake() == [Like(Exit, code=71)]
    assert bench.agent.deadline() is None


def test_exit_is_the_last_order() -> None:
    bench = Bench().train()
    bench.exit(0, OK)
    bench.exit(1, OK)
    assert bench.swept()[-1] == Like(Exit, code=0)
    assert Bench().give(QuitRequested(15))[-1] == Like(Exit, code=143)  # not even a search after it


@pytest.mark.parametrize(
    "fact",
    [
        SpawnFailed(0, 9, "x"),
        WorkerHung(99, "a stranger", 9),
        Swept(4, 1),
        RendezvousFinished(9, None),
        StoreLost(9),
        SignalReceived("u", SignalKind.STOP_TRAIN),
        LinkChanged(False, "as before"),
        CallFinished(1, 0),
        ProgressRead(1, None),
        Tick(),
    ],
)
def test_every_kind_of_fact_finds_its_place_and_stale_ones_do_nothing(fact: object) -> None:
    bench = Bench().train()
    assert bench.agent.handle(fact, 100.0) == []  # type: ignore[arg-type]
    bench.agent.check()


def test_a_start_that_fails_is_told_to_the_job() -> None:
    bench = Bench()
    bench.meet()
    bench.give(SpawnFailed(0, 1, "no memory"))
    assert bench.phase is Phase.REPORTED


def test_progress_is_told_to_the_job() -> None:
    bench = Bench(progress_known=True).train()
    bench.exit(1)
    bench.give(ProgressRead(1, "a"))
    assert bench.job.budget.progress == "a"


def test_a_frozen_launcher_is_told_to_the_job() -> None:
    bench = Bench().train()
    bench.give(LauncherFrozen())
    assert bench.phase is Phase.LEAVING


def test_the_story_tells_facts_and_orders_in_words() -> None:
    bench = Bench(max_restarts=1).train()
    bench.to_recovering()
    bench.give(QuitRequested(15))
    story = bench.agent.story()
    assert "100.000 start\n    -> starting\n    BeginRendezvous(round=0)" in story
    assert "say: rank 1 on host (pid 11): SIGSEGV; stopping the 1 other" in story
    assert "explain: restarting all 2 ranks" in story
    assert "exit 143 (signal): stopped by SIGTERM" in story
    for _ in range(STORY_LENGTH):
        bench.agent.lines.append("x")
    assert len(bench.agent.story().splitlines()) == STORY_LENGTH


def test_a_livelock_is_noticed_and_told_with_the_story() -> None:
    bench = Bench().train()

    class Restless:
        def settle(self) -> None:
            bench.agent.out.append(Note(Severity.INFO, "again"))

    bench.job.outbox = Restless()
    with pytest.raises(InvariantBroken, match=f"no fixed point after {MAX_ROUNDS} rounds\n100.000 start"):
        bench.give(Tick())


def test_a_state_that_contradicts_itself_is_noticed() -> None:
    def spoil(bench: Bench, claim: str) -> None:
        job, worker = bench.agent.job, bench.agent.node.workers[0]
        match claim:
            case "every phase but training has an end":
                job.until = 5000.0
            case "an incident is open exactly in its phases":
                job.phase, job.until = Phase.STOPPED, 5000.0  # and nothing is known of an incident
            case "who is dying will be killed":
                worker.hard_at = 5000.0
            case "an exited worker has a status":
                bench.exit(0, OK)
                worker.status = None
            case "nobody is asked to stop while training":
                worker.life, worker.hard_at = Life.DYING, 5000.0  # one of two is enough
            case "nothing that is due was left undone":
                job.phase, job.until = Phase.LEAVING, 100.0
            case "a limited budget is not overdrawn":
                job.budget.spent.append(1.0)

    for claim in (
        "every phase but training has an end",
        "an incident is open exactly in its phases",
        "who is dying will be killed",
        "an exited worker has a status",
        "nobody is asked to stop while training",
        "nothing that is due was left undone",
        "a limited budget is not overdrawn",
    ):
        bench = Bench().train()
        spoil(bench, claim)
        with pytest.raises(InvariantBroken, match=f"^{claim}[^;]*\n100.000 start\n"):
            bench.agent.check()


@pytest.mark.parametrize("policy", [{"max_restarts": None}, {"max_restarts": 1, "window": 9.0}])
def test_a_budget_without_limit_or_with_a_window_cannot_be_overdrawn(policy: dict[str, Any]) -> None:
    bench = Bench(**policy).train()
    bench.job.budget.spent += [1.0, 2.0]
    bench.agent.check()


def test_a_snapshot_is_taken_only_at_rest() -> None:
    bench = Bench(max_restarts=2)
    assert bench.agent.snapshot() is None
    bench.train()
    assert bench.agent.snapshot() is not None
    bench.to_recovering()
    assert bench.agent.snapshot() is None
    bench.meet(1)
    bench.started(2)
    assert bench.agent.snapshot() is None  # the last report is not answered yet
    bench.answer()
    assert bench.agent.snapshot() is not None


def test_an_agent_resumed_from_a_snapshot_decides_as_the_one_it_was_taken_from() -> None:
    bench = Bench(max_restarts=2).train()
    bench.to_recovering("first")
    bench.meet(1)
    bench.at = 150.0
    bench.started(2)
    bench.answer()
    bench.job.budget.futile, bench.job.budget.progress, bench.job.looks = 2, "token", 4
    past = bench.agent.snapshot()
    assert past is not None
    other = Agent(bench.agent.policy, bench.agent.site)
    other.resume(past)
    other.check()
    assert other.snapshot() == past
    facts = [
        WorkerExited(1, 2, TERM),
        CallFinished(bench.job.outbox.seq + 1, 0),
        SignalReceived("first", SignalKind.STOP_TRAIN),
        SignalReceived("second", SignalKind.STOP_TRAIN),
        WorkerExited(0, 2, TERM),
        Swept(bench.agent.node.sweeps + 1, 0),
        CallFinished(bench.job.outbox.seq + 2, 0),
        SignalReceived("second", SignalKind.GLOBAL_FAULT),
        CallFinished(bench.job.outbox.seq + 3, 0),
        SignalReceived("second", SignalKind.CHANGE_STRATEGY, (), Strategy.RECOVER),
        RendezvousFinished(2, bench.place(2)),
    ]
    orders = []
    for fact in facts:
        orders.append(bench.agent.handle(fact, 200.0))
        assert other.handle(fact, 200.0) == orders[-1]
    assert [len(o) for o in orders] == [3, 0, 0, 2, 1, 2, 0, 2, 0, 3, 2]
    assert past.workers[1].incarnation == 2  # the snapshot itself did not move on


def test_an_agent_that_does_not_lead_follows() -> None:
    bench = Following().train()
    assert isinstance(bench.job, Member)
    bench.agent.check()
