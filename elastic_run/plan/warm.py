"""How workers start: forked from a template, from an interpreter on standby, or cold; read from the program itself.

A warm process has imported torch already. What a program does before its own `import torch` would come too late there:
setting variables that libraries read when they are loaded, changing sys.path, filtering warnings of imports.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
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
CALL = Path(__file__).parent.parent / "worker" / "call.py"
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
    at_once: bool = True
    """The first start is to be warm; else it is cold, and a template gets ready beside it."""


def start_mode(
    wanted: str, argv: Sequence[str], *, python: bool, workers: int, restarts: bool, cwd: str, npu: bool | None = None
) -> Start:
    """`wanted`: auto, template, standby or cold. `argv`: interpreter, -u and the program, if it is `python`."""
    asked = wanted != "auto"
    if wanted == "cold" or not python or argv[2] in ("-", "-c"):
        why = "" if wanted in ("cold", "auto") else f"--workers {wanted}: the program is no Python script or module"
        return Start("cold", why)
    program = _program(argv[2:], cwd)
    if program is None:
        return Start("cold", f"--workers {wanted}: the program's source cannot be read" if asked else "")
    if not asked and workers == 1 and not restarts:
        return Start("cold")
    try:
        found = _Reader(program.place).first(program.files)
    except (SyntaxError, ValueError, RecursionError, OSError):
        return Start("cold")  # it will say itself what is wrong with it
    if found.obstacle:
        ours = program.files[-1][0] == CALL  # of elastic_run.launch: nobody's concern
        return Start("cold", "" if ours else f"workers start cold: {found.obstacle}")
    if not asked and not found.heavy:
        return Start("cold")  # it imports nothing that a warm process could have ready
    npu = find_spec("torch_npu") is not None if npu is None else npu
    mode = wanted if asked else "standby" if npu else "template"
    text = b"\n".join(_texts(program))
    hosted = b"tcp://" not in text
    return Start(mode, "", program.place, hosted, OPTIMISES.search(text) is not None, at_once=asked or workers > 1)


@dataclass(frozen=True, slots=True)
class _Program:
    """`files` are read first, in this order, each with the package that it is in: packages, then the program."""

    files: tuple[tuple[Path, str], ...]
    place: str
    """Its directory, first on its path."""


def _program(words: Sequence[str], cwd: str) -> _Program | None:
    if words[0] != "-m":
        path = Path(os.path.realpath(os.path.join(cwd, words[0])))
        good = path.is_file() and path.suffix != ".pyc"
        return _Program(((path, ""),), str(path.parent)) if good else None
    where: Sequence[str] = [cwd, *sys.path[1:]]
    files: list[tuple[Path, str]] = []
    package = ""
    for part in [*words[1].split("."), "__main__"]:
        spec = PathFinder.find_spec(part, where)
        if spec is None or (spec.origin is None and not spec.submodule_search_locations):
            return None
        file = Path(str(spec.origin))
        if not spec.submodule_search_locations:
            return _Program((*files, (file, package)), cwd) if file.suffix == ".py" else None
        package = f"{package}.{part}" if package else part
        files += [(file, package)] if file.suffix == ".py" else []
        where = list(spec.submodule_search_locations)
    return None


def _texts(program: _Program) -> Iterator[bytes]:
    """The program and those of its own modules that it imports, wherever they do."""
    waiting, seen = list(program.files), {file for file, _ in program.files}
    while waiting and len(seen) < MOST_FILES:
        file, package = waiting.pop()
        text = file.read_bytes()
        yield text
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for own, inside in (own for node in nodes for name in _imported(node, package) for own in _own(name, program)):
            if own not in seen:
                seen.add(own)
                waiting.append((own, inside))


def _own(name: str, program: _Program | str) -> list[tuple[Path, str]]:
    """Files that the import of a module of the program's own runs, outer packages first, each with its package."""
    place = Path(program if isinstance(program, str) else program.place)
    parts, files = name.split("."), []
    for depth in range(1, len(parts) + 1):
        way = place.joinpath(*parts[:depth])
        if (way / "__init__.py").is_file():
            files.append((way / "__init__.py", ".".join(parts[:depth])))
        elif way.with_suffix(".py").is_file():
            files.append((way.with_suffix(".py"), ".".join(parts[: depth - 1])))
    return files


@dataclass(frozen=True, slots=True)
class _Found:
    """Whether the program imports torch or a package that may, and what stands in the way before it does."""

    heavy: bool = True
    obstacle: str = ""


class _Reader:
    """Reads the program and its own modules in the order in which they are imported."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._seen: set[Path] = set()
        self._foreign = False
        """A package that is neither the standard library nor the program's own was imported."""

    def first(self, files: Sequence[tuple[Path, str]]) -> _Found:
        for file, package in files:
            found = self._read(file, package)
            if found is not None:
                return found
        return _Found(heavy=self._foreign)

    def _read(self, file: Path, package: str) -> _Found | None:
        if file in self._seen or len(self._seen) > MOST_FILES:
            return None
        self._seen.add(file)
        tree = ast.parse(file.read_bytes())
        environs = {"os.environ", "environ"}
        for node in _in_order(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "os":
                environs |= {alias.asname for alias in node.names if alias.name == "environ" and alias.asname}
            obstacle = _obstacle(node, environs)
            if obstacle:
                line = getattr(node, "lineno", 0)
                return _Found(obstacle=f"{file.name} line {line} {obstacle} before it imports torch")
            for name in _imported(node, package):
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
        files = _own(name, self._place)
        for file, package in files:
            found = self._read(file, package)
            if found is not None:
                return found
        self._foreign = self._foreign or not (files or (Path(self._place) / first).is_dir())
        return None


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        yield from _in_order(node)


def _imported(node: ast.AST, package: str) -> list[str]:
    """Modules that a statement in a module of `package` imports; what is named after `import` may be one or not."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level and package else []
    if node.level and not above:
        return []
    base = ".".join([*above, *([node.module] if node.module else [])])
    return [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]


def _obstacle(node: ast.AST, environs: Set[str]) -> str:
    """In words, what a statement changes that torch's import would see; `environs` are names of os.environ."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        for target in targets:
            if isinstance(target, ast.Subscript) and _dotted(target.value) in environs:
                return _variable(target.slice)
            changed = _dotted(target.value if isinstance(target, ast.Subscript) else target)
            if changed == "sys.path" or (changed in environs and "." in changed):
                return f"changes {changed}"
    if isinstance(node, ast.Call):
        name = _dotted(node.func)
        owner, _, method = name.rpartition(".")
        if name in ("os.putenv", "os.unsetenv") or (owner in environs and method in ("setdefault", "pop")):
            return _variable(node.args[0]) if node.args else "changes the environment"
        if (owner in environs and method == "update") or method == "load_dotenv":
            return "changes the environment"
        if name == "sys.setdlopenflags":
            return "changes how libraries are loaded"
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
