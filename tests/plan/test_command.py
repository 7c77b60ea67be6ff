"""What a worker exec's, and the one line that says why it cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elastic_run.errors import ConfigError
from elastic_run.plan.command import command


def argv(target: str, *args: str, python: str = sys.executable, **flags: bool) -> tuple[str, ...]:
    how = {"module": False, "no_python": False, **flags}
    return command(target, args, interpreter=python, **how)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    for name in (
        "pkg/__init__.py",
        "pkg/sub/__init__.py",
        "pkg/sub/mod.py",
        "runs/__init__.py",
        "runs/__main__.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("raise SystemExit('imported')")


def test_a_script_runs_unbuffered() -> None:
    assert argv("train.py", "--help") == (sys.executable, "-u", "train.py", "--help")


def test_a_module_is_found_without_importing_its_packages() -> None:
    assert argv("pkg.sub.mod", "x", module=True) == (sys.executable, "-u", "-m", "pkg.sub.mod", "x")
    assert argv("runs", module=True)[-1] == "runs"
    assert argv("timeit", module=True)[-1] == "timeit"


def test_a_program_is_found_on_the_path() -> None:
    assert argv("sh", "-c", "true", no_python=True)[0].endswith("/sh")


def test_python_exec_is_another_interpreter_with_other_modules() -> None:
    assert argv("anything", module=True, python="/bin/sh")[:3] == ("/bin/sh", "-u", "-m")
    with pytest.raises(ConfigError, match="PYTHON_EXEC=/no/py: there is no such program"):
        argv("anything", module=True, python="/no/py")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": "nope.py"}, "'nope.py' does not exist"),
        ({"target": "pkg"}, "directory without __main__.py"),
        ({"target": "nope", "module": True}, "no module 'nope'"),
        ({"target": "pkg.nope", "module": True}, "no module 'pkg.nope'"),
        ({"target": "pkg.sub.mod.deeper", "module": True}, "no module 'pkg.sub.mod.deeper'"),
        ({"target": "pkg", "module": True}, "package without __main__.py"),
        ({"target": "", "module": True}, "no module ''"),
        ({"target": "no-such-program", "no_python": True}, "no program on PATH"),
        ({"target": "x", "module": True, "no_python": True}, "exclude each other"),
    ],
)
def test_what_cannot_run_is_said_in_one_line(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        argv(**given)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_module_that_another_finder_knows_is_left_to_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object, target: object = None) -> object:
            return object() if name == "installed_in_place" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    for name in ("installed_in_place", "installed_in_place.part", "os.path"):
        given = {"module": True, "no_python": False, "interpreter": sys.executable}
        assert command(name, (), **given)[2:] == ("-m", name)
