"""torchrun's options: the table against the parser of the installed torch, and abbreviations."""

from __future__ import annotations

import argparse

import pytest

from elastic_run.cli import _launch_command
from elastic_run.errors import ConfigError
from elastic_run.plan.torchrun import BY_FIELD, OPTIONS, expanded


def expand(*argv: str) -> list[str]:
    command, words = _launch_command(argv)
    assert command.name == "elastic-run"
    return words


@pytest.fixture(scope="module")
def installed() -> argparse.ArgumentParser:
    run = pytest.importorskip("torch.distributed.run")
    parser: argparse.ArgumentParser = run.get_args_parser()
    return parser


def test_every_option_of_the_installed_torch_is_in_the_table(installed: argparse.ArgumentParser) -> None:
    for action in installed._actions:
        if not action.option_strings:
            continue
        option = BY_FIELD[action.dest]
        assert option.flag == (action.nargs == 0), action.dest
        for spelling in action.option_strings:
            assert spelling.lstrip("-").replace("-", "_") in (option.field, option.short)


def test_every_beginning_that_the_installed_torch_takes_means_the_same_here(
    installed: argparse.ArgumentParser,
) -> None:
    spellings = {s: a.dest for a in installed._actions for s in a.option_strings if s.startswith("--")}
    checked = 0
    for full, dest in spellings.items():
        for end in range(3, len(full)):
            begun = full[:end]
            if begun in spellings or len({d for s, d in spellings.items() if s.startswith(begun)}) > 1:
                continue
            newer = {o.field for o in OPTIONS if o.field.startswith(begun[2:].replace("-", "_"))}
            if newer - set(spellings.values()):  # an option of a newer torch makes it ambiguous there too
                continue
            assert expand(begun)[0] == f"--{BY_FIELD[dest].name}", begun
            checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--nnode", "2", "x"], ["--nnodes", "2", "x"]),
        (["--nnode=2", "x"], ["--nnodes=2", "x"]),
        (["--redirect=3", "x"], ["--redirects=3", "x"]),
        (["--standalon", "x", "--nnode"], ["--standalone", "x", "--nnode"]),
        (["--rdzv-e", "h:1", "--", "x"], ["--rdzv-endpoint", "h:1", "--", "x"]),
        (["-t3", "-r", "0:1,1:2", "x"], ["-t3", "-r", "0:1,1:2", "x"]),
        (["-t", "--nnode", "x"], ["-t", "--nnode", "x"]),
        (["--max-restarts", "3", "x", "--max-r", "4"], ["--max-restarts", "3", "x", "--max-r", "4"]),
        (["--ranks-filter", "0", "-"], ["--ranks-filter", "0", "-"]),
        (["--unknown", "x"], ["--unknown", "x"]),
        (["--he"], ["--help"]),
    ],
)
def test_names_are_spelled_out_up_to_the_script(given: list[str], meant: list[str]) -> None:
    assert expand(*given) == meant


def test_what_is_not_enough_to_tell_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--rdzv may mean --rdzv-backend, --rdzv-endpoint"):
        expand("--rdzv", "x")


def test_our_own_options_must_be_written_out() -> None:
    assert expand("--restart-w", "5")[0] == "--restart-w"


def test_no_option_of_ours_begins_with_one_of_torchruns() -> None:
    command, _ = _launch_command([])
    ours = [p.opts[0][2:] for p in command.params if p.opts[0].startswith("--") and p.name not in BY_FIELD]
    assert ours
    assert [(o, t.name) for o in ours for t in OPTIONS if o.startswith(t.name)] == []


def test_the_table_takes_what_it_needs_to_know_as_data() -> None:
    assert expanded(["--a", "--nnode", "s"], {"--a": True}) == ["--a", "--nnode", "s"]
