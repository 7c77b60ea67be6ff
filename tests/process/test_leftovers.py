"""No process outlives its job: every way a job can end, over every tree that a worker can grow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from elastic_run.supervisor.orphans import stat_of
from tests.process.conftest import BOUND, TOP, Run, command, state, until

GRACE = 0.6
SLACK = 1.5
"""For a machine that does other things: the promise is grace + 1 s on a quiet one, measured by `make campaign`."""

TREES = {
    "plain": (),
    "children": ("child", "child:deaf"),
    "setsid": ("setsid", "setsid:deaf"),
    "daemon": ("daemon",),
    "all of them, deaf": ("ignore:TERM", "child:deaf", "setsid:deaf", "daemon"),
}


def tree(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(name, TREES.values(), ids=TREES.keys())


@tree("words")
@pytest.mark.parametrize("end", ["exit:0", "exit:7", "kill:SEGV"])
def test_workers_end_by_themselves(run: Run, words: tuple[str, ...], end: str) -> None:
    run.act(*words, "up", end).wait()
    run.gone(GRACE + 1 + SLACK)


@tree("words")
def test_one_crashes_and_the_group_restarts(run: Run, words: tuple[str, ...]) -> None:
    run.act(*words, "up", "exit:7@1#0", "idle#0", "exit:0", options=("--max-restarts", "1"))
    assert run.wait() == 0
    second = [r["at"] for r in run.journal if r.get("order") == "Spawn" and r["restarts"] == 1]
    swept = [r for r in run.journal if r.get("fact") == "Swept" and r["at"] <= second[0]]
    assert swept[-1]["left"] == 0  # nothing of the first life was there when the second began
    run.gone(GRACE + 1 + SLACK)


@tree("words")
@pytest.mark.parametrize("hang", ["idle", "busy", "kill:STOP"])
def test_workers_hang_and_the_launcher_is_told_to_stop(run: Run, words: tuple[str, ...], hang: str) -> None:
    run.act(*words, "up", hang).up()
    run.send(SIGTERM)
    run.gone(GRACE + 1 + SLACK)
    assert run.wait() == 143


@tree("words")
def test_the_launcher_is_killed(run: Run, words: tuple[str, ...]) -> None:
    run.act(*words, "up", "idle").up()
    run.send(SIGKILL)
    run.gone(GRACE + 1 + SLACK)
    run.wait()


@tree("words")
def test_the_launcher_is_frozen(run: Run, words: tuple[str, ...]) -> None:
    run.act(*words, "up", "idle").up()
    run.send(SIGSTOP)
    run.gone(GRACE + 1 + SLACK)
    run.send(SIGCONT)
    assert run.wait() == 75
    assert "guard" in run.said[-1]


@tree("words")
def test_the_guard_is_killed_and_then_the_launcher(run: Run, words: tuple[str, ...]) -> None:
    run.act(*words, "up", "idle").up()
    (first,) = run.guards()
    os.kill(first, SIGKILL)
    until(lambda: run.guards() not in ([], [first]), BOUND, "another guard")
    assert state(run.pid) != "Z"
    run.send(SIGKILL)
    run.gone(GRACE + 1 + SLACK)
    run.wait()


def test_the_job_goes_on_under_a_new_guard(run: Run) -> None:
    run.act("up", "exit:3@1#0", "idle@0#0", "work:0.2", options=("--max-restarts", "1"), ranks=2)
    until(lambda: bool(run.guards()), BOUND, "a guard")
    os.kill(run.guards()[0], SIGKILL)
    assert run.wait() == 0


def test_guards_killed_while_workers_start_leave_no_worker_twice(run: Run) -> None:
    run.act("up", "work:0.1", ranks=6)
    for _ in range(3):
        until(lambda: bool(run.guards()) or run.process is None or run.process.poll() is not None, BOUND, "a guard")
        for pid in run.guards():
            try:
                os.kill(pid, SIGKILL)
            except ProcessLookupError:
                continue
    assert run.wait() == 0
    started = [(r["rank"], r["incarnation"]) for r in run.journal if r.get("fact") == "WorkerStarted"]
    assert sorted(started) == [(rank, 1) for rank in range(6)]


@pytest.mark.parametrize("deed", [lambda run: run.send(SIGTERM), lambda run: run.send(SIGKILL)], ids=["TERM", "KILL"])
def test_strangers_live(run: Run, deed: Callable[[Run], None]) -> None:
    twin = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", "act.py"])
    try:
        # The shell's background child becomes a child of the launcher that the shell turns into.
        shell = ("sh", "-c", 'env -u LIVES_FOR sleep 1000 & echo $! > stranger; exec "$@"', "sh")
        run.act("setsid", "up", "idle", before=shell).up()
        adopted = int((run.place / "stranger").read_text())
        try:
            assert (stat_of(adopted) or ("", 0, 0))[1] == run.pid
            deed(run)
            run.wait()
            run.gone(GRACE + 1 + SLACK)
            assert "sleep" in command(adopted)
        finally:
            os.kill(adopted, SIGKILL)
        assert twin.poll() is None
    finally:
        twin.kill()
        twin.wait()


@pytest.mark.parametrize("how", [SIGTERM, SIGKILL, SIGSTOP])
def test_a_launcher_in_a_worker_of_a_launcher(run: Run, how: int) -> None:
    inner = [sys.executable, "-m", "elastic_run", "--nproc-per-node", "2", "--log-dir", str(run.place / "inner")]
    script = run.place / "outer.py"
    script.write_text(f"import subprocess, sys; sys.exit(subprocess.call({[*inner]!r} + sys.argv[1:]))")
    act = str(TOP / "tests/process/workers/act.py")
    words = ("--shutdown-timeout", "0.6", act, "ignore:TERM", "setsid:deaf", "up", "idle")
    run.start("--log-dir", str(run.logs), "--shutdown-timeout", "0.6", str(script), *words).up()
    assert "started by another launcher" in run.err
    run.send(how)
    run.gone(2 * GRACE + 1 + SLACK)
    if how == SIGSTOP:
        run.send(SIGCONT)
    run.wait()


def test_data_loader_workers_go_with_their_launcher(run: Run) -> None:
    pytest.importorskip("torch")
    script = run.place / "loading.py"
    script.write_text(
        "import os, time, pathlib\n"
        "from torch.utils.data import DataLoader\n"
        "class Slow(list):\n"
        "    def __getitem__(self, i):\n"
        "        time.sleep(100 if i > 3 else 0); return i\n"
        "if __name__ == '__main__':\n"
        "    for batch in DataLoader(Slow(range(100)), batch_size=2, num_workers=2):\n"
        "        pathlib.Path(os.environ['UP'], os.environ['RANK'] + '.0').touch()\n"
    )
    flags = ("--nproc-per-node", "2", "--log-dir", str(run.logs), "--shutdown-timeout", "0.6")
    run.start(*flags, str(script)).up()
    assert len(run.alive()) >= 2 + 2 + 4  # launcher, guard, two workers, four loaders
    run.send(SIGKILL)
    run.gone(GRACE + 1 + SLACK)
    run.wait()
