"""The same small programs under torchrun and under elastic-run: what differs must stand in docs/torchrun.md."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.launchers import ELASTIC, PROGRAMS, TOP, TORCHRUN, both, run

pytest.importorskip("torch.distributed.run")


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def documented() -> set[str]:
    """Variables that docs/torchrun.md names as intended differences."""
    return set(re.findall(r"`([A-Z_]{2,})`", (TOP / "docs/torchrun.md").read_text()))


def test_a_worker_sees_the_same_but_for_the_reviewed_differences(tmp_path: Path) -> None:
    seen = []
    for launcher, name in ((TORCHRUN, "A"), (ELASTIC, "B")):
        (tmp_path / name).mkdir()
        program = str(PROGRAMS / "dump.py")
        assert run(launcher, "--nproc-per-node", "2", program, str(tmp_path / name), "--x", cwd=tmp_path).code == 0
        seen.append(json.loads((tmp_path / name / "1.json").read_text()))
    theirs, ours = seen
    envs = [it.pop("env") for it in seen]
    different = {name for name in envs[0].keys() | envs[1].keys() if envs[0].get(name) != envs[1].get(name)}
    assert different - documented() - {"_"} == set()
    for it in seen:
        it["argv"].pop(1)
        it["orig_argv"].pop(-2)
    assert ours == theirs


@pytest.mark.parametrize("how", ["3", "text", "raise", "SIGSEGV", "SIGKILL"])
def test_exit_codes_are_torchruns_if_that_is_asked(tmp_path: Path, how: str) -> None:
    program = str(PROGRAMS / "fail.py")
    theirs = run(TORCHRUN, "--nproc-per-node", "2", program, how, cwd=tmp_path)
    same = run(ELASTIC, "--nproc-per-node", "2", "--exit-code", "torchrun", program, how, cwd=tmp_path)
    own = run(ELASTIC, "--nproc-per-node", "2", program, how, cwd=tmp_path)
    assert same.code == theirs.code == 1
    assert own.code == {"3": 3, "text": 1, "raise": 1, "SIGSEGV": 139, "SIGKILL": 137}[how]
    assert "rank 1 on" in own.err


def test_an_error_file_has_the_same_form(tmp_path: Path) -> None:
    program = str(PROGRAMS / "fail.py")
    for launcher, name in ((TORCHRUN, "A"), (ELASTIC, "B")):
        run(launcher, "--nproc-per-node", "2", "--log-dir", name, program, "raise", cwd=tmp_path)
    theirs, ours = (json.loads(next((tmp_path / n).rglob("1/error.json")).read_text()) for n in "AB")
    assert ours["message"]["message"] == theirs["message"]["message"] == "ValueError: my own text"
    assert ours["message"].keys() == theirs["message"].keys()
    assert ours["message"]["extraInfo"].keys() == theirs["message"]["extraInfo"].keys()


def test_our_own_record_writes_what_torchs_writes(tmp_path: Path) -> None:
    code = "from {} import record\n@record\ndef main(): raise KeyError('x')\nmain()\n"
    forms = []
    for module in ("elastic_run.worker", "torch.distributed.elastic.multiprocessing.errors"):
        script = tmp_path / "script.py"
        script.write_text(code.format(module))
        file = tmp_path / f"{module}.json"
        run([sys.executable, str(script)], cwd=tmp_path, TORCHELASTIC_ERROR_FILE=str(file))
        forms.append(json.loads(file.read_text())["message"])
    assert forms[0]["message"] == forms[1]["message"]
    assert forms[0].keys() == forms[1].keys()
    assert forms[0]["extraInfo"].keys() == forms[1]["extraInfo"].keys()
    assert isinstance(forms[0]["extraInfo"]["timestamp"], type(forms[1]["extraInfo"]["timestamp"]))


def test_logs_have_the_same_layout_below_the_attempt(tmp_path: Path) -> None:
    words = ["--nproc-per-node", "2", "--redirects", "0:1,1:3", "-m", "pkg.mod", "word"]
    found = []
    for launcher, name in ((TORCHRUN, "A"), (ELASTIC, "B")):
        done = run(launcher, "--log-dir", str(tmp_path / name), *words, cwd=PROGRAMS)
        assert done.code == 0
        files = [p for p in (tmp_path / name).rglob("attempt_0/**/*.log") if p.stat().st_size]
        found.append({"/".join(p.parts[-3:]): p.read_text() for p in files})
    assert found[1] == found[0]
    assert found[1]["attempt_0/1/stdout.log"] == "module rank 1 ['word']\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--standalone", "--nproc-per-node", "2", str(PROGRAMS / "gloo.py"), "env"], ["sum 2 of 2"] * 2),
        (["--nproc_per_node=2", str(PROGRAMS / "gloo.py"), "env"], ["sum 2 of 2"] * 2),
        (["--nproc-per-node", "2", str(PROGRAMS / "early.py")], ["bye 0", "bye 1"]),
        (["--nproc-per-node", "2", "--no-python", "bash", "-c", "echo shell $RANK"], ["shell 0", "shell 1"]),
        (["--run-path", str(PROGRAMS / "early.py")], ["bye 0"]),
        ([str(PROGRAMS / "pool.py")], ["squares [0, 1, 4, 9]"]),
        ([str(PROGRAMS / "loader.py"), "fork"], ["batches [[0, 1], [2, 3], [4, 5], [6, 7]]"]),
        ([str(PROGRAMS / "loader.py"), "spawn"], ["batches [[0, 1], [2, 3], [4, 5], [6, 7]]"]),
        (["--tee", "3", "--role", "r", str(PROGRAMS / "early.py")], ["[r0]:bye 0"]),
        (["--nproc-per-node", "2", "--tee=1", "--local-ranks-filter", "1", str(PROGRAMS / "early.py")],
         ["[default1]:bye 1"]),
    ],
)  # fmt: skip
def test_these_run_alike(tmp_path: Path, words: list[str], expected: list[str]) -> None:
    theirs = run(TORCHRUN, *words, cwd=tmp_path)
    assert (theirs.code, theirs.out) == (0, expected)
    for mode in ("auto", "cold", "template", "standby"):
        ours = run(ELASTIC, "--log-dir", str(tmp_path / mode), "--workers", mode, *words, cwd=tmp_path)
        assert (mode, ours.code, ours.out) == (mode, 0, expected)


def test_a_group_by_tcp(tmp_path: Path) -> None:
    port = free_port()
    ours = run(ELASTIC, "--nproc-per-node", "2", str(PROGRAMS / "gloo.py"), "tcp", port, cwd=tmp_path)
    assert (ours.code, ours.out) == (0, ["sum 2 of 2"] * 2)


def test_one_of_at_most_two_nodes_trains_alone(tmp_path: Path) -> None:
    words = ["--nnodes", "1:2", "--nproc-per-node", "2", "--rdzv-id", "x", "--rdzv-backend", "c10d"]
    for conf in ("last_call_timeout=1", "last_call_timeout=1,join_timeout=60"):
        endpoint = f"localhost:{free_port()}"
        more = ["--rdzv-endpoint", endpoint, "--rdzv-conf", conf, str(PROGRAMS / "gloo.py"), "env"]
        theirs, ours = both(tmp_path, *words, *more)
        assert (ours.code, ours.out) == (theirs.code, theirs.out) == (0, ["sum 2 of 2"] * 2)


def test_threads_come_from_the_cores_and_one_line_says_so(tmp_path: Path) -> None:
    words = ["--nproc-per-node", "2", "--no-python", "sh", "-c", "echo $OMP_NUM_THREADS"]
    ours = run(ELASTIC, *words, cwd=tmp_path)
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert ours.out == [share] * 2
    assert f"elastic-run: OMP_NUM_THREADS={share} for each rank" in ours.err
    chosen = run(ELASTIC, *words, cwd=tmp_path, OMP_NUM_THREADS="7")
    assert chosen.out == ["7"] * 2
    assert "OMP_NUM_THREADS" not in chosen.err


def test_variables_set_options(tmp_path: Path) -> None:
    theirs, ours = both(tmp_path, str(PROGRAMS / "early.py"), PET_NPROC_PER_NODE="3", PET_STANDALONE="1")
    assert ours.out == theirs.out == ["bye 0", "bye 1", "bye 2"]


def test_standard_input_and_a_pipeline_around_it(tmp_path: Path) -> None:
    theirs, ours = both(tmp_path, str(PROGRAMS / "stdin.py"), stdin="a b\n")
    assert ours.out == theirs.out == ["read ['a', 'b']"]
    command = f"echo a b | {' '.join(ELASTIC)} {PROGRAMS / 'stdin.py'} 2>/dev/null | tr a-z A-Z"
    done = run(["bash", "-c", command], cwd=tmp_path)
    assert done.out == ["READ ['A', 'B']"]


def test_a_script_on_standard_input_reaches_every_rank(tmp_path: Path) -> None:
    script = "import os, sys; print('rank', os.environ['RANK'], sys.argv)\n"
    done = run(ELASTIC, "--nproc-per-node", "2", "-", "x", cwd=tmp_path, stdin=script)
    assert done.out == ["rank 0 ['-', 'x']", "rank 1 ['-', 'x']"]


@pytest.mark.parametrize("outer", [TORCHRUN, ELASTIC], ids=["in torchrun", "in elastic-run"])
@pytest.mark.parametrize("inner", [TORCHRUN, ELASTIC], ids=["torchrun", "elastic-run"])
def test_nested_launchers(tmp_path: Path, outer: list[str], inner: list[str]) -> None:
    if outer == inner == TORCHRUN:
        pytest.skip("that is torchrun's own business")
    words = [*inner, "--standalone", "--nproc-per-node", "2", str(PROGRAMS / "early.py")]
    done = run(outer, str(PROGRAMS / "nested.py"), *words, cwd=tmp_path)
    assert (done.code, done.out) == (0, ["inner 0 ['0', '1', 'bye', 'bye']"])


def test_two_static_nodes_start_and_finish(tmp_path: Path) -> None:
    port = free_port()
    words = ["--nnodes", "2", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port]
    env = {**os.environ, "PYTHONPATH": str(TOP)}
    nodes = [
        subprocess.Popen(
            [*ELASTIC, *words, "--node-rank", str(rank), str(PROGRAMS / "gloo.py"), "env"],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True,
        )
        for rank in (1, 0)
    ]  # fmt: skip
    outputs = [node.communicate(timeout=60)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert outputs == ["sum 4 of 4\n" * 2] * 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--tee", "0:9"], "--tee"),
        (["--redirects", "x"], "--redirects"),
        (["--local-ranks-filter", "a"], "--local-ranks-filter"),
        (["--nnodes", "3:2"], "--nnodes"),
        (["--nnodes", "1:2:3"], "--nnodes"),
        (["--standalone", "--nnodes", "2"], "--standalone"),
        (["--duplicate-stdout-filters", "x"], "--tee"),
        (["--rdzv-conf", "timeout"], "--rdzv-conf"),
        (["--rdzv-backend", "nope"], "--rdzv-backend"),
        (["--rdzv-endpoint", "h:99999"], "--rdzv-endpoint"),
        (["--nnodes", "2", "--master-addr", "h", "--node-rank", "2"], "--node-rank"),
        (["--log-max-size", "big"], "--log-max-size"),
    ],
)
def test_bad_input_is_one_line_and_nothing_starts(tmp_path: Path, words: list[str], named: str) -> None:
    done = run(ELASTIC, *words, str(PROGRAMS / "early.py"), cwd=tmp_path)
    assert (done.code, done.out) == (2, [])
    assert done.err.count("\n") == 1
    assert named in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_bad_variable_is_one_line(tmp_path: Path) -> None:
    done = run(ELASTIC, str(PROGRAMS / "early.py"), cwd=tmp_path, PET_STANDALONE="maybe")
    assert done.code == 2
    assert "PET_STANDALONE" in done.err
    assert done.err.count("\n") == 1


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run(ELASTIC, "--master-port", port, str(PROGRAMS / "early.py"), cwd=tmp_path)
    assert (done.code, done.out) == (2, [])
    assert done.err == f"elastic-run: --master-port {port}: Address already in use; choose another\n"
    assert list(tmp_path.iterdir()) == []
