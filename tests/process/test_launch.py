"""elastic_run.launch: a job from Python, whoever the caller is, and nothing changed in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elastic_run
from elastic_run.errors import ConfigError, WorkersFailed
from tests.process import jobs
from tests.process.conftest import BOUND, TOP, until


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run directories in the test's own place; and what a call must not change is the same afterwards."""
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    before = state()
    yield
    assert state() == before


def state() -> dict[str, Any]:
    return {
        "signals": [signal.getsignal(number) for number in signal.valid_signals() if number not in (9, 19)],
        "threads": {thread.name for thread in threading.enumerate()},
        "descriptors": len(os.listdir("/proc/self/fd")),
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "modules": [name for name in sys.modules if name.startswith("elastic_run.supervisor.loop")],
    }


def test_results_come_in_the_order_of_ranks() -> None:
    results = elastic_run.launch(jobs.place, "a", "b", kwargs={"sep": "-"}, nproc_per_node=3)
    assert results == [(0, "a-b"), (1, "a-b"), (2, "a-b")]


def test_a_method_of_a_class_is_found_by_its_name() -> None:
    assert elastic_run.launch(jobs.Holder.method, nproc_per_node=1) == ["of a class"]


def test_ranks_see_what_ranks_of_a_script_see() -> None:
    first, second = elastic_run.launch(jobs.environment, nproc_per_node=2)
    assert (first["RANK"], second["RANK"], second["WORLD_SIZE"], second["LOCAL_RANK"]) == ("0", "1", "2", "1")
    assert "ELASTIC_RUN_PARENT_FD" not in first


def test_from_another_thread() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(elastic_run.launch(jobs.place, "x", nproc_per_node=2)))
    thread.start()
    thread.join(BOUND)
    assert found == [(0, "x"), (1, "x")]


def test_two_at_once() -> None:
    found: dict[int, Any] = {}

    def call(number: int) -> None:
        found[number] = elastic_run.launch(jobs.place, str(number), nproc_per_node=2)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert found == {n: [(0, str(n)), (1, str(n))] for n in range(2)}


def test_a_failure_tells_who_and_what() -> None:
    with pytest.raises(WorkersFailed, match="ValueError: my own text") as failed:
        elastic_run.launch(jobs.fail, 1, nproc_per_node=2)
    assert (failed.value.code, failed.value.rank, failed.value.error) == (1, 1, "ValueError: my own text")
    assert "Traceback" in failed.value.tail


def test_a_lost_rank_is_recovered(tmp_path: Path) -> None:
    assert elastic_run.launch(jobs.die_once, str(tmp_path / "sign"), nproc_per_node=2, max_restarts=1) == [1, 1]


def test_a_script_by_its_path(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, sys; open(sys.argv[1] + os.environ['RANK'], 'w').close(); sys.exit(int(sys.argv[2]))")
    assert elastic_run.launch(script, tmp_path / "made", 0, nproc_per_node=2) == []
    assert {path.name for path in tmp_path.glob("made*")} == {"made0", "made1"}
    with pytest.raises(WorkersFailed) as failed:
        elastic_run.launch(str(script), tmp_path / "made", 7)
    assert failed.value.code == 7


def test_output_goes_where_the_callers_goes(capfd: pytest.CaptureFixture[str]) -> None:
    elastic_run.launch(jobs.talk, nproc_per_node=2)
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["rank 0 talks", "rank 1 talks"]
    assert "elastic-run: all 2 ranks succeeded" in err


def test_output_reaches_a_stream_without_a_descriptor(capsys: pytest.CaptureFixture[str]) -> None:
    elastic_run.launch(jobs.talk, nproc_per_node=2)
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == ["rank 0 talks", "rank 1 talks"]
    assert "elastic-run: all 2 ranks succeeded" in err


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: elastic_run.launch(lambda: None), "cannot be imported by name"),
        (lambda: elastic_run.launch(jobs.place, threading.Lock()), "arguments of place cannot be pickled"),
        (lambda: elastic_run.launch(jobs.place, nproc_per_node=0), "--nproc-per-node 0"),
        (lambda: elastic_run.launch(jobs.place, no_such_option=1), "--no-such-option"),
        (lambda: elastic_run.launch("/no/such/script.py"), "does not exist"),
    ],
)
def test_what_cannot_be_started_is_one_clear_line(call: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_a_result_that_cannot_be_pickled_is_a_failure_that_says_so() -> None:
    with pytest.raises(WorkersFailed, match="pickle"):
        elastic_run.launch(jobs.unpicklable, nproc_per_node=2)


def script(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    file = tmp_path / "caller.py"
    file.write_text(text)
    return subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_function_of_the_script_itself(tmp_path: Path) -> None:
    text = """
import os
import elastic_run

def mine(word):
    return word + os.environ["RANK"]

if __name__ == "__main__":
    print(elastic_run.launch(mine, "r", nproc_per_node=2))
"""
    caller = script(tmp_path, text)
    out, err = caller.communicate(timeout=BOUND)
    assert (caller.returncode, out) == (0, "['r0', 'r1']\n"), err


def test_a_function_typed_into_a_session_is_refused_with_the_remedy(tmp_path: Path) -> None:
    text = "import elastic_run\ndef mine(): pass\nelastic_run.launch(mine)\n"
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ConfigError: mine lives in a session without a file; put it into a module" in done.stderr


def test_the_job_ends_with_its_caller(tmp_path: Path) -> None:
    text = (
        f"import elastic_run\nfrom tests.process import jobs\nelastic_run.launch(jobs.stay, {str(tmp_path / 'up')!r})\n"
    )
    caller = script(tmp_path, text)
    until((tmp_path / "up").exists, BOUND, "a worker")
    caller.kill()
    caller.wait()

    def workers() -> list[int]:
        marked = f"PWD={tmp_path}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if b"ELASTIC_RUN_JOB" in (said := Path(f"/proc/{name}/environ").read_bytes()) and marked in said:
                    found.append(int(name))
            except OSError:
                continue
        return found

    until(lambda: not workers(), BOUND, lambda: f"workers alive: {workers()}")
    caller.communicate()


def test_a_rank_that_exits_by_itself_keeps_its_place() -> None:
    assert elastic_run.launch(jobs.leave_if_first, nproc_per_node=3) == [None, 1, 2]


def test_a_bound_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="is bound to an object"):
        elastic_run.launch(jobs.Counter().count)


def test_text_is_passed_on_whole(capfd: pytest.CaptureFixture[str]) -> None:
    elastic_run.launch(jobs.write_many)
    assert "\ufffd" not in capfd.readouterr().err


def test_a_program_that_launches_while_it_is_imported_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import elastic_run\ndef f(): return 1\nprint(elastic_run.launch(f))\n")
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "put the call under `if __name__ == '__main__':`" in done.stderr


def test_what_is_raised_can_be_caught_by_the_name_in_the_package() -> None:
    assert elastic_run.WorkersFailed is WorkersFailed
