"""Bad input: one line that names the option and a remedy, exit 2, nothing started and nothing left behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.process.conftest import ACT, Run


@pytest.mark.parametrize(
    ("words", "named", "remedy"),
    [
        ([], "SCRIPT", "Missing"),
        (["nowhere.py"], "nowhere.py", "check the path"),
        (["."], "directory", "name the file"),
        (["-m", "no.such.module"], "--module", "check name"),
        (["-m", "--no-python", "x"], "--no-python", "drop one"),
        (["--no-python", "no-such-program"], "--no-python", "give its path"),
        (["--nproc-per-node", "0", ACT], "--nproc-per-node", "1 or more"),
        (["--nproc-per-node", "-1", ACT], "--nproc-per-node", "1 or more"),
        (["--nproc-per-node", "two", ACT], "--nproc-per-node", "write a number"),
        (["--nproc-per-node", "npu", ACT], "--nproc-per-node", "write a number"),
        (["--log-dir", "/dev/null/logs", ACT], "--log-dir", "choose another"),
        (["--log-dir", "/proc/logs", ACT], "--log-dir", "choose another"),
        (["--shutdown-timeout", "-1", ACT], "--shutdown-timeout", "x>=0"),
        (["--shutdown-timeout", "soon", ACT], "--shutdown-timeout", "not a valid float"),
        (["--shutdown-timeout", "nan", ACT], "--shutdown-timeout", "finite"),
        (["--shutdown-timeout", "inf", ACT], "--shutdown-timeout", "finite"),
        (["--monitor-interval", "-1", ACT], "--monitor-interval", "x>=0"),
        (["--restart-window", "0", "--max-restarts", "1", ACT], "--restart-window", "x>0"),
        (["--restart-window", "5", ACT], "--restart-window", "--max-restarts"),
        (["--max-restarts", "-1", ACT], "--max-restarts", "unlimited"),
        (["--max-restarts", "often", ACT], "--max-restarts", "unlimited"),
        (["--max-no-progress", "0", ACT], "--max-no-progress", "x>=1"),
        (["--signals-to-handle", "NOPE", ACT], "--signals-to-handle", "SIGUSR1"),
        (["--signals-to-handle", "USR1,999", ACT], "--signals-to-handle", "SIGUSR1"),
        (["--signals-to-handle", "KILL", ACT], "--signals-to-handle", "SIGKILL"),
        (["--on-stop", "perhaps", ACT], "--on-stop", "requeue"),
        (["--exit-code", "mine", ACT], "--exit-code", "torchrun"),
        (["--tee", "9", ACT], "--tee", "9"),
        (["--log-max-size", "large", ACT], "--log-max-size", "large"),
        (["--no-such-option", ACT], "--no-such-option", "No such option"),
        (["--log-di", "x", "--r", "3", ACT], "--r", "write more"),
    ],
    ids=lambda value: " ".join(Path(word).name for word in value) if isinstance(value, list) else "",
)
def test_it_starts_nothing_and_leaves_nothing(run: Run, words: list[str], named: str, remedy: str) -> None:
    before = sorted(run.place.iterdir())
    assert run.start(*words).wait() == 2
    assert_one_line(run, named, remedy)
    assert sorted(set(run.place.iterdir()) - {run.place / "out", run.place / "err"}) == before


def test_a_port_that_somebody_has_is_named(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run.start("--rdzv-backend", "static", "--master-port", port, ACT).wait() == 2
    assert_one_line(run, f"--master-port {port}", "choose another")
    assert not (run.place / "elastic-run-logs").exists()


def test_the_variable_that_a_bad_value_came_from_is_named(run: Run) -> None:
    assert run.start(ACT, env={"PET_NPROC_PER_NODE": "0"}).wait() == 2
    assert_one_line(run, "--nproc-per-node", "PET_NPROC_PER_NODE")


@pytest.mark.parametrize("below", ["file/summary.json", "file"])
def test_a_place_for_temporary_files_that_is_none_falls_back(run: Run, below: str) -> None:
    (run.place / "file").touch()
    assert run.act("out:x", env={"TMPDIR": str(run.place / below)}).wait() == 0


def assert_one_line(run: Run, named: str, remedy: str) -> None:
    assert run.out == ""
    assert run.err.count("\n") == 1, run.err
    assert run.err.startswith("elastic-run: ")
    assert named in run.err
    assert remedy in run.err
    assert run.alive() == []
    assert list(run.tmp.iterdir()) == []
