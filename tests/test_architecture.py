"""The shape of the code: who imports whom, what stays pure, how large a thing may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
PACKAGE = TOP / "elastic_run"
MODULES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}

SIBLINGS = {"plan", "supervisor", "clusterd", "fleet", "rendezvous", "devices", "observe"}
PURE = {"collections", "dataclasses", "enum", "functools", "signal", "typing", "__future__"}
PURE_FILES = {name for name in MODULES if name.startswith("core/")} | {"clusterd/controller.py"}
ROOT = {"compose.py", "cli.py"}
"""These know the packages: one builds a job, the other a command line."""
HOMES = {
    "click": {"cli.py", "plan/flags.py"},
    "ctypes": {"supervisor/orphans.py", "supervisor/logs.py"},
    "pickle": {"python.py", "worker/call.py"},
}
"""Where a library may be imported at all; of the rest of what is installed nothing is."""
NEVER = {"torch", "grpc", "rich", "google", "asyncio", "multiprocessing"}
FORKS = {"supervisor/guard_main.py"}
BANNED = ("util", "common", "helper", "manager", "handler")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package(name: str) -> str:
    return name.split("/")[0] if "/" in name else ""


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down_and_never_sideways(name: str) -> None:
    for imported in imports(MODULES[name]):
        parts = imported.split(".")
        if parts[0] != "elastic_run" or len(parts) == 1 or name in ROOT:
            continue
        target = parts[1]
        if package(name) == "core":
            assert target in ("core", "errors"), imported
        elif package(name) == "worker":
            assert target == "worker", imported
        elif target in SIBLINGS:
            assert target == package(name), imported


@pytest.mark.parametrize("name", sorted(PURE_FILES))
def test_what_decides_is_pure(name: str) -> None:
    for imported in imports(MODULES[name]):
        assert imported.split(".")[0] in PURE | {"elastic_run"}, imported
    calls = [ast.unparse(n.func) for n in ast.walk(MODULES[name]) if isinstance(n, ast.Call)]
    assert not {"open", "print", "input", "id", "hash"} & set(calls)


@pytest.mark.parametrize("name", MODULES)
def test_libraries_have_one_home_and_the_launcher_no_heavy_one(name: str) -> None:
    for imported in imports(MODULES[name]):
        library = imported.split(".")[0]
        assert library not in NEVER, imported
        assert name in HOMES.get(library, {name}), imported


def test_importing_the_package_imports_nothing_of_ours() -> None:
    body = MODULES["__init__.py"].body
    assert not [
        i for node in body if isinstance(node, (ast.Import, ast.ImportFrom)) for i in imports(node) if "elastic" in i
    ]


@pytest.mark.parametrize("name", MODULES)
def test_only_the_guard_forks_and_nobody_evaluates(name: str) -> None:
    calls = {ast.unparse(node.func) for node in ast.walk(MODULES[name]) if isinstance(node, ast.Call)}
    assert not {"eval", "exec", "os.system"} & calls
    assert "os.fork" not in calls or name in FORKS


@pytest.mark.parametrize("name", MODULES)
def test_things_are_small_and_say_what_they_are(name: str) -> None:
    tree = MODULES[name]
    assert len((PACKAGE / name).read_text().splitlines()) <= 500
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            assert not any(word in node.name.lower() for word in BANNED), node.name
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name
    assert not any(word in name.lower() for word in BANNED)
    if tree.body:
        assert (ast.get_docstring(tree) or "").strip(), "the first line says the one job"
