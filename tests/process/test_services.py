"""Services of torch's agent: deadlines that workers set themselves, state D, the health-check port."""

from __future__ import annotations

import json
import os
import socket
import urllib.error
import urllib.request
from signal import SIGTERM

import pytest

from elastic_run.supervisor.health import Health
from tests.process.conftest import BOUND, Run

TIMER = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}


def test_a_timer_that_expires_ends_its_rank_and_the_group_starts_again(run: Run) -> None:
    words = ("timer:60", "timer:-1", "timer:0.2@1#0", "idle@1#0")
    assert run.act(*words, options=("--max-restarts", "1"), env=TIMER).wait() == 0
    assert run.said[0].split(": ", 2)[2] == "its timer 'step' of 0.2 s has expired"
    assert [fact["because"] for fact in run.facts("WorkerHung")] == ["its timer 'step' of 0.2 s has expired"]
    assert run.summary["restarts"] == 1


def test_without_a_restart_it_is_the_verdict(run: Run) -> None:
    assert run.act("err:last words", "timer:0.2@1", "idle@1", env=TIMER).wait() == 128 + 9
    assert "its timer 'step' of 0.2 s has expired" in run.said[-1]
    assert any("last words" in line for line in run.said)


def test_nonsense_in_the_fifo_is_passed_over(run: Run) -> None:
    fifo = run.place / "fifo"
    env = {**TIMER, "TORCHELASTIC_TIMER_FILE": str(fifo)}
    run.act("up", "until:go", "timer:0.2@0", "idle@0", env=env)
    run.up()
    with open(fifo, "w") as pipe:
        for said in (
            "",
            "{}",
            "[]",
            '{"pid": 1, "scope_id": "x", "expiration_time": 1e400, "signal": 9}',
            "x" * 100_000,
        ):
            pipe.write(f"{said}\n")
        stranger = {"pid": os.getpid(), "scope_id": "mine", "expiration_time": 1, "signal": 9}
        pipe.write(f"{json.dumps(stranger)}\n")
    (run.signs / "go").touch()
    assert run.wait() == 128 + 9
    assert "rank 0" in run.said[0]
    assert not fifo.exists()


def test_a_file_that_is_no_fifo_is_not_replaced(run: Run) -> None:
    file = run.place / "precious"
    file.write_text("keep me")
    assert run.act("out:x", env={**TIMER, "TORCHELASTIC_TIMER_FILE": str(file)}).wait() == 2
    assert run.said == [f"elastic-run: the variable TORCHELASTIC_TIMER_FILE={file}: File exists; name a new file"]
    assert file.read_text() == "keep me"
    assert run.out == ""


def test_uninterruptible_sleep_is_a_fault_after_its_time(run: Run) -> None:
    env = {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0.5"}
    assert run.act("block@1#0", options=("--max-restarts", "1"), env=env).wait() == 0
    assert "in uninterruptible sleep (state D) for 0." in run.said[0]
    assert "rank 1" in run.said[0]


def probe(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=BOUND) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


def test_a_probe_is_answered_while_the_job_runs(run: Run, port: int) -> None:
    run.act("up", "idle", env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)})
    run.up()
    assert [probe(port) for _ in range(3)] == [200] * 3
    run.send(SIGTERM)
    assert run.wait() == 128 + SIGTERM


def test_a_probe_hears_when_the_loop_does_not_run(port: int) -> None:
    health = Health(port, patience=0.1)  # nobody reads it
    assert probe(port) == 503
    assert health.read() == []


def test_a_health_port_that_is_taken_is_one_line(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run.act("out:x", env={"TORCHELASTIC_HEALTH_CHECK_PORT": port}).wait() == 2
    assert run.said == [
        f"elastic-run: the variable TORCHELASTIC_HEALTH_CHECK_PORT={port}: Address already in use; choose another"
    ]


def test_whoever_started_the_launcher_finds_the_culprits_error_file(run: Run) -> None:
    (run.place / "script.py").write_text(
        "import os\nfrom elastic_run.worker.record import record\n"
        "@record\ndef main():\n  if os.environ['RANK'] == '1': raise ValueError('mine')\n"
        "  import time; time.sleep(60)\nmain()\n"
    )
    env = {"TORCHELASTIC_ERROR_FILE": str(run.place / "mine.json")}
    assert run.start(*run.flags(), "script.py", env=env).wait() == 1
    assert "mine" in json.loads((run.place / "mine.json").read_text())["message"]["message"]


def test_torchs_variable_gives_the_prefix(run: Run) -> None:
    (run.place / "script.py").write_text("print('text')")
    env = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${rank}> "}
    assert run.start(*run.flags(1), "--tee", "3", "script.py", env=env).wait() == 0
    assert run.out == "<0> text\n"


def test_hundreds_of_ranks_start(run: Run) -> None:
    words = ("--nproc-per-node", "400", "--log-dir", str(run.logs), "--no-python", "true")
    assert run.start(*words).wait(90) == 0, run.err
