"""torchrun's plug-ins under both launchers: --logs-specs by entry point, --event-log-handler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat.launchers import ELASTIC, PROGRAMS, TOP, TORCHRUN, Done, run

PLUGIN = """
import os
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest

class Flat(DefaultLogsSpecs):
    def reify(self, envs):
        if os.environ.get("PLUGIN_FAILS"):
            raise ValueError("no room")
        def place(kind):
            return {r: f"{self.root_log_dir}/{env['TORCHELASTIC_RESTART_COUNT']}.{env['RANK']}.{kind}"
                    for r, env in envs.items()}
        return LogsDest(place("out"), place("err"), {r: place("out")[r] if r == 1 else "" for r in envs},
                        {r: "" for r in envs}, place("json"))
"""


@pytest.fixture
def packages(tmp_path: Path) -> str:
    """A directory for PYTHONPATH with a package that brings the plug-in `flat`."""
    place = tmp_path / "packages"
    info = place / "flat-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flat\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchrun.logs_specs]\nflat = flat:Flat\n")
    (place / "flat.py").write_text(PLUGIN)
    return str(place)


def launch(launcher: list[str], packages: str, cwd: Path, *words: str, **env: str) -> Done:
    return run(launcher, *words, cwd=cwd, PYTHONPATH=f"{TOP}:{packages}", **env)


def test_a_plug_in_places_output_and_error_files(tmp_path: Path, packages: str) -> None:
    found = []
    for launcher, name in ((TORCHRUN, "A"), (ELASTIC, "B")):
        logs = tmp_path / name
        logs.mkdir()
        words = ["--nproc-per-node", "2", "--logs-specs", "flat", "--log-dir", str(logs), "-m", "pkg.mod", "word"]
        done = launch(launcher, packages, PROGRAMS, *words)
        assert done.code == 0, done.err
        files = {path.name: path.read_text() for path in logs.glob("0.*") if path.stat().st_size}
        found.append((files, done.out))
    assert found[1] == found[0]
    assert found[1] == (
        {"0.0.out": "module rank 0 ['word']\n", "0.1.out": "module rank 1 ['word']\n"},
        ["[default1]:module rank 1 ['word']"],
    )


def test_a_failure_is_found_where_the_plug_in_put_it(tmp_path: Path, packages: str) -> None:
    words = ["--nproc-per-node", "2", "--logs-specs", "flat", "--log-dir", str(tmp_path), str(PROGRAMS / "fail.py")]
    done = launch(ELASTIC, packages, tmp_path, *words, "raise")
    assert done.code == 1
    assert json.loads((tmp_path / "0.1.json").read_text())["message"]["message"] == "ValueError: my own text"
    assert "ValueError: my own text" in done.err
    assert f"logs: {tmp_path}" in done.err


def test_a_name_that_no_package_has_is_one_line(tmp_path: Path, packages: str) -> None:
    done = launch(ELASTIC, packages, tmp_path, "--logs-specs", "other", str(PROGRAMS / "early.py"))
    assert (done.code, done.out) == (2, [])
    assert done.err == (
        "elastic-run: --logs-specs other: no package has it as entry point torchrun.logs_specs; "
        "installed: default, flat\n"
    )


def test_a_handler_that_torch_does_not_know_is_one_line(tmp_path: Path) -> None:
    done = run(ELASTIC, "--event-log-handler", "mine", str(PROGRAMS / "early.py"), cwd=tmp_path)
    assert (done.code, done.out) == (2, [])
    assert done.err == ("elastic-run: --event-log-handler mine: torch knows no such handler; console and null are\n")


def test_a_plug_in_that_fails_ends_the_job_before_it_begins(tmp_path: Path, packages: str) -> None:
    words = ["--logs-specs", "flat", "--log-dir", str(tmp_path / "logs"), str(PROGRAMS / "early.py")]
    done = launch(ELASTIC, packages, tmp_path, *words, PLUGIN_FAILS="1")
    assert (done.code, done.out) == (69, [])
    assert "no rendezvous: --logs-specs: ValueError: no room" in done.err


def events(text: str) -> list[tuple[str, str, object]]:
    """(name, source, rank) of the lines that are events."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return sorted((e["name"], e["source"], str(e["metadata"]["global_rank"])) for e in found)


def said(done: Done) -> list[dict[str, Any]]:
    """The events, in order."""
    return [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]


def test_events_have_torchs_names_and_fields(tmp_path: Path) -> None:
    words = ["--nproc-per-node", "2", "--event-log-handler", "console", str(PROGRAMS / "early.py")]
    theirs, ours = (run(launcher, *words, cwd=tmp_path) for launcher in (TORCHRUN, ELASTIC))
    assert (ours.code, ours.out) == (theirs.code, theirs.out)
    workers = [event for event in events(theirs.err) if event[1] == "WORKER"]
    assert [event for event in events(ours.err) if event[1] == "WORKER"] == workers
    agents = [event for event in events(theirs.err) if event[1] == "AGENT" and "ASSIGN" not in event[0]]
    assert [event for event in events(ours.err) if event[1] == "AGENT"] == agents
    forms = [
        {e["name"]: (e.keys(), e["metadata"].keys(), json.loads(e["metadata"]["metadata"]).keys()) for e in said(done)}
        for done in (theirs, ours)
    ]
    assert {name: forms[0][name] for name in forms[1]} == forms[1]
    (met,) = [e["metadata"] for e in said(ours) if e["metadata"]["state"] == "RENDEZVOUS"]
    assert met["duration_ms"] > 0


def test_a_failure_is_told_as_torch_tells_it_in_every_round(tmp_path: Path) -> None:
    words = ["--nproc-per-node", "2", "--event-log-handler", "console", str(PROGRAMS / "fail.py"), "raise"]
    theirs = run(TORCHRUN, *words, cwd=tmp_path)
    ours = run(ELASTIC, "--max-restarts", "1", *words, cwd=tmp_path)
    failed = [[e["metadata"] for e in said(done) if e["metadata"]["state"] == "FAILED"] for done in (theirs, ours)]
    one, two = [e for e in failed[1] if e["global_rank"] == 1]
    assert [e["agent_restarts"] for e in (one, two)] == [0, 1]
    (like,) = [e for e in failed[0] if e["global_rank"] == 1]
    wanted = json.loads(like["raw_error"])["message"]["message"]
    assert json.loads(two["raw_error"])["message"]["message"] == wanted == "ValueError: my own text"
    details = [json.loads(e["metadata"]) for e in (like, two)]
    assert [d["exit_code"] for d in details] == [[1], [1]]
    assert details[0]["entry_point"] == details[1]["entry_point"]
    rounds = [e["metadata"]["agent_restarts"] for e in said(ours) if e["metadata"]["state"] == "RENDEZVOUS"]
    assert rounds == [0, 1]


def test_an_expired_timer_is_told_as_torchs_watchdog_tells_it(tmp_path: Path) -> None:
    timer = '{\\"pid\\": $$, \\"scope_id\\": \\"step\\", \\"expiration_time\\": 1.5, \\"signal\\": 9}'
    code = f'echo "{timer}" > $TORCHELASTIC_TIMER_FILE; sleep 60'
    words = ["--event-log-handler", "console", "--no-python", "sh", "-c", code]
    done = run(ELASTIC, *words, cwd=tmp_path, TORCHELASTIC_ENABLE_FILE_TIMER="1")
    assert done.code == 128 + signal.SIGKILL
    (event,) = [e for e in said(done) if e["name"] == "kill worker process"]
    (started,) = [e["metadata"] for e in said(done) if e["metadata"]["state"] == "START"]
    details = json.loads(event["metadata"]["metadata"])
    assert (event["source"], event["metadata"]["state"]) == ("AGENT", "RUNNING")
    assert (details["watchdog_event"], details["worker_pid"]) == ("kill worker process", started["worker_id"])
    assert (details["signal"], "timer 'step'" in details["because"]) == ("9", True)


def test_the_job_goes_on_when_the_plug_ins_process_is_killed(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    code = f"touch {ready}; until [ -e {go} ]; do sleep 0.05; done; echo done"
    words = ["--event-log-handler", "console", "--no-python", "sh", "-c", code]
    job = subprocess.Popen([*ELASTIC, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    assert "RENDEZVOUS" in job.stderr.readline()
    assert "START" in job.stderr.readline()
    (host,) = [p for p in children(job.pid) if b"torch_host.py" in (Path("/proc") / str(p) / "cmdline").read_bytes()]
    os.kill(host, signal.SIGKILL)
    assert "plug-ins has ended; the job goes on without them" in job.stderr.readline()
    go.touch()
    out, _ = job.communicate(timeout=60)
    assert (job.returncode, out) == (0, "done\n")


def children(pid: int) -> list[int]:
    return [int(word) for task in Path(f"/proc/{pid}/task").glob("*/children") for word in task.read_text().split()]
