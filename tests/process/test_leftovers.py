"""No process outlives its job: every way a job can end, over every tree that a worker can grow.

One test is one cause; the trees grow under launchers of their own, all at the same time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from elastic_run.supervisor.orphans import stat_of
from tests.process.conftest import ACT, BOUND, GRACE, LAUNCHER, SLACK, SOON, Run, command, environ, lasts, state, until

TREES = {
    "plain": (),
    "children": ("child", "child:deaf", "bare"),
    "sessions": ("setsid", "setsid:deaf"),
    "daemon": ("daemon",),
    "loader": ("loader",),
    "deaf": ("ignore:TERM", "child:deaf", "setsid:deaf", "daemon", "bare"),
}


def forest(new_run: Callable[..., Run], *words: str, options: tuple[str, ...] = ()) -> list[Run]:
    """A launcher for each tree; the tree is grown before `words`."""
    return [new_run(name).act(*tree, *words, options=options) for name, tree in TREES.items()]


def all_gone(runs: list[Run], since: float, within: float) -> None:
    for run in runs:
        run.gone(max(0.0, since + within - time.monotonic()))


def end(runs: list[Run], signum: int, within: float = SOON) -> None:
    """Signal each launcher; all that is theirs has to be gone in time."""
    since = time.monotonic()
    for run in runs:
        run.send(signum)
    all_gone(runs, since, within)


def grown(new_run: Callable[..., Run], *words: str) -> list[Run]:
    runs = forest(new_run, *words)
    for run in runs:
        run.up()
    return runs


@pytest.mark.parametrize(("word", "code"), [("exit:0", 0), ("exit:7", 7), ("kill:SEGV", 139)])
def test_workers_end_by_themselves(new_run: Callable[..., Run], word: str, code: int) -> None:
    runs = forest(new_run, "up", word)
    assert [run.wait() for run in runs] == [code] * len(TREES)
    for run in runs:
        assert not set(run.alive()) - set(run.guards())  # the launcher leaves last, but for its guard
        exits = [r["at"] for r in run.facts("WorkerExited")]
        assert run.orders("Exit")[0]["at"] - exits[0] < SOON


def test_one_crashes_and_the_group_restarts(new_run: Callable[..., Run]) -> None:
    runs = forest(new_run, "up", "exit:7@1#0", "idle#0", "exit:0", options=("--max-restarts", "1"))
    assert [run.wait() for run in runs] == [0] * len(TREES)
    for run in runs:
        second = [r["at"] for r in run.orders("Spawn") if r["restarts"] == 1]
        swept = [r for r in run.facts("Swept") if r["at"] <= second[0]]
        assert swept[-1]["left"] == 0  # nothing of the first life was there when the second began
        assert second[0] - run.facts("WorkerExited")[0]["at"] < SOON


@pytest.mark.parametrize("hang", ["idle", "busy", "kill:STOP"])
def test_workers_hang_and_the_launcher_is_told_to_stop(new_run: Callable[..., Run], hang: str) -> None:
    runs = grown(new_run, "up", hang)
    end(runs, SIGTERM)
    assert [run.wait() for run in runs] == [143] * len(TREES)


def test_one_hangs_while_another_crashes(new_run: Callable[..., Run]) -> None:
    runs = forest(new_run, "up", "kill:STOP@0", "exit:7")
    assert [run.wait() for run in runs] == [7] * len(TREES)
    for run in runs:
        assert run.orders("Exit")[0]["at"] - run.facts("WorkerExited")[0]["at"] < 2 * GRACE + 1 + SLACK


@pytest.mark.parametrize("hang", ["idle", "kill:STOP"])
def test_the_launcher_is_killed(new_run: Callable[..., Run], hang: str) -> None:
    end(grown(new_run, "up", hang), SIGKILL)


def test_the_launcher_is_killed_while_it_stops_its_workers(new_run: Callable[..., Run]) -> None:
    runs = grown(new_run, "ignore:TERM", "up", "idle")
    since = time.monotonic()
    for run in runs:
        run.send(SIGTERM)
    for run in runs:
        run.fact("Kill", signum=SIGTERM)
        run.send(SIGKILL)
    all_gone(runs, since, 2 * GRACE + 1 + SLACK)


def test_the_launcher_is_frozen(new_run: Callable[..., Run]) -> None:
    runs = grown(new_run, "up", "idle")
    end(runs, SIGSTOP)
    for run in runs:
        run.send(SIGCONT)
    assert [run.wait() for run in runs] == [75] * len(TREES)
    for run in runs:
        assert "guard" in run.said[-1]
        assert run.summary["origin"] == "launcher"


def test_the_guard_is_killed_and_then_the_launcher(new_run: Callable[..., Run]) -> None:
    runs = grown(new_run, "up", "idle")
    first = {run.pid: run.guards() for run in runs}
    for run in runs:
        (guard,) = first[run.pid]
        os.kill(guard, SIGKILL)
    for run in runs:
        until(lambda run=run: run.guards() not in ([], first[run.pid]), BOUND, "another guard")  # type: ignore[misc]
        assert set(run.workers().values()) <= set(run.alive())
    end(runs, SIGKILL)


def test_the_guard_is_killed_and_then_the_launcher_is_frozen(new_run: Callable[..., Run]) -> None:
    runs = grown(new_run, "up", "idle")
    for run in runs:
        for guard in run.guards():
            os.kill(guard, SIGKILL)
            until(lambda run=run, dead=guard: run.guards() not in ([], [dead]), BOUND, "another guard")  # type: ignore[misc]
    end(runs, SIGSTOP)
    for run in runs:
        run.send(SIGCONT)
    assert [run.wait() for run in runs] == [75] * len(TREES)


def test_the_guard_is_frozen(new_run: Callable[..., Run]) -> None:
    """What the launcher does itself goes on; in the end it wakes its guard."""
    runs = grown(new_run, "up", "idle")
    for run in runs:
        os.kill(run.guards()[0], SIGSTOP)
    end(runs, SIGTERM)
    assert [run.wait() for run in runs] == [143] * len(TREES)


def test_a_job_that_is_suspended_as_a_whole_goes_on_later(run: Run) -> None:
    """As Slurm does it to make room for another job."""
    run.act("child", "daemon", "up", "until:go").up()
    for signum in (SIGSTOP, SIGCONT):
        for pid in [run.pid, *run.alive()]:
            os.kill(pid, signum)
        lasts(1.5)
    (run.signs / "go").touch()
    assert run.wait() == 0


def test_the_launcher_ends_for_want_of_descriptors(run: Run) -> None:
    """Too few descriptors leave it helpless in the middle of its start."""
    shell = ("sh", "-c", 'ulimit -n 16; exec "$@"', "sh")
    assert run.act("ignore:TERM", "setsid:deaf", "daemon", "idle", ranks=8, before=shell).wait() in (69, 126)
    run.gone(SOON)


def test_the_job_goes_on_under_a_new_guard(run: Run) -> None:
    run.act("up", "exit:3@1#0", "idle@0#0", "work:0.2", options=("--max-restarts", "1"))
    until(run.guards, BOUND, "a guard")
    os.kill(run.guards()[0], SIGKILL)
    assert run.wait() == 0


def test_guards_killed_while_workers_start_leave_no_worker_twice(run: Run) -> None:
    run.act("up", "work:0.1", ranks=6)
    for _ in range(3):
        until(lambda: run.guards() or run.ended, BOUND, "a guard")
        for pid in run.guards():
            try:
                os.kill(pid, SIGKILL)
            except ProcessLookupError:
                continue
    assert run.wait() == 0
    started = [(r["rank"], r["incarnation"]) for r in run.facts("WorkerStarted")]
    assert sorted(started) == [(rank, 1) for rank in range(6)]


MOMENTS: dict[str, Callable[[Run], object]] = {
    "at once": lambda run: True,
    "it has its options": lambda run: run.logs.exists(),
    "it owns its directory": lambda run: list(run.logs.glob("*/node_0/owner.json")),
    "it has a guard": Run.guards,
    "it has its scratch": Run.scratch,
    "it has decided": lambda run: run.journal,
    "workers are there": Run.acting,
    "a worker is known": Run.workers,
}


@pytest.mark.parametrize("signum", [SIGTERM, SIGKILL, SIGINT])
def test_the_launcher_is_ended_in_the_middle_of_its_start(new_run: Callable[..., Run], signum: int) -> None:
    runs = []
    for name, moment in MOMENTS.items():
        if signum == SIGINT and name == "at once":
            continue  # Python's own start can swallow a KeyboardInterrupt
        run = new_run(name)
        runs.append(run)
        run.act("ignore:INT", "daemon", "up", "idle", ranks=3, start_new_session=True)
        until(lambda run=run, moment=moment: moment(run) or run.ended, BOUND, name)  # type: ignore[misc]
        run.send(signum)
    for run in runs:
        assert run.wait() in (128 + signum, -signum)
        assert "/elastic_run/" not in run.err  # no traceback of ours; a worker may be interrupted in its own start
        run.gone(SOON)


@contextmanager
def strangers(run: Run) -> Iterator[tuple[str, ...]]:
    """A process with the workers' command line, and one that the launcher inherits, which all have to survive.

    Gives the words before the launcher's command.
    """
    twin = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", ACT, "idle"])
    note = run.place / "stranger"
    adopted = 0
    try:
        # The shell's background child becomes a child of the launcher that the shell turns into.
        yield ("sh", "-c", f'env -u LIVES_FOR sleep 1000 & echo $! > {note}; exec "$@"', "sh")
        adopted = int(note.read_text())
        assert "sleep" in command(adopted)
        assert twin.poll() is None
    finally:
        twin.kill()
        twin.wait()
        if adopted:
            os.kill(adopted, SIGKILL)


@pytest.mark.parametrize("signum", [SIGTERM, SIGKILL, SIGSTOP])
def test_strangers_live_when_the_job_is_stopped(run: Run, signum: int) -> None:
    with strangers(run) as shell:
        run.act("setsid", "up", "idle", before=shell).up()
        stat = stat_of(int((run.place / "stranger").read_text()))
        assert stat is not None
        assert stat.parent == run.pid
        run.send(signum)
        run.gone(SOON)
        if signum == SIGSTOP:
            run.send(SIGCONT)
        run.wait()


def test_strangers_live_through_restart_and_end(run: Run) -> None:
    with strangers(run) as shell:
        words = ("daemon", "exit:3@1#0", "idle#0", "exit:0")
        assert run.act(*words, before=shell, options=("--max-restarts", "1")).wait() == 0


STAGE = """
import os, signal, subprocess, sys, time
up, command = sys.argv[1], sys.argv[2:]
launcher = subprocess.Popen(command)
def wait(holds):
    end = time.monotonic() + 30
    while not holds() and time.monotonic() < end: time.sleep(0.01)
wait(lambda: os.path.exists(up + "/0.0") and os.path.exists(up + "/1.0"))
pid = int(open(up + "/pid").read())
wait(lambda: not os.path.exists(f"/proc/{pid}"))
environment = {k: v for k, v in os.environ.items() if k != "LIVES_FOR"}
for _ in range(100):
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(pid - 1))
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True, env=environment)
    if stranger.pid == pid: break
    stranger.kill(); stranger.wait()
same = stranger.pid == pid
open(up + "/go", "w").close()
code = launcher.wait()
time.sleep(0.2)  # for the guard, which looks once more
print("recycled" if same else "not recycled", code, "dead" if stranger.poll() is not None else "alive")
stranger.kill(); stranger.wait()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="unshare --pid needs root")
def test_a_stranger_lives_that_got_the_pid_of_a_worker_that_ended_early(run: Run) -> None:
    script = run.place / "early.sh"
    script.write_text(
        # the kernel counts starts in hundredths of a second: nobody can tell two of the same pid in one apart
        "if [ $RANK = 0 ]; then echo $$ > $UP/pid; sleep 0.05; fi; : > $UP/new-$RANK; mv $UP/new-$RANK $UP/$RANK.0\n"
        "if [ $RANK = 1 ]; then while [ ! -e $UP/go ]; do sleep 0.02; done; fi\n"
    )
    stage = (sys.executable, "-c", STAGE, str(run.signs))
    namespace = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    run.start(*run.flags(), "--no-python", "sh", str(script), before=(*namespace, *stage))
    assert run.wait() == 0
    if "not recycled" in run.out:
        pytest.skip("this kernel does not give a pid again on demand")
    assert run.out.split() == ["recycled", "0", "alive"]


NESTED = ("ignore:TERM", "setsid:deaf", "daemon", "up", "idle")


@pytest.mark.parametrize("how", [SIGTERM, SIGKILL, SIGSTOP])
def test_a_launcher_in_a_worker_of_a_launcher(run: Run, how: int) -> None:
    inner = (*LAUNCHER, "--nproc-per-node", "2", "--log-dir", str(run.place / "inner"), "--shutdown-timeout", "0.6")
    run.start(*run.flags(1), "--no-python", *inner, ACT, *NESTED).up()
    assert len([line for line in run.said if "started by another launcher" in line]) == 1
    run.send(how)
    run.gone(2 * GRACE + 1 + SLACK)
    if how == SIGSTOP:
        run.send(SIGCONT)
    run.wait()


def test_the_code_of_a_nested_job_is_its_outer_launchers(run: Run) -> None:
    inner = (*LAUNCHER, "--nproc-per-node", "2", "--max-restarts", "1", "--log-dir", str(run.place / "inner"))
    run.start(*run.flags(2), "--no-python", *inner, ACT, "exit:9#0", "exit:41@1", "idle")
    assert run.wait() == 41
    assert run.summary["origin"] == "workers"


def test_an_inner_launcher_that_is_killed_leaves_nothing_to_a_restart(run: Run) -> None:
    inner = (*LAUNCHER, "--nproc-per-node", "2", "--log-dir", str(run.place / "inner"), "--shutdown-timeout", "0.6")
    run.start(*run.flags(1), "--max-restarts", "1", "--no-python", *inner, ACT, *NESTED)
    run.up()
    first = set(run.acting())
    for path in run.signs.iterdir():
        path.unlink()
    os.kill(run.workers()[0], SIGKILL)
    run.up()
    assert not {pid for pid in first if state(pid) not in ("", "Z") and run.mark in environ(pid)}
    run.send(SIGTERM)
    run.gone(2 * GRACE + 1 + SLACK)
    assert run.wait() == 143


def test_data_loader_workers_go_with_their_launcher(run: Run) -> None:
    pytest.importorskip("torch")
    loading = Path(__file__).parent / "workers" / "loading.py"
    run.start(*run.flags(), str(loading)).up()
    assert len(run.alive()) >= 2 + 2 + 4  # launcher, guard, two workers, four loaders
    run.send(SIGKILL)
    run.gone(SOON)


@pytest.mark.campaign  # on a machine with much other work it may escape, and then slows down whatever runs after it
@pytest.mark.parametrize("end", ["exit:0", "exit:3@1", "idle"])
def test_what_is_always_another_process_is_caught(run: Run, end: str) -> None:
    run.act("respawn", "up", end)
    run.up()
    if end == "idle":
        run.send(SIGKILL)
    run.wait()
    run.gone(SOON)
