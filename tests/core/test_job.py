"""One incident from fault to recovered, and every way in which a job ends."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM
from typing import Any

import pytest

from elastic_run.core.commands import (
    BeginRendezvous,
    Call,
    Exit,
    Explain,
    Kill,
    Mark,
    Note,
    ReadProgress,
    Renew,
    Severity,
    Spawn,
    Sweep,
)
from elastic_run.core.dialogue import (
    Action,
    FaultRank,
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
    LauncherFrozen,
    LinkChanged,
    ProgressRead,
    QuitRequested,
    RendezvousFinished,
    SignalReceived,
    SpawnFailed,
    StoreLost,
    Tick,
    WorkerHung,
    WorkerStarted,
)
from elastic_run.core.phases import Phase
from elastic_run.core.vocabulary import ExitStatus, Origin
from elastic_run.errors import ExitCode
from tests.core.drive import OK, SEGV, TERM, Bench, Leading
from tests.core.like import Like

CODE3 = ExitStatus(code=3)


# -- start and success


def test_a_rendezvous_then_a_life_for_each_rank_then_training() -> None:
    bench = Bench()
    assert bench.first == [Mark(0, Phase.STARTING), BeginRendezvous(0)]
    assert bench.meet() == [Like(Spawn, rank=0, restarts=0), Like(Spawn, rank=1)]
    assert bench.started(1, 0) == []
    assert bench.started(1, 1) == [Mark(0, Phase.TRAINING)]
    assert bench.agent.deadline() is None


def test_all_succeed() -> None:
    bench = Bench().train()
    assert bench.exit(0, OK) == []
    assert bench.exit(1, OK, after=2.5) == [Mark(0, Phase.LEAVING), Sweep(1, SIGTERM)]
    assert bench.swept() == [Exit(0, Origin.WORKERS, "all 2 ranks succeeded in 2.5 s")]
    assert bench.phase is Phase.DONE


def test_a_lone_rank_is_called_so() -> None:
    bench = Bench(ranks=1).train()
    bench.exit(0, OK)
    assert bench.swept() == [Like(Exit, because="the one rank succeeded in 0.0 s")]


def test_no_rendezvous_is_the_end() -> None:
    bench = Bench()
    assert bench.give(RendezvousFinished(0, None, "port taken")) == [
        Mark(0, Phase.LEAVING),
        Exit(ExitCode.UNAVAILABLE, Origin.LAUNCHER, "no rendezvous: port taken"),
    ]


def test_a_rendezvous_of_another_round_or_at_another_time_is_stale() -> None:
    bench = Bench()
    assert bench.meet(round=7) == []
    bench.train()
    assert bench.meet() == []
    assert bench.phase is Phase.TRAINING


def test_a_start_that_takes_too_long_is_the_end() -> None:
    bench = Bench(start_wait=5.0)
    bench.meet()
    assert bench.wake()[0] == Mark(0, Phase.LEAVING)
    bench.exit(0, TERM)
    bench.exit(1, TERM)
    assert bench.swept() == [Exit(69, Origin.LAUNCHER, "the workers did not start in time")]


# -- one incident


def test_a_death_is_reported_and_the_others_are_left_alone_until_the_stop() -> None:
    bench = Bench(ranks=3).train()
    assert bench.exit(1) == [
        Mark(1, Phase.REPORTED),
        Note(Severity.ERROR, "rank 1 on host (pid 11): SIGSEGV; stopping the 2 others"),
        Call(1, "", FaultReported((FaultRank(1),))),
    ]
    bench.answer()
    assert bench.stop_told() == [Mark(1, Phase.STOPPING), Kill(0, 1, SIGTERM), Kill(2, 1, SIGTERM)]
    assert bench.exit(0, TERM) == []
    assert bench.exit(2, TERM) == [Sweep(1, SIGKILL)]
    assert bench.swept() == [Mark(1, Phase.STOPPED), Call(2, "u", StopCompleted())]
    bench.answer()
    assert bench.global_told() == [
        Mark(1, Phase.DIAGNOSED),
        Call(3, "u", StrategiesOffered((Strategy.EXIT,))),
    ]


def test_recovery_gives_every_rank_a_new_life_and_says_so() -> None:
    bench = Bench(max_restarts=1).train()
    bench.exit(1, after=50.0)
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    bench.swept()
    bench.answer()
    bench.global_told()
    bench.answer()
    assert bench.chosen(Strategy.RECOVER) == [
        Mark(1, Phase.RECOVERING),
        Like(Explain, decision="restarting all 2 ranks (restart 1 of 1)", announced=True, restarts=0),
        BeginRendezvous(1),
    ]
    assert bench.meet(1) == [Like(Spawn, rank=0, incarnation=2, restarts=1), Like(Spawn, rank=1, incarnation=2)]
    bench.started(2, 0)
    assert bench.started(2, 1) == [
        Mark(0, Phase.TRAINING),
        Note(Severity.INFO, "recovered from rank 1 on host (pid 11): SIGSEGV; all 2 ranks started again, "
                            "restart 1 of 1; 0.00 s"),
        Call(4, "u", StatusReported(0, Strategy.RECOVER)),
    ]  # fmt: skip
    for rank in (0, 1):
        bench.exit(rank, OK, 2)
    assert bench.swept() == [
        Like(
            Exit, because="all 2 ranks succeeded in 50.0 s; 1 restart, the last after rank 1 on host (pid 11): SIGSEGV"
        )
    ]


def test_restarts_are_counted_in_the_verdict() -> None:
    bench = Bench(max_restarts=2).train()
    for life in (1, 2):
        bench.to_recovering(f"u{life}", life)
        bench.meet(life)
        bench.started(life + 1)
        bench.answer()
    for rank in (0, 1):
        bench.exit(rank, OK, 3)
    (left,) = bench.swept()
    assert isinstance(left, Exit)
    assert "; 2 restarts, the last after" in left.because


def test_without_restarts_the_job_ends_with_the_culprits_code() -> None:
    bench = Bench().train()
    bench.exit(1, CODE3)
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    bench.swept()
    bench.answer()
    bench.global_told()
    bench.answer()
    assert bench.chosen(Strategy.EXIT) == [
        Like(Explain, decision=""),
        Mark(1, Phase.LEAVING),
        Exit(3, Origin.WORKERS, "no restarts allowed (--max-restarts 0): rank 1 on host (pid 11): exit code 3"),
    ]


def test_another_culprit_than_the_one_announced_is_named() -> None:
    bench = Bench().train()
    bench.exit(1, ExitStatus(code=1), tail="Connection closed by peer")
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM, tail="Traceback (most recent call last)")
    bench.swept()
    bench.answer()
    bench.global_told()
    bench.answer()
    explained, _, left = bench.chosen(Strategy.EXIT)
    assert explained == Like(Explain, announced=False)
    assert isinstance(left, Exit)
    assert left.code == 143


def test_a_second_death_before_the_stop_is_reported_with_the_first() -> None:
    bench = Bench(ranks=9).train()
    bench.exit(8)
    bench.exit(1)
    assert bench.answer() == [Call(2, "", FaultReported((FaultRank(1), FaultRank(8))))]
    assert bench.phase is Phase.REPORTED


def test_who_dies_because_we_stop_it_is_not_reported() -> None:
    bench = Bench().train()
    bench.exit(1)
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    assert bench.job.incident.dead == (FaultRank(1),)


def test_the_last_rank_has_no_others_to_stop() -> None:
    bench = Bench().train()
    bench.exit(0, OK)
    (_, note, _) = bench.exit(1)
    assert note == Like(Note, text="rank 1 on host (pid 11): SIGSEGV")


def test_a_start_that_fails_is_an_incident() -> None:
    bench = Bench()
    bench.meet()
    orders = bench.give(SpawnFailed(0, 1, "no memory"))
    assert orders[1] == Like(Note, text="rank 0 on host: could not be started: no memory; stopping the 1 other")


# -- fences


@pytest.mark.parametrize(
    "stale",
    [
        SignalReceived("other", SignalKind.GLOBAL_FAULT),
        SignalReceived("other", SignalKind.CHANGE_STRATEGY, (), Strategy.EXIT),
        SignalReceived("u", SignalKind.CHANGE_STRATEGY, (), Strategy.EXIT),
        SignalReceived("u", SignalKind.STOP_TRAIN),
    ],
)
def test_signals_out_of_their_time_change_nothing(stale: SignalReceived) -> None:
    bench = Bench().train()
    assert bench.give(stale) == []
    bench.exit(1)
    bench.answer()
    bench.stop_told()
    phase = bench.phase
    assert bench.give(stale) == []
    assert bench.phase is phase


def test_a_global_fault_before_any_stop_is_of_another_incident() -> None:
    bench = Bench().train()
    bench.exit(1)
    for uuid in ("", "other"):
        for kind in (SignalKind.GLOBAL_FAULT, SignalKind.CHANGE_STRATEGY):
            assert bench.give(SignalReceived(uuid, kind, (), Strategy.EXIT)) == []
    assert not bench.job.incident.global_told
    assert bench.phase is Phase.REPORTED


def test_a_stop_of_another_incident_does_not_rename_this_one() -> None:
    bench = Bench().train()
    bench.exit(1)
    bench.answer()
    bench.stop_told("u")
    bench.stop_told("other")
    bench.exit(0, TERM)
    assert bench.swept() == [Mark(1, Phase.STOPPED), Call(2, "u", StopCompleted())]


def test_a_late_stop_of_the_last_incident_does_not_name_the_next() -> None:
    bench = Bench(max_restarts=3).train()
    bench.to_recovering("old")
    bench.meet(1)
    bench.started(2)
    bench.answer()
    bench.exit(0, life=2)
    bench.stop_told("old")
    assert bench.phase is Phase.REPORTED
    bench.stop_told("new")
    assert bench.phase is Phase.STOPPING


def test_a_strategy_that_was_not_offered_is_refused() -> None:
    bench = Bench().train()
    bench.to_diagnosed()
    assert bench.chosen(Strategy.RECOVER) == [
        Like(Note, text="strategy recover was not offered: no restarts allowed (--max-restarts 0)")
    ]
    assert bench.phase is Phase.DIAGNOSED


def test_a_stop_told_twice_is_not_taken_for_a_strategy() -> None:
    bench = Bench().train()
    bench.to_diagnosed()
    assert bench.stop_told() == []


def test_a_strategy_told_twice_decides_only_once() -> None:
    bench = Bench(max_restarts=2).train()
    bench.to_recovering()
    assert bench.chosen(Strategy.EXIT) == []
    bench.wake()
    assert bench.phase is Phase.DIAGNOSED  # it waits for a new word


def test_signals_after_the_decision_to_leave_change_nothing() -> None:
    bench = Bench().train()
    bench.to_diagnosed()
    bench.give(QuitRequested(SIGTERM))
    assert bench.chosen(Strategy.EXIT) == []


# -- progress


def failing(**policy: Any) -> Bench:
    bench = Bench(max_restarts=9, progress_known=True, **policy).train()
    bench.exit(1)
    return bench


def test_the_progress_file_is_looked_at_before_the_diagnosis() -> None:
    bench = Bench(max_restarts=9, progress_known=True).train()
    assert ReadProgress(1) in bench.exit(1)
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    assert bench.swept() == []
    bench.give(ProgressRead(7, "other look"))
    assert bench.phase is Phase.STOPPING
    bench.give(ProgressRead(1, "a"))
    assert bench.phase is Phase.STOPPED
    assert bench.job.budget.progress == "a"
    bench.give(ProgressRead(1, "late"))
    assert bench.job.budget.progress == "a"


def test_no_file_yet_is_no_progress() -> None:
    bench = failing()
    bench.give(ProgressRead(1, None))
    assert bench.job.budget.futile == 1


@pytest.mark.parametrize(("uptime", "futile"), [(59.0, 1), (60.0, 0)])
@pytest.mark.parametrize("known", [False, True])
def test_without_a_look_at_the_file_a_long_life_is_progress(known: bool, uptime: float, futile: int) -> None:
    bench = Bench(max_restarts=None, progress_known=known, signal_wait=500.0, short_life=60.0)
    bench.at += 50.0
    bench.train()
    bench.exit(1, after=uptime)
    if known:
        bench.wake()  # the look hangs
    assert bench.job.budget.futile == futile


def test_the_time_before_training_is_no_life() -> None:
    bench = Bench(max_restarts=None, start_wait=500.0)
    bench.meet()
    bench.exit(1, after=100.0)
    assert bench.job.budget.futile == 1


def test_each_attempt_is_measured_from_its_own_start() -> None:
    bench = Bench(max_restarts=None).train()
    bench.at += 100.0
    bench.to_recovering()
    bench.meet(1)
    bench.started(2)
    bench.answer()
    bench.exit(1, life=2, after=10.0)
    assert bench.job.budget.futile == 1


def test_deaths_while_recovering_are_a_crash_loop_too() -> None:
    bench = Bench(max_restarts=None, max_no_progress=2).train()
    bench.to_recovering()
    bench.meet(1)
    bench.started(2, 0)
    bench.exit(1, life=2)
    assert bench.phase is Phase.DIAGNOSED
    assert bench.job.incident.verdict.crash_loop


def test_a_look_that_hangs_is_not_waited_for_long() -> None:
    bench = failing(progress_wait=2.0)
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    bench.swept()
    bench.wake()
    assert bench.phase is Phase.STOPPED
    assert bench.at == 102.0


def test_a_crash_loop_ends_with_93() -> None:
    bench = Bench(max_restarts=9, progress_known=True, max_no_progress=1).train()
    bench.exit(1)
    bench.give(ProgressRead(1, None))
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    bench.swept()
    bench.answer()
    bench.global_told()
    bench.answer()
    assert bench.chosen(Strategy.EXIT)[-1] == Like(Exit, code=93, origin=Origin.LAUNCHER)


# -- trouble while recovering


def test_a_death_while_recovering_starts_another_round() -> None:
    bench = Bench(max_restarts=2).train()
    bench.to_recovering()
    bench.meet(1)
    bench.started(2, 0)
    assert bench.exit(1, life=2) == [
        Note(Severity.ERROR, "rank 1 on host: SIGSEGV, while recovering"),
        Kill(0, 2, SIGTERM),
    ]
    assert bench.phase is Phase.RECOVERING
    bench.exit(0, TERM, 2)
    assert bench.swept() == [BeginRendezvous(2)]
    assert bench.meet(2)[0] == Like(Spawn, incarnation=3, restarts=2)


def test_with_the_budget_spent_the_failure_is_reported_and_obeyed() -> None:
    bench = Bench(max_restarts=1).train()
    bench.to_recovering()
    bench.answer()
    bench.meet(1)
    bench.started(2, 0)
    orders = bench.exit(1, CODE3, 2)
    assert Call(4, "u", StatusReported(1, Strategy.RECOVER)) in orders
    assert bench.phase is Phase.DIAGNOSED
    bench.chosen(Strategy.RECOVER)
    assert bench.phase is Phase.DIAGNOSED
    bench.chosen(Strategy.EXIT)
    bench.exit(0, TERM, 2)
    assert bench.swept() == [Like(Exit, code=3)]  # not that of the death which it was to recover from


def test_a_budget_that_is_gone_when_it_is_to_be_spent() -> None:
    bench = Bench(max_restarts=1).train()
    bench.to_diagnosed()
    bench.answer()
    bench.job.budget.spend(bench.at)
    assert Call(4, "u", StatusReported(1, Strategy.RECOVER)) in bench.chosen(Strategy.RECOVER)


def test_a_recovery_that_takes_too_long_has_failed() -> None:
    bench = Bench(max_restarts=1).train()
    bench.to_recovering()
    bench.answer()
    assert Call(4, "u", StatusReported(1, Strategy.RECOVER)) in bench.wake()
    refused = "strategy recover was not offered: the workers did not start again in time"
    assert bench.chosen(Strategy.RECOVER) == [Note(Severity.WARNING, refused)]  # though restarts are left
    left = bench.chosen(Strategy.EXIT)[-1]
    assert isinstance(left, Exit)
    assert left.because == "the workers did not start again in time: rank 1 on host (pid 11): SIGSEGV"


def test_who_is_stopped_while_recovering_does_not_count_again() -> None:
    bench = Bench(ranks=3, max_restarts=5).train()
    bench.to_recovering()
    bench.meet(1)
    bench.started(2, 0, 2)
    bench.exit(1, life=2)
    bench.exit(0, TERM, 2)
    assert bench.job.restarts == 2


def test_the_new_round_waits_for_leftovers() -> None:
    bench = Bench(max_restarts=3).train()
    bench.to_recovering()
    bench.meet(1)
    bench.started(2, 0)
    bench.exit(1, life=2)
    bench.exit(0, TERM, 2)
    assert bench.swept(left=1) == []
    assert bench.wake() == [Like(Sweep, signum=SIGKILL)]
    assert bench.swept() == [BeginRendezvous(2)]


# -- signals to the launcher


def test_a_signal_is_passed_on_and_ends_with_128_plus_n() -> None:
    bench = Bench().train()
    assert bench.give(QuitRequested(SIGTERM)) == [
        Note(Severity.WARNING, "SIGTERM received, passed on to the workers (10 s grace)"),
        Mark(0, Phase.LEAVING),
        Kill(0, 1, SIGTERM),
        Kill(1, 1, SIGTERM),
    ]
    bench.exit(0, TERM)
    bench.exit(1, OK)
    assert bench.swept() == [Exit(143, Origin.SIGNAL, "stopped by SIGTERM, before the end of training")]


@pytest.mark.parametrize(("requeue", "code", "please"), [(False, 0, ""), (True, 75, "; please requeue")])
def test_workers_that_save_and_exit_0(requeue: bool, code: int, please: str) -> None:
    bench = Bench(requeue_on_stop=requeue).train()
    bench.give(QuitRequested(SIGTERM))
    bench.exit(0, OK)
    bench.exit(1, OK)
    because = f"stopped by SIGTERM, all workers then exited 0{please}"
    assert bench.swept() == [Exit(code, Origin.SIGNAL, because)]


def test_a_second_signal_kills_at_once() -> None:
    bench = Bench().train()
    bench.give(QuitRequested(SIGTERM))
    assert bench.give(QuitRequested(SIGTERM)) == [
        Note(Severity.WARNING, "SIGTERM again: killing all workers now"),
        Kill(0, 1, SIGKILL),
        Kill(1, 1, SIGKILL),
    ]


def test_a_first_signal_while_leaving_only_says_so() -> None:
    bench = Bench().train()
    bench.exit(0, OK)
    bench.exit(1, OK)
    (note,) = bench.give(QuitRequested(SIGTERM))
    assert note == Note(Severity.WARNING, "SIGTERM: already stopping; once more kills at once")
    assert bench.swept() == [Like(Exit, code=0)]


def test_before_any_worker_there_is_nothing_to_wait_for() -> None:
    bench = Bench()
    orders = bench.give(QuitRequested(SIGTERM))
    assert orders[-1] == Like(Exit, code=143)


def test_a_frozen_launcher_ends_with_a_requeue() -> None:
    bench = Bench().train()
    assert bench.give(LauncherFrozen()) == [
        Mark(0, Phase.LEAVING),
        Kill(0, 1, SIGTERM),
        Kill(1, 1, SIGTERM),
        Kill(0, 1, SIGKILL),
        Kill(1, 1, SIGKILL),
    ]
    bench.exit(0, TERM)
    bench.exit(1, TERM)
    assert bench.swept() == [Like(Exit, code=75, origin=Origin.LAUNCHER)]


def test_frozen_while_leaving_the_time_does_not_count() -> None:
    bench = Bench().train()
    bench.give(QuitRequested(SIGTERM))
    bench.wake()  # SIGKILL has been sent
    bench.give(LauncherFrozen(), after=10_000.0)
    assert bench.phase is Phase.LEAVING
    assert bench.agent.deadline() == bench.at + 5.0  # kill_grace, once more
    bench.exit(0, TERM)
    bench.exit(1, TERM)
    assert bench.swept() == [Like(Exit, code=143)]


# -- what does not end by itself


def test_a_process_that_survives_sigkill_means_this_host_is_done_for() -> None:
    bench = Bench().train()
    bench.give(QuitRequested(SIGTERM))
    bench.exit(0, TERM)
    assert bench.wake() == [Kill(1, 1, SIGKILL)]
    assert bench.wake() == [Exit(71, Origin.LAUNCHER, "rank 1 (pid 11) survives SIGKILL; this host must be recycled")]


STOP = 10.0 + 2 * 5.0 + 1.0
"""stop_grace, then kill_grace for workers and for leftovers, and a second for the searches."""


def test_every_wait_lasts_as_long_as_what_it_waits_for_may_take() -> None:
    bench = Bench(max_restarts=2, start_wait=60.0, signal_wait=30.0).train()
    waits = []
    for step in (
        lambda: bench.exit(1),
        bench.stop_told,
        lambda: (bench.exit(0, TERM), bench.swept()),
        bench.global_told,
        lambda: bench.chosen(Strategy.RECOVER),
    ):
        bench.at += 1.0
        step()
        waits.append((bench.phase, bench.job.until - bench.at))
    assert waits == [
        (Phase.REPORTED, 30.0),
        (Phase.STOPPING, STOP),
        (Phase.STOPPED, 30.0),
        (Phase.DIAGNOSED, 30.0),
        (Phase.RECOVERING, STOP + 60.0),
    ]
    leaving = Bench().train()
    leaving.give(QuitRequested(SIGTERM))
    assert leaving.job.until == leaving.at + 2 * STOP
    leaving.give(LauncherFrozen(), after=1000.0)
    assert leaving.job.until == leaving.at + 2 * STOP


def test_another_round_of_a_recovery_gets_the_whole_time_again() -> None:
    bench = Bench(max_restarts=2, start_wait=60.0).train()
    bench.to_recovering()
    bench.meet(1)
    bench.exit(1, life=2, after=50.0)
    assert bench.job.until == bench.at + STOP + 60.0


def test_a_phase_moves_only_as_the_table_says() -> None:
    with pytest.raises(AssertionError, match="training -> diagnosed"):
        Bench().train().job._move(Phase.DIAGNOSED)


def test_a_silent_controller_is_not_waited_for_for_ever() -> None:
    bench = Bench(signal_wait=7.0).train()
    bench.exit(1)
    assert bench.wake()[0] == Mark(1, Phase.LEAVING)
    bench.exit(0, TERM)
    assert bench.swept() == [Exit(69, Origin.LAUNCHER, "the controller said nothing for 7 s (reported)")]


def test_a_search_that_never_answers_ends_with_its_phase() -> None:
    bench = Bench().train()
    bench.exit(1)
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    because = "the workers could not be stopped in time; this host must be recycled"
    assert bench.wake() == [Exit(71, Origin.LAUNCHER, because)]
    leaving = Bench().train()
    for rank in (0, 1):
        leaving.exit(rank, OK)
    assert leaving.wake() == [Exit(71, Origin.LAUNCHER, because)]


def test_facts_that_are_no_ones_concern() -> None:
    bench = Bench().train()
    bench.give(CallFinished(9, 0))
    bench.give(WorkerStarted(0, 1, 99))
    bench.give(Tick())
    assert bench.phase is Phase.TRAINING
    bench.give(ProgressRead(1, "a"))
    assert bench.job.budget.progress == ""


def test_a_death_while_leaving_is_no_new_incident() -> None:
    bench = Bench().train()
    bench.give(QuitRequested(SIGTERM))
    bench.exit(0, SEGV)
    assert bench.job.incidents == 0


def test_the_dialogue_waits_in_every_phase() -> None:
    bench = Bench().train()
    bench.exit(1)
    bench.answer()
    bench.stop_told()
    bench.exit(0, TERM)
    bench.swept()
    assert bench.give(Tick()) == []
    bench.answer()
    bench.global_told()
    assert bench.give(Tick()) == []
    assert bench.phase is Phase.DIAGNOSED


def test_a_rank_that_hung_is_told_with_what_it_last_wrote() -> None:
    bench = Bench().train()
    bench.exit(0, ExitStatus(code=1), tail="Connection closed by peer")
    bench.give(WorkerHung(11, "its timer 'step' has expired", SIGKILL))
    bench.exit(1, ExitStatus(signal=SIGKILL), tail="in a loop")
    assert [(f.rank, f.because, f.tail) for f in bench.job.incident.faults][1:] == [
        (1, "its timer 'step' has expired", "in a loop")
    ]
    assert bench.job.incident.announced.rank == 0


def test_its_last_words_do_not_make_it_another_culprit() -> None:
    bench = Bench(ranks=3).train()
    assert bench.says(WorkerHung(11, "hangs", SIGTERM)) == ["rank 1 on host (pid 11): hangs; stopping the 2 others"]
    bench.exit(1, TERM, tail="the end")
    assert bench.job.incident.announced is bench.job.incident.culprit
    assert bench.job.incident.culprit.tail == "the end"


def test_a_lost_store_is_a_new_round_that_costs_nothing_and_blames_nobody() -> None:
    bench = Bench().train()
    assert bench.says(StoreLost(0)) == ["the workers' store on host: its process has ended; stopping the 2 others"]
    bench.all_stopped()
    bench.chosen(Strategy.RECOVER)
    assert bench.phase is Phase.RECOVERING
    assert (bench.job.budget.spent, bench.job.budget.forgiven, bench.job.budget.futile) == ([], 1, 0)


def test_a_store_may_be_lost_while_recovering() -> None:
    bench = Bench(max_restarts=1, max_no_progress=1, progress_known=False).train()
    bench.to_recovering()
    bench.meet(1)
    bench.give(StoreLost(1))
    assert (bench.phase, bench.job.round) == (Phase.RECOVERING, 2)


def test_a_store_of_another_round_or_one_lost_in_an_incident_means_nothing() -> None:
    bench = Bench()
    assert bench.give(StoreLost(0)) == []  # there is none yet
    bench.train()
    assert bench.give(StoreLost(1)) == []
    bench.exit(0)
    assert bench.says(StoreLost(0)) == []


def test_a_store_that_is_lost_again_and_again_ends_the_job() -> None:
    bench = Bench().train()
    bench.job.budget.forgiven = 3
    bench.give(StoreLost(0))
    bench.all_stopped()
    bench.chosen(Strategy.EXIT)
    assert bench.job.ending.code == 69
    assert bench.job.ending.origin is Origin.LAUNCHER


def test_who_cannot_stop_well_is_told_but_not_without_end() -> None:
    bench = Bench(ranks=5).train()
    bench.give(QuitRequested(15))
    bench.exit(0, TERM)
    bench.exit(1, OK)
    assert bench.exit(2, ExitStatus(code=3), tail="no space") == [
        Note(Severity.ERROR, "rank 2 on host (pid 12): exit code 3 as it was to stop"),
        Like(Explain, decision="", announced=True),
    ]
    assert len(bench.exit(3, ExitStatus(code=3))) == 2
    assert bench.exit(4, ExitStatus(code=3))[:1] == [Like(Sweep)]


def test_who_never_ran_had_nothing_to_save() -> None:
    bench = Bench(ranks=2)
    bench.meet()
    bench.give(QuitRequested(15))
    assert bench.give(SpawnFailed(0, 1, "no memory")) == []


def test_who_is_killed_by_a_second_signal_was_not_to_save() -> None:
    bench = Bench(ranks=2).train()
    bench.give(QuitRequested(15))
    bench.give(QuitRequested(15))
    assert bench.exit(0, ExitStatus(signal=SIGKILL)) == []


def test_the_culprit_is_waited_for_where_only_a_victim_has_ended() -> None:
    bench = Bench(ranks=2).train()
    bench.exit(0, ExitStatus(code=1), tail="Connection closed by peer")
    bench.answer()
    assert bench.stop_told() == []
    assert bench.agent.deadline() == bench.at + 2.0
    bench.exit(1, ExitStatus(code=42), after=0.5)
    assert bench.phase is Phase.STOPPING
    assert bench.job.incident.culprit.status.code == 42


def test_it_is_not_waited_for_longer_than_that() -> None:
    bench = Bench(ranks=2).train()
    bench.exit(0, ExitStatus(code=1), tail="Connection closed by peer")
    bench.answer()
    bench.stop_told()
    assert bench.wake()[-1] == Like(Kill, rank=1, signum=15)


# -- with ClusterD


def clusterd(kind: SignalKind, *actions: Action, **more: object) -> SignalReceived:
    return SignalReceived("c", kind, actions=actions, source=Ruler.CLUSTERD, **more)  # type: ignore[arg-type]


def ruled(**policy: object) -> Bench:
    bench = Bench(clusterd=True, clusterd_timeout=7.0, clusterd_wait=50.0, **policy)
    bench.give(LinkChanged(True, "there"))
    return bench


def stopped(bench: Bench, *actions: Action, kind: SignalKind = SignalKind.STOP_TRAIN) -> Bench:
    bench.give(clusterd(kind, *actions))
    for rank in bench.ranks:
        bench.exit(rank, TERM)
    bench.swept()
    bench.answer()
    return bench


def test_a_job_that_requires_clusterd_starts_with_it() -> None:
    bench = Bench(clusterd=True, require_clusterd=True, clusterd_timeout=7.0)
    assert bench.first == [Mark(0, Phase.STARTING)]
    assert bench.agent.deadline() == bench.at + 7.0
    assert bench.give(LinkChanged(True, "there"), after=5.0)[-1] == BeginRendezvous(0)
    assert bench.agent.deadline() == bench.at + bench.agent.policy.start_wait


def test_or_not_at_all() -> None:
    bench = Bench(clusterd=True, require_clusterd=True, clusterd_timeout=7.0)
    left = bench.wake()[-1]
    assert left == Exit(69, Origin.LAUNCHER, "ClusterD was not reached within 7 s (--require-clusterd)")


def test_before_the_first_round_clusterds_stop_names_the_first_rank() -> None:
    bench = ruled()
    bench.give(clusterd(SignalKind.STOP_TRAIN))
    assert bench.job.incident.dead == (FaultRank(0),)
    later = ruled().train()
    later.give(clusterd(SignalKind.STOP_TRAIN))
    assert later.job.incident.dead == (FaultRank(0),)


def test_a_pause_ends_with_a_restart_that_is_free() -> None:
    bench = stopped(ruled().train(), Action.PAUSE_TRAIN)
    bench.give(clusterd(SignalKind.CHANGE_STRATEGY, strategy=Strategy.CONTINUE))
    bench.meet(1)
    says = [order.text for order in bench.started(2) if isinstance(order, Note)]
    assert says == [
        "recovered from ClusterD: training pauses, as an operator asked; it starts again from its last state; "
        "all 2 ranks started again, training paused for an operator; 0.00 s"
    ]


def test_workers_that_are_to_save_are_asked_and_how_it_went_is_told() -> None:
    bench = ruled().train()
    bench.give(clusterd(SignalKind.SAVE_AND_EXIT))
    bench.exit(0, OK)
    bench.exit(1, OK)
    assert bench.swept()[-1] == Call(1, "c", StatusReported(0, Strategy.DUMP), Ruler.CLUSTERD)
    bench.answer()
    assert bench.phase is Phase.DIAGNOSED


def test_a_way_back_that_fails_after_clusterd_forgot_it_begins_again() -> None:
    bench = stopped(ruled(max_restarts=1).train())
    bench.give(clusterd(SignalKind.GLOBAL_FAULT))
    bench.answer()
    bench.give(clusterd(SignalKind.CHANGE_STRATEGY, strategy=Strategy.RECOVER))
    bench.give(LinkChanged(True, "there"))
    orders = bench.wake()
    assert Mark(1, Phase.REPORTED) in orders
    assert Call(3, "", FaultReported((FaultRank(0),)), Ruler.CLUSTERD) in orders


def test_clusterd_is_made_to_forget_what_it_began_while_another_ruled() -> None:
    bench = Bench(max_restarts=1).train()
    bench.to_recovering()
    bench.job.renew = True
    bench.meet(1)
    assert Renew() in bench.started(2)
    assert not bench.job.renew


def test_a_silent_clusterd_is_not_waited_for_for_ever() -> None:
    bench = ruled().train()
    bench.exit(1)
    bench.answer()
    assert bench.wake()[-1] == Like(Call, to=Ruler.EMBEDDED)


def test_who_has_forgotten_an_incident_is_not_told_how_it_went() -> None:
    bench = stopped(ruled(max_restarts=1).train())
    bench.give(clusterd(SignalKind.GLOBAL_FAULT))
    bench.answer()
    bench.give(clusterd(SignalKind.CHANGE_STRATEGY, strategy=Strategy.RECOVER))
    bench.give(LinkChanged(False, "broken"))
    bench.meet(1)
    assert not any(isinstance(order, Call) for order in bench.started(2))


# -- other nodes; more of them in test_forming and test_crew


def test_a_node_that_is_lost_and_one_that_joins() -> None:
    bench = Leading(1, 2).together()
    assert Like(Note, text="the node on host1: gone; stopping the 1 other") in bench.lose()
    bench.all_quiet()
    bench.wake()
    bench.meet(1)
    bench.started(2)
    assert bench.phase is Phase.TRAINING
    because = "new nodes: 2 nodes are there now, 1 take part; stopping the 1 other"
    assert Like(Note, text=because) in bench.join(2)
    assert bench.job.incident.ordinal == 2


def test_a_node_lost_while_a_group_forms_costs_no_restart() -> None:
    bench = Leading(1, 2)
    bench.join()
    bench.lose()
    assert (bench.job.round, bench.job.restarts, bench.job.incidents) == (1, 0, 0)


def test_nodes_that_join_cost_nothing_of_the_budget() -> None:
    bench = Leading(1, 2, max_restarts=0, last_call=0.0)
    bench.meet()
    bench.started()
    bench.join()
    bench.all_quiet()
    assert bench.phase is Phase.RECOVERING
    assert bench.job.budget.spent == []
    bench.meet(1)
    bench.started(2)
    assert Like(Mark, phase=Phase.TRAINING) in bench.report(alive=1, running=True)


def test_a_report_of_a_node_is_heard() -> None:
    bench = Leading().together()
    bench.report(alive=0, succeeded=True)
    assert bench.peer().report.succeeded
