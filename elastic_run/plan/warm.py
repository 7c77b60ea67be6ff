"""How workers start: forked from a template, from an interpreter on standby, or cold; read from the program itself.

A warm process has imported torch already. What a program does before its own `import torch` would come too late there:
setting variables that libraries read when they are loaded, changing sys.path, filtering warnings of imports.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

TORCH = ("torch", "torchvision", "torchaudio", "torch_npu")
HARMLESS = (
    "HF_", "LOCAL_RANK", "MASTER_", "RANK", "TOKENIZERS_", "TRANSFORMERS_", "WANDB_", "WORLD_SIZE",
)  # fmt: skip
"""Beginnings of variables that nothing reads when torch is loaded."""
OPTIMISES = re.compile(
    rb"DistributedDataParallel|FullyShardedDataParallel|fully_shard|\boptim\b|torch\.compile"
    rb"|\b(?:accelerate|deepspeed|lightning|pytorch_lightning|transformers)\b"
)
IMPORT = re.compile(rb"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)
MOST_FILES = 200
"""Of the program's own modules that are read."""


@dataclass(frozen=True, slots=True)
class Start:
    """`because` is worth a line where a user may wonder why his workers start slowly; else it is empty."""

    mode: str
    because: str = ""
    place: str = ""
    """Directory of the program, first on its path."""
    hosted_store: bool = True
    """False: the program opens a store of its own (`tcp://`), which torch does not do where a launcher hosts one."""
    optimises: bool = False
    """It uses what imports torch._dynamo: an optimizer, DistributedDataParallel, torch.compile."""


def start_mode(
    wanted: str, argv: Sequence[str], *, python: bool, workers: int, restarts: bool, cwd: str, npu: bool | None = None
) -> Start:
    """`wanted`: auto, template, standby or cold. `argv`: interpreter, -u and the program, if it is `python`."""
    if wanted == "cold" or not python or argv[2] in ("-", "-c"):
        why = "" if wanted in ("cold", "auto") else f"--workers {wanted}: the program is no Python script or module"
        return Start("cold", why)
    source = _source(argv[2:], cwd)
    if source is None:
        return Start("cold", "" if wanted == "auto" else f"--workers {wanted}: the program's source cannot be read")
    file, place = source
    if wanted != "auto":
        return _with_uses(Start(wanted, "", place), file)
    if workers == 1 and not restarts:
        return Start("cold")
    try:
        found = _Reader(place).first(file)
    except (SyntaxError, ValueError, RecursionError, OSError):
        return Start("cold")
    if found is None:
        return Start("cold")  # it imports nothing that a warm process could have ready
    if found.obstacle:
        return Start("cold", f"workers start cold: {found.obstacle}")
    npu = find_spec("torch_npu") is not None if npu is None else npu
    return _with_uses(Start("standby" if npu else "template", "", place), file)


def _with_uses(start: Start, file: Path) -> Start:
    text = b"\n".join(_texts(file, Path(start.place)))
    return replace(start, hosted_store=b"tcp://" not in text, optimises=OPTIMISES.search(text) is not None)


def _texts(file: Path, place: Path) -> Iterator[bytes]:
    """The program and those of its own modules that it imports."""
    waiting, seen = [file], {file}
    while waiting and len(seen) < MOST_FILES:
        text = waiting.pop().read_bytes()
        yield text
        for name in IMPORT.findall(text):
            for own in _own(name.decode(), place):
                if own not in seen:
                    seen.add(own)
                    waiting.append(own)


def _own(name: str, place: Path) -> list[Path]:
    """Files of a module of the program's own."""
    way = place / name.replace(".", "/")
    return [own for own in (way.with_suffix(".py"), way / "__init__.py") if own.is_file()]


def _source(words: Sequence[str], cwd: str) -> tuple[Path, str] | None:
    """The file that the program begins with, and what is first on its path."""
    if words[0] != "-m":
        path = Path(os.path.realpath(os.path.join(cwd, words[0])))
        return (path, str(path.parent)) if path.is_file() and path.suffix != ".pyc" else None
    where: Sequence[str] = [cwd, *sys.path[1:]]
    for part in [*words[1].split("."), "__main__"]:
        spec = PathFinder.find_spec(part, where)
        if spec is None or (spec.origin is None and not spec.submodule_search_locations):
            return None
        if not spec.submodule_search_locations:
            file = Path(str(spec.origin))
            return (file, cwd) if file.suffix == ".py" else None
        where = list(spec.submodule_search_locations)
    return None


@dataclass(frozen=True, slots=True)
class _Found:
    """The first import of torch or of a package that may import it, and what stands in the way before it."""

    obstacle: str = ""


class _Reader:
    """Reads the program and its own modules in the order in which they are imported."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._seen: set[Path] = set()
        self._foreign = False
        """A package that is neither the standard library nor the program's own was imported."""

    def first(self, file: Path) -> _Found | None:
        found = self._read(file)
        return found if found is not None else _Found() if self._foreign else None

    def _read(self, file: Path) -> _Found | None:
        if file in self._seen or len(self._seen) > MOST_FILES:
            return None
        self._seen.add(file)
        tree = ast.parse(file.read_bytes())
        for node in _in_order(tree):
            obstacle = _obstacle(node)
            if obstacle:
                return _Found(f"{file.name} line {getattr(node, 'lineno', 0)} {obstacle} before it imports torch")
            for name in _imported(node):
                if name.partition(".")[0] in TORCH:
                    return _Found()
                found = self._follow(name)
                if found is not None:
                    return found
        return None

    def _follow(self, name: str) -> _Found | None:
        """Look into a module of the program's own."""
        first = name.partition(".")[0]
        if first in sys.stdlib_module_names or first == "elastic_run":
            return None
        for file in _own(name, Path(self._place)):
            return self._read(file)
        self._foreign = self._foreign or not (Path(self._place) / first).is_dir()
        return None


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        yield from _in_order(node)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []


def _obstacle(node: ast.AST) -> str:
    """In words, what a statement changes that torch's import would see."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        for target in targets:
            if isinstance(target, ast.Subscript) and _dotted(target.value) in ("os.environ", "environ"):
                return _variable(target.slice)
            changed = _dotted(target.value if isinstance(target, ast.Subscript) else target)
            if changed in ("sys.path", "os.environ"):
                return f"changes {changed}"
    if isinstance(node, ast.Call):
        name = _dotted(node.func)
        if name in ("os.environ.setdefault", "environ.setdefault", "os.environ.pop", "os.putenv", "os.unsetenv"):
            return _variable(node.args[0]) if node.args else "changes the environment"
        if name in ("os.environ.update", "environ.update"):
            return "changes the environment"
        if name in ("sys.path.insert", "sys.path.remove", "site.addsitedir"):
            return "changes sys.path"
        if name in ("warnings.filterwarnings", "warnings.simplefilter", "filterwarnings", "simplefilter"):
            return "filters warnings"
    return ""


def _variable(key: ast.expr) -> str:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return "" if key.value.startswith(HARMLESS) else f"sets {key.value}"
    return "sets a variable"


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""
