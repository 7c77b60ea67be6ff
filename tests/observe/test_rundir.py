"""Run directories: named, owned, continued, indexed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_run.observe import rundir


def test_names_come_from_the_scheduler_then_from_the_id_then_from_time_and_pid() -> None:
    assert rundir.job_name("x", {"SLURM_JOB_ID": "42", "MINDX_TASK_ID": "t"}) == ("42", True)
    assert rundir.job_name("x", {"MINDX_TASK_ID": "t/../t"}) == ("t_.._t", True)
    name, returns = rundir.job_name("my job", {})
    assert name.startswith("my_job-")
    assert not returns
    assert rundir.job_name(None, {})[0].endswith(f"-{os.getpid()}")


def test_a_name_cannot_leave_the_log_directory() -> None:
    assert "/" not in rundir.job_name("../../etc", {})[0]
    assert not rundir.job_name("..", {})[0].startswith(".")


def test_it_is_private(tmp_path: Path) -> None:
    run = rundir.take(str(tmp_path / "logs"), "job", returns=True)
    assert run.path == tmp_path / "logs" / "job" / "node_0"
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert (run.path / rundir.OWNER).stat().st_mode & 0o777 == 0o600


def test_a_live_owner_keeps_it(tmp_path: Path) -> None:
    first = rundir.take(str(tmp_path), "job", returns=True)
    second = rundir.take(str(tmp_path), "job", returns=True)
    assert (first.path.parent.name, second.path.parent.name) == ("job", "job.1")


def test_a_requeued_job_continues_where_the_dead_one_was(tmp_path: Path) -> None:
    take = "import sys; from elastic_run.observe import rundir; print(rundir.take(sys.argv[1], 'job', True).path)"
    subprocess.run([sys.executable, "-c", take, str(tmp_path)], check=True, stdout=subprocess.DEVNULL)
    for number in (0, 1, 10):
        (tmp_path / "job/node_0" / f"attempt_{number}").mkdir()
    run = rundir.take(str(tmp_path), "job", returns=True)
    assert run.path == tmp_path / "job/node_0"
    assert run.first_attempt == 11


def test_another_job_does_not_continue_it(tmp_path: Path) -> None:
    owner = tmp_path / "job/node_0" / rundir.OWNER
    owner.parent.mkdir(parents=True)
    owner.write_text(json.dumps({"host": os.uname().nodename, "pid": 1, "started": -1}))
    assert rundir.take(str(tmp_path), "job", returns=False).path.parent.name == "job.1"
    assert rundir.take(str(tmp_path), "job", returns=True).path.parent.name == "job"


def test_a_reused_pid_is_no_live_owner(tmp_path: Path) -> None:
    owner = tmp_path / "job/node_0" / rundir.OWNER
    owner.parent.mkdir(parents=True)
    since = rundir.started(os.getpid())
    assert since is not None
    owner.write_text(json.dumps({"host": os.uname().nodename, "pid": os.getpid(), "started": since - 1}))
    assert rundir.take(str(tmp_path), "job", returns=True).path.parent.name == "job"


def test_a_half_written_owner_file_counts_as_live_for_a_moment(tmp_path: Path) -> None:
    owner = tmp_path / "job/node_0" / rundir.OWNER
    owner.parent.mkdir(parents=True)
    owner.write_text("{")
    assert rundir.take(str(tmp_path), "job", returns=True).path.parent.name == "job.1"
    os.utime(owner, (1, 1))
    assert rundir.take(str(tmp_path), "job", returns=True).path.parent.name == "job"


def test_a_place_that_was_named_must_be_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        rundir.take(str(tmp_path / "file" / "logs"), "job", returns=False)


def test_a_default_place_that_cannot_be_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / rundir.DEFAULT).touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    run = rundir.take(None, "job", returns=False)
    assert run.path.is_relative_to(tmp_path / "tmp")
    assert "cannot be written" in run.instead_of


def test_old_journals_are_put_aside_one_by_one(tmp_path: Path) -> None:
    run = rundir.take(str(tmp_path), "job", returns=False)
    for text in ("first", "second"):
        run.events.write_text(text)
        run.put_events_aside()
    assert (run.path / "events.0.jsonl").read_text() == "first"
    assert (run.path / "events.1.jsonl").read_text() == "second"


def test_the_index_forgets_runs_that_are_gone(tmp_path: Path) -> None:
    run = rundir.take(str(tmp_path), "job", returns=False)
    runs = tmp_path / "state/elastic-run/runs"
    runs.mkdir(parents=True)
    (runs / "gone").symlink_to(tmp_path / "nowhere")
    rundir.index(run.path, {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert [link.resolve() for link in runs.iterdir()] == [run.path.resolve()]
