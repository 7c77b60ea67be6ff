"""Signals to the launcher: forwarded once, then the grace, then SIGKILL; a second one kills at once."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGTSTP, SIGUSR1

import pytest

from tests.process.conftest import BOUND, Run, command, state, until


@pytest.mark.parametrize(("signum", "name"), [(SIGTERM, "SIGTERM"), (SIGINT, "SIGINT"), (SIGHUP, "SIGHUP")])
def test_each_is_forwarded_once_and_ends_with_128_plus_n(run: Run, signum: int, name: str) -> None:
    run.act("count:TERM,INT,HUP", "up", "idle").up()
    run.send(signum)
    assert run.wait() == 128 + signum
    assert run.notes() == [f"0 {name}", f"1 {name}"]
    assert run.summary["origin"] == "signal"


def test_workers_that_save_and_exit_0_are_a_success(run: Run) -> None:
    run.act("save", "up", "idle").up()
    run.send(SIGTERM)
    assert run.wait() == 0
    assert run.notes() == ["0 saved", "1 saved"]


def test_the_same_asks_for_a_requeue_where_that_is_wanted(run: Run) -> None:
    run.act("save", "up", "idle", options=("--on-stop", "requeue")).up()
    run.send(SIGTERM)
    assert run.wait() == 75


def test_in_a_slurm_job_it_asks_for_a_requeue_by_itself(run: Run) -> None:
    run.act("save", "up", "idle", env={"SLURM_JOB_ID": "77"}).up()
    run.send(SIGTERM)
    assert run.wait() == 75
    assert run.directory.parent.name == "77"


def test_who_ignores_it_is_killed_after_the_grace(run: Run) -> None:
    run.act("ignore:TERM", "up", "idle").up()
    began = time.monotonic()
    run.send(SIGTERM)
    assert run.wait() == 143
    assert 0.55 < time.monotonic() - began < 0.6 + 5
    kills = [r["signum"] for r in run.journal if r.get("order") == "Kill"]
    assert kills == [SIGTERM, SIGTERM, SIGKILL, SIGKILL]


def test_a_second_signal_kills_at_once(run: Run) -> None:
    run.act("ignore:TERM", "up", "idle", options=("--shutdown-timeout", "600")).up()
    run.send(SIGTERM)
    run.fact("Kill", signum=SIGTERM)
    run.send(SIGTERM)
    assert run.wait() == 143


def test_a_signal_in_the_middle_of_an_incident_ends_the_job(run: Run) -> None:
    run.act("ignore:TERM@0", "up", "work:0.5@1", "exit:3@1", "idle",
            options=("--max-restarts", "5", "--shutdown-timeout", "600")).up()  # fmt: skip
    run.fact("Kill", rank=0)
    run.send(SIGTERM)
    run.fact("QuitRequested")
    run.send(SIGTERM)
    assert run.wait() == 143


def test_the_grace_holds_on_the_failure_path_too(run: Run) -> None:
    began = time.monotonic()
    assert run.act("ignore:TERM@0", "up", "exit:3@1", "idle").wait() == 3
    assert time.monotonic() - began < 0.6 + 5


def test_more_signals_can_be_named(run: Run) -> None:
    run.act("count:USR1,TERM", "up", "idle", options=("--signals-to-handle", "USR1")).up()
    run.send(SIGUSR1)
    assert run.wait() == 128 + SIGUSR1
    assert run.notes() == ["0 SIGUSR1", "1 SIGUSR1"]


def test_nohup_stays_nohup(run: Run) -> None:
    run.act("count:TERM", "up", "idle", before=("sh", "-c", 'trap "" HUP; exec "$@"', "sh")).up()
    run.send(SIGHUP)
    run.send(SIGTERM)
    assert run.wait() == 143
    assert [r["signum"] for r in run.journal if r.get("fact") == "QuitRequested"] == [SIGTERM]


def test_a_blocked_signal_is_unblocked(run: Run) -> None:
    block = "import os, signal, sys; signal.pthread_sigmask(0, [15]); os.execvp(sys.argv[1], sys.argv[1:])"
    run.act("up", "idle", before=(sys.executable, "-c", block)).up()
    run.send(SIGTERM)
    assert run.wait() == 143


def test_ctrl_z_does_not_stop_the_launcher(run: Run) -> None:
    run.act("save", "up", "idle").up()
    run.send(SIGTSTP)
    until(lambda: any("Ctrl-Z" in line for line in run.said), BOUND, "the line about Ctrl-Z")
    assert state(run.pid) != "T"
    run.send(SIGTERM)
    assert run.wait() == 0


UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def inner_launcher(run: Run) -> int:
    """Its pid out here; `run.pid` is unshare's."""
    (found,) = [pid for pid in run.alive() if command(pid).split()[1:3] == ["-m", "elastic_run"]]
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="unshare --pid needs root")
def test_as_pid_1_it_hears_signals_and_leaves_no_zombie_of_1000_orphans(run: Run) -> None:
    run.act("save", "forks:500", "up", "idle", before=UNSHARE).up()
    launcher = inner_launcher(run)

    def zombies() -> list[int]:
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        return [int(pid) for pid in children if state(int(pid)) == "Z"]

    until(lambda: not zombies(), BOUND, lambda: f"{len(zombies())} zombies")
    os.kill(launcher, SIGTERM)
    assert run.wait() == 0
    assert run.notes() == ["0 saved", "1 saved"]
