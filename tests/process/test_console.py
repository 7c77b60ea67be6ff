"""What the launcher shows of its ranks: in the order in which they wrote it, soon, and nothing added."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.process.conftest import Run

BOTH = """
import sys
for i in range(3000):
    print("out", i)
    print("err", i, file=sys.stderr)
    if i % 7 == 0:
        print("again", i, file=sys.stderr)
"""
WRITTEN = [
    line
    for i in range(3000)
    for line in (f"out {i}", f"err {i}", *([f"again {i}"] if i % 7 == 0 else []))
]  # fmt: skip


def together(run: Run, *words: str, ranks: int, options: tuple[str, ...] = (), **more: Any) -> list[str]:
    """The lines of a job whose stdout and stderr are one file."""
    with open(run.place / "both", "wb") as both:
        streams = {"stdout": both, "stderr": both}
        assert run.start(*run.flags(ranks), *options, *words, **streams, **more).wait() == 0
    lines = (run.place / "both").read_text().splitlines()
    return [line for line in lines if not line.startswith("elastic-run: ")]


@pytest.mark.parametrize("mode", ["cold", "template"])
@pytest.mark.parametrize(("ranks", "prefix"), [(1, "never"), (3, "always")])
def test_both_streams_keep_their_order_in_one_place(run: Run, mode: str, ranks: int, prefix: str) -> None:
    script = run.place / "both.py"
    script.write_text(BOTH)
    shown = together(run, str(script), ranks=ranks, options=("--prefix", prefix, "--workers", mode))
    for rank in range(ranks):
        start = f"[default{rank}]:" if prefix == "always" else ""
        assert [line.removeprefix(start) for line in shown if line.startswith(start)] == WRITTEN
        logs = run.directory / f"attempt_0/{rank}"
        assert (logs / "output.log").read_text().splitlines() == WRITTEN
        assert sorted(path.name for path in logs.iterdir()) == ["output.log"]


def test_streams_that_are_asked_for_have_files_of_their_own(run: Run) -> None:
    words = ("--no-python", "sh", "-c", "echo out; echo err >&2")
    shown = together(run, *words, ranks=2, options=("--tee", "1:2"))
    assert sorted(shown) == ["[default1]:err", "err", "out", "out"]
    names = [sorted(p.name for p in (run.directory / f"attempt_0/{rank}").iterdir()) for rank in (0, 1)]
    assert names == [["output.log"], ["stderr.log", "stdout.log"]]


def test_last_words_end_with_what_was_said_on_stderr(run: Run) -> None:
    with open(run.place / "both", "wb") as both:
        program = "echo before; echo the reason >&2; for i in 1 2 3 4 5 6 7 8 9; do echo after; done; exit 3"
        words = (*run.flags(2), "--no-python", "sh", "-c", program)
        assert run.start(*words, stdout=both, stderr=both).wait() == 3
    assert run.summary["culprit"]["tail"] == "before\nthe reason\n"


def test_a_lone_ranks_unfinished_line_is_shown_as_it_comes(run: Run) -> None:
    read, write = os.pipe()
    program = "printf 'name? '; until [ -e $UP/go ]; do sleep 0.05; done; printf '1%%\\r'; printf '2%%'"
    run.start(*run.flags(1), "--no-python", "sh", "-c", program, stdout=write)
    os.close(write)
    assert os.read(read, 100) == b"name? "
    (run.signs / "go").touch()
    with open(read, "rb") as rest:
        assert rest.read() == b"1%\r2%"
    assert run.wait() == 0


def test_an_unfinished_line_of_one_of_several_ranks_is_shown_and_ended_before_anothers(run: Run) -> None:
    read, write = os.pipe()
    wait = "until [ -e $UP/$1 ]; do sleep 0.05; done"
    program = (
        f"w() {{ {wait}; }}; if [ $RANK = 0 ]; then printf begun; w last; printf ' ended'; else w go; echo other; fi"
    )
    run.start(*run.flags(2), "--no-python", "sh", "-c", program, stdout=write)
    os.close(write)
    assert os.read(read, 100) == b"begun"
    (run.signs / "go").touch()
    shown = b""
    while not shown.endswith(b"other\n"):
        shown += os.read(read, 100)
    (run.signs / "last").touch()
    with open(read, "rb") as rest:
        shown += rest.read()
    assert shown == b"\nother\n ended"
    assert run.wait() == 0
