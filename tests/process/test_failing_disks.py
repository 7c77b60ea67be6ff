"""Disks and consoles that fail: the job goes on, its code is true, and what is lost is counted and said."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import BOUND, Run, until
from tests.process.test_records import LINES, numbered

as_root = pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
BYTES = sum(len(f"0#{n}#{'x' * 40}\n") for n in range(LINES))
"""Of one rank's output."""


@contextmanager
def mounted(at: Path, *command: str) -> Iterator[None]:
    at.mkdir()
    done = subprocess.run(["mount", *command, str(at)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def summary(run: Run) -> tuple[str, str]:
    return ("--summary-file", str(run.place / "summary.json"))


def lost(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.place / "summary.json").read_text())["lost"]
    return found


@as_root
@pytest.mark.parametrize("code", [0, 7])
def test_a_full_disk(run: Run, code: int) -> None:
    with mounted(run.logs, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        words = (f"lines:{LINES}", "exit:3@1#0", "idle#0", "out:done", f"exit:{code}")
        assert run.act(*words, ranks=4, options=("--max-restarts", "1", *summary(run))).wait() == code
        assert run.out.splitlines().count("done") == 4 or code
        assert len([line for line in run.said if "No space left on device" in line]) == 1
        assert [line for line in run.said if "of output were lost (files)" in line]
        assert lost(run)["console bytes"] == 0
        kept = sum(path.stat().st_size for path in run.logs.glob("*/node_0/attempt_*/*/stdout.log"))
        assert lost(run)["files bytes"] >= len(run.out) - kept > 0
        for path in run.logs.glob("*/node_0/attempt_0/*/stdout.log"):
            numbers = [
                int(line.split("#")[1]) for line in path.read_text().splitlines() if line.endswith("#" + "x" * 40)
            ]
            assert numbers == sorted(set(numbers))


def test_a_log_directory_that_is_deleted(run: Run) -> None:
    run.act("up", "until:go", "out:late", options=summary(run)).up()
    subprocess.run(["rm", "-r", str(run.logs)], check=True)
    (run.signs / "go").touch()
    assert run.wait() == 0
    assert run.out.splitlines() == ["late", "late"]


def test_a_log_directory_that_is_deleted_for_good(run: Run) -> None:
    words = ("up", "until:go", f"lines:{LINES}", "sign:said", "until:said-0", "until:said-1", "exit:7")
    run.act(*words, options=summary(run)).up()
    subprocess.run(["rm", "-r", str(run.logs)], check=True)
    run.logs.write_text("in the way")
    (run.signs / "go").touch()
    assert run.wait() == 7
    assert numbered(run.out, 2) == {rank: list(range(LINES)) for rank in range(2)}
    assert lost(run)["files bytes"] == 2 * BYTES
    assert lost(run)["records"] > 0
    assert len([line for line in run.said if "cannot write records" in line]) == 1
    assert [line for line in run.said if "of output were lost (files)" in line]


@as_root
def test_a_hung_log_file_system(run: Run) -> None:
    image = run.place / "image"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot make a file system here: {made.stderr.strip()}")
    with mounted(run.logs, "-o", "loop", str(image)):
        words = ("up", "until:go#0", f"lines:{LINES}", "exit:3@1#0", "idle#0", "out:done", "exit:9@0", "idle")
        run.act(*words, options=("--max-restarts", "1")).up()
        done = subprocess.run(["fsfreeze", "-f", str(run.logs)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot freeze a file system here: {done.stderr.strip()}")
        try:
            (run.signs / "go").touch()
            until(lambda: any("exit code 9" in line for line in run.said), 2 * BOUND, "the verdict")
            until(lambda: any("does not answer" in line for line in run.said), BOUND, "what was lost")
            assert run.out.splitlines().count("done") >= 1
            assert any("of output were lost (files)" in line for line in run.said)
        finally:
            subprocess.run(["fsfreeze", "-u", str(run.logs)], check=True)
        assert run.wait() == 9


@as_root
def test_a_log_file_system_that_hangs_from_the_start(run: Run) -> None:
    image = run.place / "image"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot make a file system here: {made.stderr.strip()}")
    with mounted(run.logs, "-o", "loop", str(image)):
        done = subprocess.run(["fsfreeze", "-f", str(run.logs)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot freeze a file system here: {done.stderr.strip()}")
        try:
            run.act("out:done", "exit:9@0", "idle")
            until(lambda: any("going on without records" in line for line in run.said), BOUND, "the warning")
            until(lambda: any("exit code 9" in line for line in run.said), BOUND, "the verdict")
        finally:
            subprocess.run(["fsfreeze", "-u", str(run.logs)], check=True)
        assert run.wait() == 9


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
def test_a_console_that_is_closed_early(run: Run, both: bool) -> None:
    head = subprocess.Popen(["head", "-1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert head.stdin is not None
    assert head.stdout is not None
    streams = {"stdout": head.stdin, "stderr": head.stdin} if both else {"stdout": head.stdin}
    run.act(f"lines:{LINES}", "out:end", "exit:7@1", "idle", **streams)
    head.stdin.close()
    with head.stdout:
        shown = head.stdout.read()
    assert head.wait(BOUND) == 0
    assert shown.count(b"\n") == 1
    assert run.wait() == 7
    assert run.summary["lost"]["console bytes"] > 0
    assert run.summary["lost"]["files bytes"] == 0
    kept = run.directory / "attempt_0/1" / ("output.log" if both else "stdout.log")
    assert kept.read_text().endswith("end\n")
    if not both:
        assert [line for line in run.said if "of output were lost (console)" in line]


def test_a_console_that_was_never_there(run: Run) -> None:
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    assert run.act("out:x", "err:y", "exit:7@1", "idle", before=closed).wait() == 7
    assert (run.directory / "attempt_0/1/output.log").read_text() == "x\ny\n"
    assert run.summary["exit_code"] == 7


def test_a_reader_that_never_reads(run: Run) -> None:
    read, write = os.pipe()
    try:
        run.act(f"lines:{LINES}", "out:end", stdout=write, stderr=write)
        os.close(write)
        assert run.wait() == 0
        for rank in range(2):
            assert (run.directory / f"attempt_0/{rank}/output.log").read_text().endswith("end\n")
        assert run.summary["exit_code"] == 0
        shown = len(os.read(read, 1 << 20))
        total = 2 * (BYTES + len("end\n"))
        assert total - shown <= run.summary["lost"]["console bytes"] <= total
        assert run.summary["lost"]["files bytes"] == 0
    finally:
        os.close(read)


def test_a_reader_that_is_slow_gets_everything(run: Run) -> None:
    slow = (
        "import os, time\n"
        "while data := os.read(0, 20_000):\n"
        "    os.write(1, data); time.sleep(0.001 if len(data) else 0)\n"
    )
    with open(run.place / "out", "wb") as out:
        reader = subprocess.Popen(["python3", "-c", slow], stdin=subprocess.PIPE, stdout=out)
    assert reader.stdin is not None
    run.act(f"lines:{LINES}", ranks=4, stdout=reader.stdin)
    reader.stdin.close()
    assert run.wait() == 0
    assert reader.wait(BOUND) == 0
    assert numbered(run.out) == {rank: list(range(LINES)) for rank in range(4)}
    assert run.summary["lost"]["console bytes"] == 0
