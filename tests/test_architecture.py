"""The shape of the house, read from the source: who imports whom, what is pure, how large and how named things are.

A new file at the top of the package, or a new home for a third-party module, needs a row in a table here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parent.parent / "elastic_run"
GENERATED = TOP / "clusterd" / "pb"

AT_THE_TOP: dict[str, tuple[str, ...]] = {
    "": ("python",),
    "__main__": ("cli",),
    "api": ("compose", "errors"),
    "cli": ("", "clusterd.commandline", "compose", "errors", "observe", "plan", "rendezvous.environment"),
    "errors": (),
    "python": ("errors",),
}
"""What each file at the top may import of ours. Not here: compose/, the only package that knows every other."""
EXCEPTIONS = {
    "recover_manager": ("clusterd",),
    "recover_manager.pb": ("clusterd",),
    "supervisor.channel": ("worker.messages",),
}
"""Beyond itself, the core, the errors and the version, which every package but core and worker may import."""
HOMES = {
    "click": ("cli", "clusterd.commandline", "plan.flags"),
    "ctypes": ("devices.ascend_dcmi", "supervisor.logs", "supervisor.main_program", "supervisor.orphans"),
    "google": ("clusterd", "fleet"),
    "grpc": ("clusterd", "fleet", "recover_manager"),
    "rich": ("observe.console",),
    "tomli": ("clusterd.commandline",),
    "torch": ("api", "supervisor.store_host", "supervisor.torch_host"),
}
"""Where a module that costs time or memory may be imported; what is neither here nor in the stdlib, nowhere."""
FORKS = ("supervisor.forked",)
PURE_STDLIB = {
    "__future__",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "types",
    "typing",
}
IMPURE = {"open", "print", "input", "eval", "exec", "compile", "__import__", "breakpoint"}
VAGUE = {"util", "utils", "common", "helper", "helpers", "manager", "managers", "handler", "handlers"}
GIVEN_NAMES = {"recover_manager", "DLRecoverManager"}
"""Names that users of the old Elastic Agent know."""


class Module(NamedTuple):
    name: str
    """Without `elastic_run.`; empty for the package itself."""
    text: str

    @property
    def package(self) -> str:
        first = self.name.partition(".")[0]
        return first if (TOP / first).is_dir() else ""

    @property
    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(ast.parse(self.text))


def read(path: Path) -> Module:
    parts = path.relative_to(TOP).with_suffix("").parts
    return Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.read_text())


MODULES = [read(path) for path in sorted(TOP.rglob("*.py")) if GENERATED not in path.parents]
NAMES = {module.name for module in MODULES}
PURE = tuple(module.name for module in MODULES if module.text.startswith('"""PURE'))


def imports(module: Module) -> Iterator[str]:
    """Full names, also of what is imported inside functions; `from signal import SIGTERM` needs only a name."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            for alias in node.names:
                full = f"{source}.{alias.name}"
                named = full.removeprefix("elastic_run.") in NAMES or source == "signal"
                yield full if named else source


def ours(module: Module) -> Iterator[str]:
    names = (name.partition(".") for name in imports(module))
    return (rest for first, _, rest in names if first == "elastic_run")


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or (place and name.startswith(place + ".")) for place in places)


def direction(module: Module) -> Iterator[str]:
    """core and worker know nobody, siblings never each other, the top what its table says."""
    alone = {"core": ("core", "errors"), "worker": ("worker",)}
    sibling = ("", module.package, "core", "errors", *EXCEPTIONS.get(module.name, ()))
    allowed = alone.get(module.package, sibling) if module.package else AT_THE_TOP.get(module.name, ())
    if module.package != "compose":
        yield from (f"imports {name or 'the package'}" for name in {*ours(module)} if not within(name, allowed))


def purity(module: Module) -> Iterator[str]:
    """core, and what calls itself PURE: no clock, no file, no process, no log, no chance."""
    if module.package == "core" or module.name == "clusterd.controller" or module.text.startswith('"""PURE'):
        yield from (f"imports {name}" for name in ours(module) if not within(name, ("core", "errors", *PURE)))
        for name in imports(module):
            if not re.match(r"elastic_run\b|signal\.(Signals|SIG[A-Z]+)$", name) and name not in PURE_STDLIB:
                yield f"imports {name}"
        yield from (f"uses {n.id}" for n in module.nodes if isinstance(n, ast.Name) and n.id in IMPURE)


def homes(module: Module) -> Iterator[str]:
    """Third-party modules, and ctypes, are imported at home only; relative imports nowhere."""
    for first in {name.partition(".")[0] for name in imports(module)} - {"elastic_run"}:
        anywhere = first in sys.stdlib_module_names and first not in HOMES
        if not anywhere and not within(module.name, HOMES.get(first, ())):
            yield f"imports {first or 'relatively'}"


def quick(module: Module) -> Iterator[str]:
    """Importing the package imports nothing."""
    if module.name == "":
        top = ast.parse(module.text).body
        yield from (f"line {n.lineno} imports" for n in top if isinstance(n, ast.Import | ast.ImportFrom))


def size(module: Module) -> Iterator[str]:
    if (lines := len(module.text.splitlines())) > 500:
        yield f"has {lines} lines"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > 60:
                yield f"{node.name} has {lines} lines"


def naming(module: Module) -> Iterator[str]:
    """A name says what a thing is for; a module says it in its first line. An empty `__init__.py` need not."""
    classes = [node.name for node in module.nodes if isinstance(node, ast.ClassDef)]
    for name in {*module.name.split("."), *classes} - GIVEN_NAMES:
        if VAGUE & {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}:
            yield f"vague name {name}"
    if module.text and not re.match(r'"""\S', module.text):
        yield "does not say its job in the first line"


def forking(module: Module) -> Iterator[str]:
    """Threads are alive in the launcher: only single-threaded children fork."""
    for node in module.nodes:
        named = {getattr(node, "attr", ""), getattr(node, "arg", ""), getattr(node, "name", "")}
        if named & {"fork", "forkpty", "preexec_fn", "multiprocessing"} and module.name not in FORKS:
            yield f"line {getattr(node, 'lineno', 0)} forks"


@pytest.mark.parametrize("rule", [direction, purity, homes, quick, size, naming, forking], ids=lambda r: r.__name__)
def test_the_code_keeps_the(rule: Callable[[Module], Iterator[str]]) -> None:
    assert {"", "core.job", "clusterd.controller", "compose.job", "supervisor.guard_main"} <= NAMES
    assert [f"{module.name or '__init__'} {what}" for module in MODULES for what in rule(module)] == []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (direction, "plan.plan", "from elastic_run.supervisor.loop import Loop"),
        (direction, "plan.plan", "from elastic_run import compose"),
        (direction, "core.job", "from elastic_run import __version__"),
        (direction, "worker.record", "from elastic_run.errors import ConfigError"),
        (direction, "cli", "def f():\n    from elastic_run.supervisor import loop"),
        (direction, "brand_new", "import elastic_run.errors"),
        (purity, "core.job", "import time"),
        (purity, "core.job", "from signal import SIGTERM, raise_signal"),
        (purity, "core.job", "f = open('x')"),
        (purity, "clusterd.controller", "from elastic_run.clusterd.loopback import Loopback"),
        (purity, "rendezvous.environment", '"""PURE: x."""\nimport signal'),
        (homes, "compose", "def f():\n    import torch.distributed"),
        (homes, "supervisor.loop", "import yaml"),
        (homes, "supervisor.loop", "from . import shell"),
        (quick, "", "import os"),
        (size, "x", "x = 1\n" * 501),
        (size, "x", "async def f():\n" + "    x = 1\n" * 60),
        (naming, "plan.path_utils", ""),
        (naming, "plan.plan", '"""X."""\nclass HTTPHandler: ...'),
        (naming, "plan.plan", "x = 1"),
        (forking, "supervisor.loop", "os.fork()"),
        (forking, "compose", "subprocess.Popen([], preexec_fn=f)"),
    ],
)
def test_a_breach_is_seen(rule: Callable[[Module], Iterator[str]], name: str, text: str) -> None:
    assert list(rule(Module(name, text)))
