"""Signals to the launcher: forwarded once, then the grace, then SIGKILL; a second one kills at once."""

from __future__ import annotations

import json
import os
import pty
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGXFSZ

import pytest

from elastic_run.supervisor.signals import ONE_ACT
from tests.process.conftest import BOUND, GRACE, Run, command, lasts, state, until, zombies

QUICK = 5.0
"""Much less than a grace of 600 s, much more than a busy machine needs."""
PATIENT = ("--shutdown-timeout", "600")


@pytest.mark.parametrize(("signum", "name"), [(SIGTERM, "SIGTERM"), (SIGINT, "SIGINT"), (SIGHUP, "SIGHUP")])
def test_each_is_forwarded_once_and_ends_with_128_plus_n(run: Run, signum: int, name: str) -> None:
    run.act("count:TERM,INT,HUP", "up", "idle").up()
    run.send(signum)
    assert run.wait() == 128 + signum
    assert run.notes() == [f"0 {name}", f"1 {name}"]
    assert run.summary["origin"] == "signal"
    assert run.summary["exit_code"] == 128 + signum


def test_workers_that_save_and_exit_0_are_a_success(run: Run) -> None:
    run.act("save", "up", "idle").up()
    run.send(SIGTERM)
    assert run.wait() == 0
    assert run.notes() == ["0 saved", "1 saved"]
    assert run.summary["origin"] == "signal"


def test_one_that_does_not_save_is_no_success(run: Run) -> None:
    run.act("save@0", "up", "idle").up()
    run.send(SIGTERM)
    assert run.wait() == 143
    assert run.notes() == ["0 saved"]


@pytest.mark.parametrize("word", ["save", "ignore:TERM"])
def test_the_same_asks_for_a_requeue_where_that_is_wanted(run: Run, word: str) -> None:
    run.act(word, "up", "idle", options=("--on-stop", "requeue")).up()
    run.send(SIGTERM)
    assert run.wait() == 75
    assert run.summary["origin"] == "signal"


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "MINDX_TASK_ID"])
def test_in_a_scheduled_job_it_asks_for_a_requeue_by_itself(run: Run, variable: str) -> None:
    run.act("save", "up", "idle", env={variable: "77"}).up()
    run.send(SIGTERM)
    assert run.wait() == 75
    assert run.directory.parent.name == "77"


def test_there_too_a_plain_exit_can_be_asked_for(run: Run) -> None:
    run.act("save", "up", "idle", env={"SLURM_JOB_ID": "77"}, options=("--on-stop", "exit")).up()
    run.send(SIGTERM)
    assert run.wait() == 0


def test_who_ignores_it_is_killed_after_the_grace(run: Run) -> None:
    run.act("ignore:TERM", "up", "idle").up()
    run.send(SIGTERM)
    assert run.wait() == 143
    kills = run.orders("Kill")
    assert [r["signum"] for r in kills] == [SIGTERM, SIGTERM, SIGKILL, SIGKILL]
    assert GRACE <= kills[2]["at"] - kills[0]["at"] < GRACE + 1


def test_without_a_grace_it_is_killed_at_once(run: Run) -> None:
    run.act("ignore:TERM", "up", "idle", options=("--shutdown-timeout", "0")).up()
    run.send(SIGTERM)
    assert run.wait() == 143


def test_a_grace_may_be_longer_than_the_kernel_can_wait(run: Run) -> None:
    run.act("save", "up", "idle", options=("--shutdown-timeout", "1e12")).up()
    run.send(SIGTERM)
    assert run.wait() == 0


@pytest.mark.parametrize("second", [SIGTERM, SIGINT])
def test_a_second_signal_kills_at_once(run: Run, second: int) -> None:
    run.act("ignore:TERM", "ignore:INT", "setsid:deaf", "up", "idle", options=PATIENT).up()
    run.send(SIGTERM)
    run.fact("Kill", signum=SIGTERM)
    lasts(2 * ONE_ACT)  # nobody presses a key twice in less
    run.send(second)
    assert run.wait(QUICK) == 143
    run.gone(QUICK)


def test_a_hangup_that_comes_twice_lets_the_workers_save(run: Run) -> None:
    run.act("count:HUP", "up", "until:go", "exit:0", options=PATIENT).up()
    run.send(SIGHUP)
    run.fact("QuitRequested", signum=SIGHUP)
    lasts(2 * ONE_ACT)
    run.send(SIGHUP)
    until(lambda: len(run.notes()) == 2, BOUND, "SIGHUP passed on")
    (run.signs / "go").touch()
    assert run.wait() == 0
    assert run.notes() == ["0 SIGHUP", "1 SIGHUP"]


def test_a_second_signal_does_not_reach_the_workers(run: Run) -> None:
    run.act("count:TERM,INT,HUP", "up", "idle", options=PATIENT).up()
    run.send(SIGHUP)
    until(lambda: len(run.notes()) == 2, BOUND, "SIGHUP passed on")
    run.send(SIGTERM)
    assert run.wait(QUICK) == 129
    assert run.notes() == ["0 SIGHUP", "1 SIGHUP"]


def test_a_signal_in_the_middle_of_an_incident_ends_the_job(run: Run) -> None:
    run.act("ignore:TERM@0", "up", "until:0.0@1", "exit:3@1", "idle",
            options=("--max-restarts", "5", *PATIENT)).up()  # fmt: skip
    run.fact("Kill", rank=0)
    run.send(SIGTERM)
    run.fact("QuitRequested")
    run.send(SIGINT)
    assert run.wait() == 143
    assert run.summary["restarts"] == 0


def test_the_grace_holds_on_the_failure_path_too(run: Run) -> None:
    assert run.act("ignore:TERM@0", "up@0", "until:0.0@1", "exit:3@1", "idle").wait() == 3
    kills = [r for r in run.orders("Kill") if r["rank"] == 0]
    assert [r["signum"] for r in kills] == [SIGTERM, SIGKILL]
    assert GRACE <= kills[1]["at"] - kills[0]["at"] < GRACE + 1


def test_on_the_failure_path_a_worker_may_use_its_grace(run: Run) -> None:
    assert run.act("save@0", "up@0", "until:0.0@1", "exit:3@1", "idle", options=PATIENT).wait() == 3
    assert run.notes() == ["0 saved"]
    assert SIGKILL not in [r["signum"] for r in run.orders("Kill")]


@pytest.mark.parametrize("named", ["USR1", "SIGUSR1,USR2", "10"])
def test_more_signals_can_be_named(run: Run, named: str) -> None:
    run.act("count:USR1,TERM,INT", "up", "idle", options=("--signals-to-handle", named)).up()
    run.send(SIGUSR1)
    assert run.wait() == 128 + SIGUSR1
    assert run.notes() == ["0 SIGUSR1", "1 SIGUSR1"]


def test_the_usual_signals_stay_when_more_are_named(run: Run) -> None:
    run.act("count:TERM", "env", "up", "idle", options=("--signals-to-handle", "USR1,TERM,USR2,10")).up()
    run.send(SIGTERM)
    assert run.wait() == 143
    assert run.notes() == ["0 SIGTERM", "1 SIGTERM"]
    told = json.loads((run.signs / "env-0-0").read_text())["TORCHELASTIC_SIGNALS_TO_HANDLE"]
    assert told == "SIGTERM,SIGINT,SIGHUP,SIGUSR1,SIGUSR2"


def test_sigquit_shows_where_the_launcher_is_and_changes_nothing(run: Run) -> None:
    run.act("count:QUIT,TERM", "up", "idle").up()
    run.send(SIGQUIT)
    until(lambda: "most recent call first" in run.err, BOUND, "the stacks")
    run.send(SIGTERM)
    assert run.wait() == 143
    assert run.notes() == ["0 SIGTERM", "1 SIGTERM"]


def test_nohup_stays_nohup_for_launcher_and_workers(run: Run) -> None:
    run.act("count:TERM", "up", "idle", before=("sh", "-c", 'trap "" HUP; exec "$@"', "sh")).up()
    ignored = [mask(pid, "SigIgn") for pid in run.workers().values()]
    run.send(SIGHUP)
    run.send(SIGTERM)
    assert run.wait() == 143
    assert [r["signum"] for r in run.facts("QuitRequested")] == [SIGTERM]
    assert all(1 << SIGHUP - 1 & bits for bits in ignored)


def mask(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status") as file:
        return int(next(line.split()[1] for line in file if line.startswith(f"{name}:")), 16)


def test_a_launcher_that_inherits_every_signal_blocked_hears_what_it_must(run: Run) -> None:
    block = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    words = ("save", "up", "exit:3@1#0", "idle")
    run.act(*words, before=(sys.executable, "-c", block), options=("--max-restarts", "1", *PATIENT)).up(restart=1)
    run.send(SIGTERM)
    assert run.wait() == 0
    assert run.notes()[-2:] == ["0 saved", "1 saved"]


def test_a_launcher_that_inherits_children_ignored_knows_how_they_ended(run: Run) -> None:
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    assert run.act("exit:7@1", "idle", before=(sys.executable, "-c", ignore)).wait() == 7


def test_workers_start_with_pythons_own_signals_undone_and_no_stray_descriptor(run: Run) -> None:
    look = "grep -E 'SigIgn|SigBlk' /proc/self/status; ls /proc/self/fd | wc -w"
    assert run.start(*run.flags(1), "--no-python", "sh", "-c", look).wait() == 0
    lines = dict(line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Sig"))
    pythons = 1 << (SIGPIPE - 1) | 1 << (SIGXFSZ - 1)  # ignored by our own interpreter; the rest is inherited
    ignored = f"{int(lines['SigIgn:'], 16) & ~pythons:016x}"
    # 0, 1, 2 and the one that ls itself opens
    assert run.out.split() == ["SigBlk:", lines["SigBlk:"], "SigIgn:", ignored, "4"]


def test_ctrl_z_does_not_stop_the_launcher(run: Run) -> None:
    run.act("save", "up", "idle").up()
    run.send(SIGTSTP)
    until(lambda: any("Ctrl-Z" in line for line in run.said), BOUND, "the line about Ctrl-Z")
    assert state(run.pid) != "T"
    run.send(SIGTERM)
    assert run.wait() == 0


@contextmanager
def at_a_terminal(run: Run, *words: str) -> Iterator[int]:
    """The launcher as the foreground job of a terminal; gives the end that a person types into."""
    ours, its = pty.openpty()
    lead = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    run.act(*words, before=(sys.executable, "-c", lead), stdin=its, start_new_session=True)
    os.close(its)
    try:
        yield ours
    finally:
        os.close(ours)


def test_ctrl_c_is_heard_once_by_each_worker_and_ctrl_z_by_none(run: Run) -> None:
    with at_a_terminal(run, "count:INT,TSTP,HUP", "up", "idle") as keys:
        run.up()
        os.write(keys, b"\x1a")
        until(lambda: any("Ctrl-Z" in line for line in run.said), BOUND, "the line about Ctrl-Z")
        os.write(keys, b"\x03")
        assert run.wait() == 130
    assert run.notes() == ["0 SIGINT", "1 SIGINT"]


def test_a_terminal_that_goes_away_is_a_hangup(run: Run) -> None:
    with at_a_terminal(run, "count:INT,TERM,HUP", "up", "idle"):
        run.up()
    assert run.wait() == 129
    assert run.notes() == ["0 SIGHUP", "1 SIGHUP"]


UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="unshare --pid needs root")


def inner_launcher(run: Run) -> int:
    """Its pid out here; `run.pid` is unshare's."""
    (found,) = [pid for pid in run.alive() if command(pid).split()[1:3] == ["-m", "elastic_run"]]
    return found


@as_root
def test_as_pid_1_it_hears_signals_and_leaves_no_zombie_of_1000_orphans(run: Run) -> None:
    run.act("save", "forks:500", "up", "idle", before=UNSHARE).up()
    launcher = inner_launcher(run)
    until(lambda: not zombies(launcher), BOUND, lambda: f"{len(zombies(launcher))} zombies")
    os.kill(launcher, SIGTERM)
    assert run.wait() == 0
    assert run.notes() == ["0 saved", "1 saved"]


@as_root
def test_as_pid_1_it_kills_after_the_grace(run: Run) -> None:
    run.act("ignore:TERM", "setsid:deaf", "daemon", "up", "idle", before=UNSHARE).up()
    began = time.monotonic()
    os.kill(inner_launcher(run), SIGTERM)
    assert run.wait() == 143
    assert time.monotonic() - began >= GRACE
    assert run.summary["exit_code"] == 143


@as_root
def test_as_pid_1_it_restarts_and_ends_with_the_workers_code(run: Run) -> None:
    words = ("daemon", "exit:3@1#0", "kill:SEGV@0#1", "idle")
    assert run.act(*words, before=UNSHARE, options=("--max-restarts", "1")).wait() == 139
    assert run.summary["restarts"] == 1
