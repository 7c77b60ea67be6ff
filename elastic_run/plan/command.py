"""What each worker exec's, and whether it can: script, module or program, found out before anything is started."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path

from elastic_run.errors import ConfigError

STDIN = "-"
"""As the script: it comes on standard input."""
RUN_PATH = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def command(
    target: str, args: Sequence[str], *, module: bool, no_python: bool, run_path: bool = False, interpreter: str
) -> tuple[str, ...]:
    """argv of a worker; `run_path` beats `no_python`, as with torchrun.

    Raises:
        ConfigError: there is no such script, module or program; names what was looked for.
    """
    if not no_python and shutil.which(interpreter) is None:
        raise ConfigError(f"the variable PYTHON_EXEC={interpreter}: there is no such program; name an interpreter")
    if module and no_python:
        raise ConfigError("--module and --no-python exclude each other: a module needs Python; drop one of them")
    if no_python and not run_path:
        found = shutil.which(target)
        if found is None and os.path.isfile(target) and os.sep in target:
            raise ConfigError(f"--no-python: {target!r} is not executable; chmod +x it")
        if found is None:
            raise ConfigError(f"--no-python: {target!r} is no program on PATH; give its path, as in ./{target}")
        return (found, *args)
    if module and not run_path:
        if interpreter == sys.executable:  # another interpreter knows other modules
            _check_module(target)
        return (interpreter, "-u", "-m", target, *args)
    if target != STDIN:
        _check_script(target)
    if run_path:
        return (interpreter, "-u", "-c", RUN_PATH, target, *args)
    return (interpreter, "-u", target, *args)


def _check_script(script: str) -> None:
    path = Path(script)
    if not script:
        raise ConfigError("the script's name is empty; a variable may not be set")
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise ConfigError(f"script {script!r} is a directory without __main__.py; name the file to run")
    elif not path.exists():
        raise ConfigError(f"script {script!r} does not exist (looked in {Path.cwd()}); check the path")
    elif not os.access(path, os.R_OK):
        raise ConfigError(f"script {script!r} cannot be read; check its permissions")


def _check_module(name: str) -> None:
    """Walk down the packages without importing one: importing could load torch into the launcher.

    Other finders than that of sys.path, such as those of editable installs, are asked for the first name only.
    """
    first = name.partition(".")[0]
    if name in sys.modules or (first and _found_elsewhere(first)):
        return
    where: Sequence[str] = [str(Path.cwd()), *sys.path[1:]]
    parts = name.split(".")
    spec: ModuleSpec | None = None
    for depth, part in enumerate(parts):
        spec = PathFinder.find_spec(part, where) if part else None
        if spec is None and depth == 0 and part in (*sys.builtin_module_names, *sys.stdlib_module_names):
            return
        if spec is None:
            raise ConfigError(
                f"--module: there is no module {'.'.join(parts[: depth + 1])!r}; check name and PYTHONPATH"
            )
        where = list(spec.submodule_search_locations or ())
    if where and PathFinder.find_spec("__main__", where) is None:
        raise ConfigError(f"--module: {name!r} is a package without __main__.py; name the module to run")


def _found_elsewhere(name: str) -> bool:
    usual = (BuiltinImporter, FrozenImporter, PathFinder)
    others = [finder for finder in sys.meta_path if finder not in usual and hasattr(finder, "find_spec")]
    return any(finder.find_spec(name, None) is not None for finder in others)
