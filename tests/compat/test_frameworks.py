"""Scripts for accelerate and Lightning run unchanged, with the numbers they have under torchrun; so does a notebook."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.compat.launchers import PROGRAMS, TOP, run

LIBRARIES = ("accelerate==1.15.0", "lightning==2.6.6", "ipykernel==7.3.0", "nbclient==0.11.0")


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter with these libraries and, behind them, with what this one has; made once for each clone."""
    place = TOP / ".venv-frameworks"
    ready = place / "ready"
    if not ready.exists() or ready.read_text() != repr(LIBRARIES):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        here = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        (place / here / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [str(place / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
        subprocess.run([*pip, *LIBRARIES], check=True, cwd=TOP)
        ready.write_text(repr(LIBRARIES))
    return str(place / "bin/python")


@pytest.mark.parametrize("program", ["accelerated.py", "lightened.py"])
def test_a_frameworks_script_trains_to_the_same_numbers(tmp_path: Path, python: str, program: str) -> None:
    words = ["--nproc-per-node", "2", str(PROGRAMS / program)]
    outcomes = []
    for module in ("torch.distributed.run", "elastic_run"):
        done = run([python, "-m", module], *words, cwd=tmp_path, OMP_NUM_THREADS="1")
        assert done.code == 0, done.err
        outcomes.append([line for line in done.out if line.startswith("process ")])
    assert outcomes[0] == outcomes[1]
    assert [line.split(":")[0] for line in outcomes[1]] == ["process 0 of 2", "process 1 of 2"]


NOTEBOOK = """
import json, sys
import nbformat
from nbclient import NotebookClient

cells = [
    "import elastic_run\\nfrom tests.process import jobs",
    "print(elastic_run.launch(jobs.place, 'n', nproc_per_node=2))",
    "def typed(): pass\\ntry:\\n    elastic_run.launch(typed)\\nexcept Exception as error:\\n    print(error)",
]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(book, timeout=120, kernel_name="python3").execute()
print(json.dumps(["".join(o.get("text", "") for o in c.outputs) for c in book.cells]))
"""


def test_a_notebook_launches_what_can_be_imported_and_says_what_cannot(tmp_path: Path, python: str) -> None:
    kernel = tmp_path / "share/jupyter/kernels/python3"
    kernel.mkdir(parents=True)
    spec = {"argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "x"}
    (kernel / "kernel.json").write_text(json.dumps({**spec, "language": "python"}))
    program = tmp_path / "book.py"
    program.write_text(NOTEBOOK)
    done = run([python, str(program)], cwd=tmp_path, JUPYTER_PATH=str(tmp_path / "share/jupyter"), HOME=str(tmp_path))
    assert done.code == 0, done.err
    _, launched, refused = json.loads(done.out[-1])
    assert "[(0, 'n'), (1, 'n')]" in launched
    assert "elastic-run: all 2 ranks succeeded" in launched
    assert refused.startswith("typed lives in a session without a file; put it into a module")
