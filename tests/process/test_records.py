"""The run directory, and disks and consoles that fail: the job goes on, what is lost is counted and said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.process.conftest import BOUND, Run, until

LINES = 20_000


def numbered(text: str, ranks: int = 4) -> dict[int, list[int]]:
    """Numbers of the lines of each rank, in order; a torn line is no number."""
    found: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    for line in text.splitlines():
        rank, number, body = line.split("#")
        assert body == "x" * 40
        found[int(rank)].append(int(number))
    return found


def test_nothing_is_lost_twice_torn_or_out_of_order(run: Run) -> None:
    assert run.act(f"lines:{LINES}", ranks=4).wait() == 0
    assert numbered(run.out) == {rank: list(range(LINES)) for rank in range(4)}
    for rank in range(4):
        kept = (run.directory / f"attempt_0/{rank}/stdout.log").read_text()
        assert numbered(kept)[rank] == list(range(LINES))
    assert run.summary["lost"] == {"console bytes": 0, "files bytes": 0, "records": 0}


def test_the_directory_is_private_and_complete(run: Run) -> None:
    assert run.act("out:x", "up", "exit:1@1#0", "idle#0", options=("--max-restarts", "1")).wait() == 0
    for path in [run.directory.parent, *run.directory.parent.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    names = {str(p.relative_to(run.directory)) for p in run.directory.rglob("*") if p.is_file()}
    assert {"owner.json", "events.jsonl", "state.json", "summary.json", "attempt_0/1/stdout.log"} <= names
    assert {"attempt_1/0/stdout.log", "attempt_1/1/stdout.log"} <= names
    (link,) = (run.place / "state/elastic-run/runs").iterdir()
    assert link.resolve() == run.directory.resolve()


def test_a_requeued_job_goes_on_in_its_directory_as_the_next_attempt(run: Run) -> None:
    job = {"SLURM_JOB_ID": "4711"}
    run.act("out:first", "up", "idle", env=job).up()
    run.send(SIGKILL)
    run.wait()
    run.gone(BOUND)
    assert run.act("out:second", env=job).wait() == 0
    texts = [(run.logs / f"4711/node_0/attempt_{n}/0/stdout.log").read_text() for n in (0, 1)]
    assert texts == ["first\n", "second\n"]


def test_a_live_runs_directory_is_left_alone(run: Run, tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "4711"}
    run.act("up", "save", "idle", env=job).up()
    other = tmp_path / "other"
    other.mkdir()
    second = Run(other)
    try:
        second.logs = run.logs
        assert second.act("out:x", env=job).wait() == 0
    finally:
        second.close()
    assert {path.name for path in run.logs.iterdir()} == {"4711", "4711.1"}
    run.send(SIGKILL)
    run.wait()


def mounted(command: list[str], at: Path) -> None:
    at.mkdir()
    done = subprocess.run([*command, str(at)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")


def test_a_full_disk_costs_records_not_the_job(run: Run) -> None:
    mounted(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs"], run.logs)
    try:
        words = (f"lines:{LINES}", "exit:3@1#0", "idle#0", "out:done")
        assert run.act(*words, ranks=4, options=("--max-restarts", "1")).wait() == 0
        assert run.out.splitlines().count("done") == 4
        lost = [line for line in run.said if "lost" in line or "could not be written" in line]
        assert len([line for line in run.said if "No space left on device" in line]) == 1
        assert lost
    finally:
        subprocess.run(["umount", str(run.logs)], check=True)


def test_a_log_directory_that_is_deleted_does_no_harm(run: Run) -> None:
    run.act("up", "work:0.5", "out:late").up()
    subprocess.run(["rm", "-r", str(run.logs)], check=True)
    assert run.wait() == 0
    assert run.out.splitlines() == ["late", "late"]


def test_a_hung_log_file_system_does_not_stop_the_job(run: Run) -> None:
    image = run.place / "image"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot make a file system here: {made.stderr.strip()}")
    mounted(["mount", "-o", "loop", str(image)], run.logs)
    frozen = False
    try:
        run.act("up", "work:0.3", f"lines:{LINES}", "exit:3@1#0", "idle#0", "out:done",
                options=("--max-restarts", "1")).up()  # fmt: skip
        done = subprocess.run(["fsfreeze", "-f", str(run.logs)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot freeze a file system here: {done.stderr.strip()}")
        frozen = True
        until(lambda: any("succeeded" in line for line in run.said), 3 * BOUND, "the verdict")
        until(lambda: any("does not answer" in line for line in run.said), BOUND, "what was lost")
        assert run.out.splitlines().count("done") == 2
    finally:
        if frozen:
            subprocess.run(["fsfreeze", "-u", str(run.logs)], check=True)
        if run.process is not None:
            code = run.process.wait(BOUND)
        subprocess.run(["umount", "-l", str(run.logs)], check=True)
    assert code == 0


def test_a_console_that_is_closed_early(run: Run) -> None:
    head = subprocess.Popen(["head", "-1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert head.stdin is not None
    run.act(f"lines:{LINES}", "out:end", stdout=head.stdin)
    head.stdin.close()
    assert head.stdout is not None
    with head.stdout:
        shown = head.stdout.read()
    assert head.wait(BOUND) == 0
    assert shown.count(b"\n") == 1
    assert run.wait() == 0
    assert run.summary["lost"]["console bytes"] > 0
    assert (run.directory / "attempt_0/0/stdout.log").read_text().endswith("end\n")


def test_a_reader_that_never_reads(run: Run) -> None:
    read, write = os.pipe()
    try:
        run.act(f"lines:{LINES}", "out:end", stdout=write, stderr=write)
        os.close(write)
        assert run.wait() == 0
        assert (run.directory / "attempt_0/1/stdout.log").read_text().endswith("end\n")
        assert run.summary["exit_code"] == 0
    finally:
        os.close(read)
