"""Whole jobs whose incidents a ClusterD decides: our own server, in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.process.conftest import BOUND, Run, until
from tests.wire.serving import Server, serving

SCRIPT = """
import os, pathlib, sys, time
rank, life = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
pathlib.Path(f"{rank}.{life}").write_text(str(os.getpid()))
if life == "0":
    time.sleep(1000)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        one.tell("declare", "job", "--ranks-per-node", "2")
        yield one


def begin(run: Run, server: Server, *words: str) -> Run:
    """A job of two ranks that train until somebody dies; after a restart they succeed."""
    (run.place / "script.py").write_text(SCRIPT)
    given = ("--max-restarts", "2", "--clusterd", server.target, "--clusterd-job", "job", *words)
    run.start(*run.flags(), *given, "script.py")
    return run


def trained(run: Run) -> int:
    """Pid of rank 1, once both ranks train."""
    until(lambda: (run.place / "0.0").exists() and (run.place / "1.0").exists(), BOUND, "both ranks")
    until(lambda: (run.place / "1.0").read_text(), BOUND, "a pid")
    return int((run.place / "1.0").read_text())


def up(run: Run) -> None:
    until(lambda: any(fact["up"] for fact in run.facts("LinkChanged")), BOUND, "the link to ClusterD")


def rulers(run: Run) -> set[str]:
    return {order["to"] for order in run.orders("Call")}


def test_clusterd_decides(run: Run, server: Server) -> None:
    begin(run, server)
    up(run)
    os.kill(trained(run), signal.SIGKILL)
    assert run.wait() == 0, run.err
    assert rulers(run) == {"ClusterD"}
    assert any("ClusterD decides incidents of this job" in line for line in run.said)
    assert run.summary["restarts"] == 1


def test_a_clusterd_that_is_gone_leaves_it_to_the_embedded_controller(run: Run, server: Server) -> None:
    begin(run, server, "--clusterd-timeout", "0.5")
    up(run)
    rank = trained(run)
    server.end(signal.SIGKILL)
    os.kill(rank, signal.SIGKILL)
    assert run.wait() == 0, run.err
    assert "embedded controller" in rulers(run)
    assert any("was out of reach for 0.5 s; the embedded controller decides" in line for line in run.said)


def test_one_that_comes_back_in_time_decides(run: Run, server: Server) -> None:
    begin(run, server, "--clusterd-timeout", "60")
    up(run)
    rank = trained(run)
    server.end(signal.SIGKILL)
    until(lambda: not run.facts("LinkChanged")[-1]["up"], BOUND, "a broken link")
    os.kill(rank, signal.SIGKILL)
    until(lambda: any(order["phase"] == "reported" for order in run.orders("Mark")), BOUND, "the incident")
    server.start()
    server.tell("declare", "job", "--ranks-per-node", "2")
    assert run.wait(60) == 0, run.err
    assert rulers(run) == {"ClusterD"}


def test_a_broken_device_ends_its_processes_and_the_group_starts_again(run: Run, server: Server) -> None:
    begin(run, server)
    up(run)
    trained(run)
    assert server.tell("fault", "job", "--rank", "1").returncode == 0
    assert run.wait() == 0, run.err
    assert any("its device is broken (ClusterD)" in line for line in run.said)


def test_a_job_that_clusterd_forgets_goes_on(run: Run, server: Server) -> None:
    begin(run, server)
    up(run)
    rank = trained(run)
    server.tell("stop", "job")
    os.kill(rank, signal.SIGKILL)
    server.tell("declare", "job", "--ranks-per-node", "2")
    assert run.wait(60) == 0, run.err


def test_without_a_clusterd_that_is_required_nothing_starts(run: Run) -> None:
    (run.place / "script.py").write_text(SCRIPT)
    words = ("--clusterd", "127.0.0.1:9", "--clusterd-job", "job", "--require-clusterd", "--clusterd-timeout", "0.5")
    assert run.start(*run.flags(), *words, "script.py").wait() == 69
    assert not (run.place / "0.0").exists()
    assert run.said[-1] == ("elastic-run: ClusterD was not reached within 0.5 s (--require-clusterd); exit code 69")


def test_the_variables_of_a_pod_name_it(run: Run) -> None:
    (run.place / "script.py").write_text("")
    env = {"MINDX_TASK_ID": "job", "MINDX_SERVER_IP": "127.0.0.1"}
    assert run.start(*run.flags(), "script.py", env=env).wait() == 0
    assert run.said[0] == (
        "elastic-run: ClusterD at 127.0.0.1:8899: in the clear, as the variable MINDX_SERVER_IP says no more than an "
        "address"
    )


@pytest.mark.parametrize("what", ["missing", "garbage", "lonely"])
def test_bad_certificates_are_one_line_and_nothing_starts(run: Run, what: str) -> None:
    (run.place / "script.py").write_text(SCRIPT)
    (run.place / "garbage.pem").write_text("nonsense")
    words = {
        "missing": ("--clusterd-ca", "missing.pem"),
        "garbage": ("--clusterd-ca", "garbage.pem"),
        "lonely": ("--clusterd-cert", "garbage.pem"),
    }[what]
    assert run.start(*run.flags(), "--clusterd", "grpcs://h:1", "--clusterd-job", "j", *words, "script.py").wait() == 2
    assert len(run.said) == 1
    assert not (run.place / "0.0").exists()
