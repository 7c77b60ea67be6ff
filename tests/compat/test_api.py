"""torchrun itself hands its jobs over, once elastic_run.api was imported; and the old package's names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

TOP = Path(__file__).parents[2]
SCRIPT = """
import os, sys
print(os.environ["RANK"], "ELASTIC_RUN_JOB" in os.environ, sys.argv[1:], __name__)
sys.exit(int(os.environ.get("CODE", 0)))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "start").mkdir()
    (tmp_path / "start/sitecustomize.py").write_text("import elastic_run.api\n")
    return tmp_path


def torchrun(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """torchrun, in whose interpreter our module is imported first."""
    path = f"{place / 'start'}:{TOP}"
    given = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(place), **env}
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    return subprocess.run(command, cwd=place, env=given, capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ("--nproc-per-node", "2", "script.py", "a", "--b"),
            ["0 True ['a', '--b'] __main__", "1 True ['a', '--b'] __main__"],
        ),
        (("--standalone", "-m", "script", "-x"), ["0 True ['-x'] __main__"]),
        (("--run-path", "script.py", "c"), ["0 True ['c'] __main__"]),
        (("--no-python", "echo", "text"), ["text"]),
    ],
)
def test_a_job_of_torchruns_runs_under_our_supervision(place: Path, words: tuple[str, ...], lines: list[str]) -> None:
    done = torchrun(place, *words)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == lines
    assert "elastic-run: " in done.stderr
    assert [path.name for path in place.iterdir() if path.name.startswith("torchelastic_")] == []


def test_with_its_own_flags(place: Path) -> None:
    words = (
        "--nproc-per-node=2",
        "--tee",
        "0:3",
        "--redirects=1:1",
        "--log-dir",
        "logs",
        "--max-restarts=1",
        "--rdzv-id=x",
    )
    done = torchrun(place, *words, "script.py", CODE="5")
    assert done.returncode == 5
    (run,) = (place / "logs").iterdir()
    assert len(run.name) < 30  # not the name that torchrun draws by chance for a job of one node
    assert {path.name for path in (run / "node_0").glob("attempt_*")} == {"attempt_0", "attempt_1"}
    assert "restart 1 of 1" in done.stderr


def test_over_two_nodes(place: Path) -> None:
    common = ("--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", "--master-port=29871")
    command = [sys.executable, "-m", "torch.distributed.run", *common]
    env = {**os.environ, "PYTHONPATH": f"{place / 'start'}:{TOP}"}
    nodes = [
        subprocess.Popen([*command, f"--node-rank={rank}", "script.py"], cwd=place, env=env, stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    said = [node.communicate(timeout=90)[0].decode().strip() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert said == ["0 True [] __main__", "1 True [] __main__"]


def test_jobs_of_functions_stay_torchs(place: Path) -> None:
    text = """
import elastic_run.api
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
def f(x):
    import os
    return x, "ELASTIC_RUN_JOB" in os.environ
if __name__ == "__main__":
    config = LaunchConfig(1, 1, 1, rdzv_backend="c10d", rdzv_endpoint="localhost:0", run_id="r")
    print(elastic_launch(config, f)(3))
"""
    (place / "function.py").write_text(text)
    done = subprocess.run([sys.executable, "function.py"], cwd=place, capture_output=True, text=True, timeout=90,
                          env={**os.environ, "PYTHONPATH": str(TOP)})  # fmt: skip
    assert done.stdout == "{0: (3, False)}\n", done.stderr


def test_undo_restores_torch_exactly() -> None:
    text = """
from torch.distributed.launcher import api
before = dict(vars(api))
import elastic_run.api as ours
assert api.launch_agent is not before["launch_agent"]
undo = ours.patch_torch_methods()
undo()
assert {name for name in before if vars(api)[name] is not before[name]} == set() and vars(api).keys() == before.keys()
undo()
ours.patch_torch_methods()
assert api.launch_agent is not before["launch_agent"]
"""
    subprocess.run([sys.executable, "-c", text], cwd=TOP, check=True, timeout=60)


def test_the_old_packages_names(place: Path) -> None:
    text = """
import mindx_elastic, mindx_elastic.recover_manager as r
import elastic_run, elastic_run.recover_manager as ours
assert mindx_elastic.__version__ == elastic_run.__version__
assert all(getattr(r, name) is getattr(ours, name) for name in ours.__all__)
import mindx_elastic.api
assert mindx_elastic.api.patch_torch_methods
"""
    env = {**os.environ, "PYTHONPATH": f"{TOP / 'compat/mindx_elastic'}:{TOP}"}
    subprocess.run([sys.executable, "-c", text], cwd=place, env=env, check=True, timeout=60)


def test_the_old_package_can_be_installed(tmp_path: Path) -> None:
    source = shutil.copytree(TOP / "compat/mindx_elastic", tmp_path / "source")
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "here"), str(source)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here/mindx_elastic/recover_manager.py").is_file()
