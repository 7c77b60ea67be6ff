"""Fails unless every core module is covered to the last branch by its own test file alone."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import coverage
import pytest

HERE = Path(__file__).parent
TOP = HERE.parent.parent
CORE = TOP / "elastic_run" / "core"


def covered(module: str) -> tuple[str, str]:
    """Module, and what is missing. In a child of its own: coverage must see the module's first import."""
    seen = coverage.Coverage(data_file=None, branch=True, include=[str(CORE / f"{module}.py")], config_file=False)
    told = io.StringIO()
    with redirect_stdout(told):
        seen.start()
        code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE / f"test_{module}.py")])
        seen.stop()
        percent = seen.report(show_missing=True) if code == 0 else 0.0
    return module, "" if percent == 100.0 else told.getvalue()[-2000:]


def main() -> int:
    sys.path.insert(0, str(TOP))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # 0.8 s for each file, and none is needed here
    modules = sorted(path.stem for path in CORE.glob("*.py") if path.stem != "__init__")
    # Forked from a parent that has imported pytest and nothing of ours: five times as fast as a process for each.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        answers = pool.map(covered, modules, chunksize=1)
    for module, missing in answers:
        if missing:
            print(f"core/{module}.py is not covered by tests/core/test_{module}.py alone:\n{missing}")
    whole = sum(not missing for _, missing in answers)
    print(f"{whole} of {len(modules)} core modules fully covered by their own tests")
    return int(whole < len(modules))


if __name__ == "__main__":
    sys.exit(main())
