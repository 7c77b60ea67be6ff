"""How workers start, read from the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_run.plan.warm import Start, start_mode


def mode(tmp_path: Path, text: str, wanted: str = "auto", **given: object) -> Start:
    (tmp_path / "train.py").write_text(text)
    usual = {"python": True, "workers": 2, "restarts": True, "cwd": str(tmp_path), "npu": False}
    return start_mode(wanted, ("python", "-u", "train.py"), **{**usual, **given})  # type: ignore[arg-type]


def test_a_program_with_torch_is_forked_and_one_without_needs_nothing_warm(tmp_path: Path) -> None:
    assert mode(tmp_path, "import torch\n") == Start("template", "", str(tmp_path))
    assert mode(tmp_path, "import json, os\n") == Start("cold")
    assert mode(tmp_path, "import somewhere_installed\n").mode == "template"


def test_with_an_npu_nothing_forks(tmp_path: Path) -> None:
    assert mode(tmp_path, "import torch\n", npu=True).mode == "standby"


def test_one_rank_that_is_never_restarted_starts_cold(tmp_path: Path) -> None:
    assert mode(tmp_path, "import torch\n", workers=1, restarts=False) == Start("cold")
    later = mode(tmp_path, "import torch\n", workers=1, restarts=True)
    assert (later.mode, later.at_once) == ("template", False)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("import os\nos.environ['OMP_NUM_THREADS'] = '4'\n", "line 2 sets OMP_NUM_THREADS"),
        ("import os\nos.environ.setdefault('MKL_NUM_THREADS', '4')\n", "line 2 sets MKL_NUM_THREADS"),
        ("from os import environ\nenviron[name()] = '4'\n", "line 2 sets a variable"),
        ("import os\nos.environ.update(x)\n", "line 2 changes the environment"),
        ("import os\nos.putenv('A', 'b')\n", "line 2 sets A"),
        ("import os\ndel os.environ['TORCH_LOGS']\n", "line 2 sets TORCH_LOGS"),
        ("import sys\nsys.path.insert(0, 'x')\n", "line 2 changes sys.path"),
        ("import sys\nsys.path[:0] = ['x']\n", "line 2 changes sys.path"),
        ("import sys\nsys.path = ['x']\n", "line 2 changes sys.path"),
        ("import sys\nsys.path += ['x']\n", "line 2 changes sys.path"),
        ("import warnings\nwarnings.filterwarnings('ignore')\n", "line 2 filters warnings"),
        ("from os import environ as e\ne['A'] = 'b'\n", "line 2 sets A"),
        ("from dotenv import load_dotenv\nload_dotenv()\n", "line 2 changes the environment"),
        ("import sys\nsys.setdlopenflags(2)\n", "line 2 changes how libraries are loaded"),
        ("def f():\n    import os\n    os.environ['A'] = 'b'\nf()\n", "line 3 sets A"),
    ],
)
def test_what_torchs_import_would_see_makes_it_cold_and_the_line_is_named(
    tmp_path: Path, before: str, why: str
) -> None:
    found = mode(tmp_path, before + "import torch\n")
    assert found == Start("cold", f"workers start cold: train.py {why} before it imports torch")
    assert mode(tmp_path, "import torch\n" + before).mode == "template"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "HF_HOME", "WANDB_MODE", "MASTER_PORT"])
def test_variables_that_torchs_import_does_not_read_are_no_obstacle(tmp_path: Path, name: str) -> None:
    assert mode(tmp_path, f"import os\nos.environ['{name}'] = 'x'\nimport torch\n").mode == "template"


def test_the_programs_own_modules_are_read_where_they_are_imported(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("import os\nos.environ['KMP_AFFINITY'] = 'x'\n")
    text = "import settings\nimport torch\n"
    assert mode(tmp_path, text).because == (
        "workers start cold: settings.py line 2 sets KMP_AFFINITY before it imports torch"
    )
    assert mode(tmp_path, "import torch\nimport settings\n").mode == "template"
    (tmp_path / "model").mkdir()
    (tmp_path / "model/__init__.py").write_text("import torch\n")
    assert mode(tmp_path, "import model\nimport settings\n").mode == "template"


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("import a\nimport torch\n")
    assert mode(tmp_path, "import a\n").mode == "template"


def test_what_is_no_readable_python_is_cold(tmp_path: Path) -> None:
    assert mode(tmp_path, "import torch\n", python=False) == Start("cold")
    assert mode(tmp_path, "import torch\ndef\n") == Start("cold")
    assert start_mode("auto", ("p", "-u", "-"), python=True, workers=2, restarts=True, cwd="/") == Start("cold")
    assert start_mode("auto", ("p", "-u", "/"), python=True, workers=2, restarts=True, cwd="/") == Start("cold")


def test_what_is_asked_for_is_done_or_said_why_not(tmp_path: Path) -> None:
    assert mode(tmp_path, "import torch\n", "cold") == Start("cold")
    for wanted in ("template", "standby"):
        found = mode(tmp_path, "import os\nos.environ['A'] = 'b'\nimport torch\n", wanted)
        assert found == Start("cold", "workers start cold: train.py line 2 sets A before it imports torch")
        assert mode(tmp_path, "import torch\n", wanted).mode == wanted
        assert mode(tmp_path, "import json\n", wanted).mode == wanted
        assert mode(tmp_path, "import torch\n", wanted, workers=1).at_once
    assert mode(tmp_path, "", "template", python=False).because == (
        "--workers template: the program is no Python script or module"
    )


def test_a_module_is_found_as_the_interpreter_finds_it(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text("")
    (tmp_path / "pkg/train.py").write_text("import torch\n")
    (tmp_path / "pkg/__main__.py").write_text("import torch\n")
    for name in ("pkg", "pkg.train"):
        found = start_mode(
            "auto", ("p", "-u", "-m", name), python=True, workers=2, restarts=True, cwd=str(tmp_path), npu=False
        )
        assert found == Start("template", "", str(tmp_path))
    gone = start_mode("auto", ("p", "-u", "-m", "no.such"), python=True, workers=2, restarts=True, cwd=str(tmp_path))
    assert gone == Start("cold")


def test_what_a_program_uses_is_told(tmp_path: Path) -> None:
    assert not mode(tmp_path, "import torch\n").optimises
    assert mode(tmp_path, "import torch\nx = torch.optim.SGD\n").optimises
    assert mode(tmp_path, "import torch\n").hosted_store
    (tmp_path / "group.py").write_text("where = 'tcp://127.0.0.1:1'\n")
    assert not mode(tmp_path, "import torch\nimport group\n").hosted_store


@pytest.mark.parametrize(
    ("program", "files"),
    [
        ("import pkg.part", {"pkg/__init__.py": "SETS", "pkg/part.py": ""}),
        ("from pkg import part", {"pkg/__init__.py": "", "pkg/part.py": "SETS"}),
        ("from pkg.part import name", {"pkg/part.py": "SETS"}),
        ("import pkg", {"pkg/__init__.py": "from . import part", "pkg/part.py": "SETS"}),
        ("import pkg", {"pkg/__init__.py": "from .part import name", "pkg/part.py": "SETS"}),
        (
            "import pkg.sub.deep",
            {"pkg/sub/deep.py": "from ... import pkg2, part\nfrom .. import part", "pkg/part.py": "SETS"},
        ),
        ("import pkg.sub.deep", {"pkg/sub/deep.py": "from ..part import *", "pkg/part.py": "SETS"}),
    ],
)
def test_packages_are_read_as_they_are_imported(tmp_path: Path, program: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("SETS", "import os\nos.environ['OMP_NUM_THREADS'] = '2'"))
        for package in (tmp_path / name).relative_to(tmp_path).parents:
            if package != Path("."):
                (tmp_path / package / "__init__.py").touch()
    assert mode(tmp_path, f"{program}\nimport torch\n").because.endswith(
        "line 2 sets OMP_NUM_THREADS before it imports torch"
    )


def test_the_packages_of_a_module_are_read_first(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '2'\n")
    (tmp_path / "pkg/train.py").write_text("from . import other\nimport torch\n")
    found = start_mode(
        "auto", ("p", "-u", "-m", "pkg.train"), python=True, workers=2, restarts=True, cwd=str(tmp_path), npu=False
    )
    assert found.because == "workers start cold: __init__.py line 2 sets OMP_NUM_THREADS before it imports torch"
