"""Both launchers, to run the same words."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
TOP = Path(__file__).parent.parent.parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ELASTIC = [sys.executable, "-m", "elastic_run"]


@dataclass
class Done:
    code: int
    out: list[str]
    err: str


def run(launcher: list[str], *words: str, cwd: Path, stdin: str = "", **env: str) -> Done:
    here = {**os.environ, "PYTHONPATH": str(TOP), "TMPDIR": str(cwd), **env}
    done = subprocess.run(
        [*launcher, *words], capture_output=True, text=True, cwd=cwd, input=stdin, env=here, timeout=120, check=False
    )
    return Done(done.returncode, sorted(done.stdout.splitlines()), done.stderr)


def both(tmp_path: Path, *words: str, stdin: str = "", **env: str) -> tuple[Done, Done]:
    torchrun = run(TORCHRUN, *words, cwd=tmp_path, stdin=stdin, **env)
    ours = run(ELASTIC, "--log-dir", str(tmp_path / "ours"), *words, cwd=tmp_path, stdin=stdin, **env)
    return torchrun, ours
