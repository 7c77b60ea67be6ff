"""The run directory: complete, private, one for each launch, and never written over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from signal import SIGKILL, SIGTERM
from typing import Any

import pytest

from elastic_run.observe.rundir import started
from tests.process.conftest import BOUND, TOP, Run, until

LINES = 200_000


def numbered(text: str, ranks: int = 4) -> dict[int, list[int]]:
    """Numbers of the lines of each rank, in order; a torn line is no number."""
    found: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    for line in text.splitlines():
        rank, number, body = line.split("#")
        assert body == "x" * 40
        found[int(rank)].append(int(number))
    return found


ALL = {rank: list(range(LINES)) for rank in range(4)}


@pytest.mark.parametrize(
    ("options", "begin"),
    [((), ""), (("--prefix", "always"), "[default{}]:"), (("--tee", "3"), "[default{}]:")],
    ids=["bare", "prefix", "tee"],
)
def test_nothing_is_lost_twice_torn_or_out_of_order(run: Run, options: tuple[str, ...], begin: str) -> None:
    assert run.act(f"lines:{LINES}", ranks=4, options=options).wait() == 0
    shown = run.out
    if begin:
        for line in shown.splitlines():
            rank = line.partition("#")[0][-1]
            assert line.startswith(begin.format(rank) + rank + "#"), line
        for rank in range(4):
            shown = shown.replace(begin.format(rank), "")
    assert numbered(shown) == ALL
    for rank in range(4):
        kept = (run.directory / f"attempt_0/{rank}/stdout.log").read_text()
        assert numbered(kept)[rank] == ALL[rank]
    assert run.summary["lost"] == {"console bytes": 0, "files bytes": 0, "records": 0}


def test_lines_of_a_mebibyte_come_whole(run: Run) -> None:
    assert run.act("long:8", ranks=4, options=("--prefix", "always")).wait() == 0
    lines = sorted(run.out.splitlines())
    whole = [(rank, i, chr(97 + i) * (1 << 20)) for rank in range(4) for i in range(8)]
    assert lines == [f"[default{rank}]:{rank}#{i}#{body}" for rank, i, body in whole]
    for rank in range(4):
        kept = (run.directory / f"attempt_0/{rank}/stdout.log").read_text().splitlines()
        assert kept == [f"{rank}#{i}#{body}" for r, i, body in whole if r == rank]


def test_bytes_that_are_no_text_come_as_they_are(run: Run) -> None:
    assert run.act("bytes", options=("--tee", "3")).wait() == 0
    line = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"")
    shown = (run.place / "out").read_bytes().split(b"\n")
    assert sorted(shown) == [b"", b"[default0]:" + line, b"[default1]:" + line]
    assert (run.directory / "attempt_0/0/stdout.log").read_bytes() == line + b"\n"


def test_a_slow_console_gets_everything(run: Run) -> None:
    read, write = os.pipe()
    run.act(f"lines:{LINES}", ranks=4, stdout=write)
    os.close(write)
    run.fact("WorkerExited")  # only from here on somebody reads, in small pieces
    shown = bytearray()
    while piece := os.read(read, 5000):
        shown += piece
    os.close(read)
    assert run.wait() == 0
    assert numbered(shown.decode()) == ALL
    assert run.summary["lost"]["console bytes"] == 0


def test_a_last_line_without_its_end_is_kept_and_shown(run: Run) -> None:
    program = 'if [ $RANK = 0 ]; then printf "first\\nsecond"; else head -c 3000000 /dev/zero | tr "\\0" y; fi'
    assert run.start(*run.flags(), "--no-python", "sh", "-c", program).wait() == 0
    assert (run.directory / "attempt_0/0/stdout.log").read_text() == "first\nsecond"
    assert (run.directory / "attempt_0/1/stdout.log").stat().st_size == 3_000_000
    assert run.out.count("y") == 3_000_000
    assert "second" in run.out
    assert run.summary["lost"]["console bytes"] == 0


def test_the_directory_is_private_and_complete(run: Run) -> None:
    options = ("--max-restarts", "1")
    assert run.act("out:x", "up", "errorfile:{}@1#0", "exit:1@1#0", "idle#0", options=options).wait() == 0
    for path in [run.logs, *run.logs.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    names = {str(p.relative_to(run.directory)) for p in run.directory.rglob("*") if p.is_file()}
    assert {"owner.json", "events.jsonl", "state.json", "summary.json", "attempt_0/1/stdout.log"} <= names
    assert {"attempt_1/0/stdout.log", "attempt_1/1/stdout.log", "attempt_0/1/error.json"} <= names
    assert json.loads((run.directory / "owner.json").read_text())["pid"] == run.pid
    (link,) = (run.place / "state/elastic-run/runs").iterdir()
    assert link.resolve() == run.directory.resolve()


def test_the_state_tells_who_runs(run: Run) -> None:
    run.act("up", "idle", ranks=3).up(ranks=3)
    state = run.directory / "state.json"
    until(lambda: json.loads(state.read_text())["phase"] == "training", BOUND, "the state of training")
    workers = json.loads(state.read_text())["workers"]
    assert {worker["rank"]: worker["pid"] for worker in workers} == run.workers()
    run.send(SIGTERM)
    assert run.wait() == 143
    assert json.loads(state.read_text())["phase"] == "done"


def test_a_requeued_job_goes_on_in_its_directory_as_the_next_attempt(run: Run) -> None:
    job = {"SLURM_JOB_ID": "4711"}
    run.act("out:first", "up", "exit:3@0#0", "idle", env=job, options=("--max-restarts", "1")).up(restart=1)
    run.send(SIGKILL)
    run.wait()
    run.gone(BOUND)
    node = run.logs / "4711/node_0"
    earlier = {path: path.read_bytes() for path in node.glob("attempt_*/**/*") if path.is_file()}
    journal = (node / "events.jsonl").read_bytes()
    assert run.act("out:second", env=job).wait() == 0
    assert {path: path.read_bytes() for path in earlier} == earlier
    assert (node / "events.jsonl").read_bytes().startswith(journal)
    texts = [(node / f"attempt_{n}/0/stdout.log").read_text() for n in (0, 1, 2)]
    assert texts == ["first\n", "first\n", "second\n"]


def test_a_live_runs_directory_is_left_alone(new_run: Callable[..., Run]) -> None:
    job = {"SLURM_JOB_ID": "4711"}
    first, second = new_run("first"), new_run("second")
    first.act("up", "idle", env=job).up()
    second.logs = first.logs
    assert second.act("out:x", env=job).wait() == 0
    assert {path.name for path in first.logs.iterdir()} == {"4711", "4711.1"}
    assert json.loads((first.logs / "4711/node_0/owner.json").read_text())["pid"] == first.pid
    first.send(SIGKILL)
    first.wait()


TAKE = """
import sys, time
from elastic_run.observe import rundir
base, begin = sys.argv[1], float(sys.argv[2])
for number in range(300):
    while time.time() < begin + number * 0.003: pass
    print(rundir.take(base, f"job{number}", True).path)
print("all taken", flush=True)
sys.stdin.read()  # who ends may be succeeded
"""


def test_of_many_that_come_back_at_once_only_one_gets_the_old_directory(run: Run) -> None:
    dead = {"host": os.uname().nodename, "pid": os.getpid(), "started": (started(os.getpid()) or 0) - 1}
    for number in range(300):
        owner = run.logs / f"job{number}/node_0/owner.json"
        owner.parent.mkdir(parents=True)
        owner.write_text(json.dumps(dead))
    argv = [sys.executable, "-c", TAKE, str(run.logs), str(time.time() + 0.7)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(argv, env=run.environment(), **pipes) for _ in range(3)]
    taken = [line.strip() for racer in racers for line in iter(racer.stdout.readline, "all taken\n")]
    for racer in racers:
        racer.communicate(timeout=BOUND)
    assert len(taken) == 3 * 300
    assert len(set(taken)) == len(taken)


@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
def test_a_read_only_default_place_is_replaced_by_the_temporary_directory(run: Run) -> None:
    place = run.place / "read-only"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        assert run.start("--nproc-per-node", "2", "--no-python", "true", cwd=place).wait() == 0
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    (line,) = [line for line in run.said if "Read-only file system" in line]
    (found,) = run.tmp.glob("elastic-run-logs-*/*/node_0")
    assert str(found) in line
    assert json.loads((found / "summary.json").read_text())["exit_code"] == 0
    assert (found.parent.parent.stat().st_mode & 0o777) == 0o700


def test_without_log_dir_it_lies_in_the_working_directory(run: Run) -> None:
    assert run.start("--nproc-per-node", "2", "--no-python", "true", env={"PYTHONPATH": str(TOP)}).wait() == 0
    (found,) = (run.place / "elastic-run-logs").glob("*/node_0")
    assert (found / "summary.json").exists()
