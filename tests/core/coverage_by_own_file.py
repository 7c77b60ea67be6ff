"""Fails unless every core module is covered to the last branch by its own test file alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
TOP = HERE.parent.parent
CORE = TOP / "elastic_run" / "core"


def covered(module: str) -> tuple[str, int, str]:
    """Module, exit code, and what is missing."""
    with tempfile.TemporaryDirectory() as name:
        data = f"--data-file={name}/data"
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / f"test_{module}.py")]
        run = [sys.executable, "-m", "coverage"]
        tested = subprocess.run([*run, "run", "--branch", data, *tests], cwd=TOP, capture_output=True, text=True)
        if tested.returncode != 0:
            return module, tested.returncode, tested.stdout[-2000:]
        report = ["report", data, "-m", "--fail-under=100", f"--include={CORE / module}.py"]
        told = subprocess.run([*run, *report], cwd=TOP, capture_output=True, text=True)
        return module, told.returncode, told.stdout


def main() -> int:
    modules = sorted(path.stem for path in CORE.glob("*.py") if path.stem != "__init__")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(covered, modules))
    for module, code, text in answers:
        if code != 0:
            print(f"core/{module}.py is not covered by tests/core/test_{module}.py alone:\n{text}")
    print(f"{sum(code == 0 for _, code, _ in answers)} of {len(modules)} core modules fully covered by their own tests")
    return int(any(code for _, code, _ in answers))


if __name__ == "__main__":
    sys.exit(main())
