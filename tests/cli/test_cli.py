"""The command line before anything is started: version, help, usage errors, what is imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import elastic_run

TOP = Path(__file__).parent.parent.parent


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "elastic_run", *args],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(TOP), **env},
        check=False,
    )


def test_all_versions_agree() -> None:
    line = f"elastic-run {elastic_run.__version__}\n"
    assert run("version").stdout == run("--version").stdout == line
    command = [str(Path(sys.executable).with_name("elastic-run")), "version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == line


@pytest.mark.parametrize("args", [["version"], ["--help"], ["--nproc-per-node", "0", "x"], ["no-such-script.py"]])
def test_nothing_heavy_is_imported_for(args: list[str]) -> None:
    code = "import sys; from elastic_run.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, cwd=TOP, timeout=60
    )
    modules = set(done.stderr.split())
    assert "click" in modules
    assert not modules & {"torch", "grpc", "rich", "elastic_run.compose.job", "elastic_run.core.agent"}


def test_help_names_every_option_with_its_variable_and_every_exit_code() -> None:
    text = run("--help").stdout
    for option in ("nproc-per-node", "max-restarts", "restart-window", "log-dir", "shutdown-timeout"):
        assert f"--{option}" in text
        assert f"--{option.replace('-', '_')}" in text
    assert "PET_MAX_RESTARTS" in text
    assert "ELASTIC_RUN_RESTART_WINDOW" in text
    for code in elastic_run_codes():
        assert re.search(rf"^ +{code} +\S", text, re.MULTILINE), code


def elastic_run_codes() -> list[int]:
    from elastic_run.errors import ExitCode

    return [int(code) for code in ExitCode]


def test_the_readme_names_only_options_that_exist() -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", run("--help").stdout))
    shown = set(re.findall(r"`(--[a-z][a-z-]+)", (TOP / "README.md").read_text()))
    assert shown - known == set()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--nproc-per-node", "0", "x.py"], "--nproc-per-node"),
        (["--nproc_per_node", "two", "x.py"], "--nproc-per-node"),
        (["--max-restarts", "-1", "x.py"], "--max-restarts"),
        (["--shutdown-timeout", "-1", "x.py"], "--shutdown-timeout"),
        (["--signals-to-handle", "SIGFOO", "x.py"], "'SIGFOO' is no signal"),
        (["--signals-to-handle", "KILL", "x.py"], "SIGKILL cannot be handled"),
        (["--on-stop", "maybe", "x.py"], "--on-stop"),
        (["--restart-window", "5", __file__], "--restart-window needs --max-restarts"),
        (["--no-such-option", "x.py"], "--no-such-option"),
        (["-m", "--no-python", "x"], "--module and --no-python exclude each other"),
        (["version", "x"], "./version"),
        (["--signals-to-handle", ",", "x.py"], "',' names no signal"),
        (["-r", "0:1,0:2", __file__], "names local rank 0 twice"),
        (["-t", "1:1,0:1,1:1", __file__], "names local rank 1 twice"),
        (["--local-ranks-filter", ",", __file__], "--local-ranks-filter"),
        (["--ranks-filter", "1,", __file__], "--ranks-filter"),
        (["--rdzv-conf", "timeout=x", __file__], "timeout is a whole number"),
        (["--rdzv-conf", "join_timeout=1.5", __file__], "join_timeout is a whole number"),
        (["--rdzv-conf", "timeout=5,", __file__], "--rdzv-conf ''"),
        (["--rdzv-conf", "timeout=", __file__], "--rdzv-conf 'timeout='"),
        (["--rdzv-conf", "=5", __file__], "--rdzv-conf '=5'"),
        (["--rdzv-endpoint", ":::", __file__], "--rdzv-endpoint :::"),
        (["--rdzv-endpoint", "h:", __file__], "--rdzv-endpoint h:"),
        (["--rdzv-endpoint", ":29500", __file__], "write HOST or HOST:PORT"),
        (["--rdzv-endpoint", "[::1", __file__], "--rdzv-endpoint [::1"),
        (["--rdzv-endpoint", "a b:1", __file__], "--rdzv-endpoint a b:1"),
        (["--rdzv-backend", "c10d", "--rdzv-endpoint", "h:port", __file__], "the port must be a number"),
        ([], "SCRIPT"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(args: list[str], words: str, tmp_path: Path) -> None:
    done = run(*args, TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_value_from_a_variable_names_the_variable() -> None:
    done = run("x.py", PET_NPROC_PER_NODE="many")
    assert done.returncode == 2
    assert "PET_NPROC_PER_NODE" in done.stderr


def origin(*args: str, **env: str) -> str:
    """What --dry-run says of --shutdown-timeout."""
    lines = run("--dry-run", *args, __file__, **env).stdout.splitlines()
    return next(line.split(maxsplit=1)[1] for line in lines if line.startswith("--shutdown-timeout "))


def test_torchs_own_variable_counts_where_nothing_else_is_said() -> None:
    torchs = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}
    assert origin() == "30.0  (default)"
    assert origin(**torchs) == "7.0  (variable TORCH_ELASTIC_SHUTDOWN_TIMEOUT)"
    assert origin(**torchs, PET_SHUTDOWN_TIMEOUT="8") == "8.0  (variable PET_SHUTDOWN_TIMEOUT)"
    assert origin("--shutdown-timeout", "9", **torchs) == "9.0  (command line)"
    done = run(__file__, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="soon")
    assert done.returncode == 2
    assert "(from the variable TORCH_ELASTIC_SHUTDOWN_TIMEOUT)" in done.stderr
    assert "variable" not in run("--shutdown-timeout", "soon", __file__, **torchs).stderr


def test_the_page_of_the_protocol_is_drawn_from_the_tables() -> None:
    subprocess.run([sys.executable, "docs/draw_protocol.py", "--check"], cwd=TOP, check=True)
