"""Scripts written for accelerate and for Lightning run unchanged, with the same numbers as under torchrun."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.compat.launchers import PROGRAMS, TOP, run

LIBRARIES = ("accelerate==1.15.0", "lightning==2.6.6")


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
