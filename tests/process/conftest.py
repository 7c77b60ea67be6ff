"""A real launcher under test: started, watched through its journal and its workers' signs, and nothing left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic_run.observe.journal import records, replay

TOP = Path(__file__).parent.parent.parent
ACT = str(Path(__file__).parent / "workers" / "act.py")
BOUND = 30.0
"""For anything that should happen at once, on a machine that is busy with something else."""


class Run:
    """One launcher. Everything it starts inherits LIVES_FOR, by which the test finds what is left."""

    def __init__(self, place: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.place = place
        self.logs, self.tmp, self.signs = place / "logs", place / "tmp", place / "up"
        for directory in (self.tmp, self.signs):
            directory.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str, before: tuple[str, ...] = (), env: dict[str, str] | None = None, **popen: Any) -> Run:
        here = {
            **os.environ, "PYTHONPATH": str(TOP), "TMPDIR": str(self.tmp), "UP": str(self.signs),
            "XDG_STATE_HOME": str(self.place / "state"), "LIVES_FOR": self.mark, **(env or {}),
        }  # fmt: skip
        argv = [*before, sys.executable, "-m", "elastic_run", *words]
        with open(self.place / "out", "ab") as out, open(self.place / "err", "ab") as err:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **popen}
            self.process = subprocess.Popen(argv, env=here, cwd=self.place, **streams)
        return self

    def act(self, *words: str, ranks: int = 2, options: tuple[str, ...] = (), **more: Any) -> Run:
        """Start `act.py` with these words."""
        flags = ("--nproc-per-node", str(ranks), "--log-dir", str(self.logs), "--shutdown-timeout", "0.6")
        return self.start(*flags, *options, ACT, *words, **more)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def wait(self, seconds: float = BOUND) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def send(self, signum: int) -> None:
        os.kill(self.pid, signum)

    @property
    def out(self) -> str:
        return (self.place / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.place / "err").read_text(errors="replace")

    @property
    def said(self) -> list[str]:
        """The launcher's own lines."""
        return [line for line in self.err.splitlines() if line.startswith("elastic-run: ")]

    @property
    def directory(self) -> Path:
        (found,) = self.logs.glob("*/node_0")
        return found

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return found

    @property
    def journal(self) -> list[dict[str, Any]]:
        paths = list(self.logs.glob("*/node_0/events.jsonl"))
        return list(records(paths[0])) if paths else []

    def up(self, ranks: int = 2, restart: int = 0) -> None:
        """Wait until these ranks have given their sign."""
        wanted = {f"{rank}.{restart}" for rank in range(ranks)}
        until(lambda: wanted <= {path.name for path in self.signs.iterdir()}, BOUND, f"signs of {wanted}")

    def fact(self, name: str, **fields: Any) -> None:
        """Wait for a fact or an order in the journal."""
        until(
            lambda: any(
                r.get("fact", r.get("order")) == name and all(r[k] == v for k, v in fields.items())
                for r in self.journal
            ),
            BOUND,
            f"{name} {fields}",
        )

    def notes(self) -> list[str]:
        file = self.signs / "notes"
        return sorted(file.read_text().splitlines()) if file.exists() else []

    def alive(self) -> list[int]:
        """Living processes that descend from this launcher, itself included."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self.mark in environ(pid)]

    def gone(self, within: float) -> None:
        """Wait until nothing of it lives but what cannot run: the launcher itself if it is frozen, and its guard."""

        def nothing() -> bool:
            spared = {self.pid, *self.guards()} if state(self.pid) == "T" else set()
            return not set(self.alive()) - spared

        until(nothing, within, lambda: f"still alive: {self.describe()}")

    def guards(self) -> list[int]:
        return [pid for pid in self.alive() if "guard_main.py" in command(pid)]

    def workers(self) -> dict[int, int]:
        """Rank -> pid of the newest start."""
        return {r["rank"]: r["pid"] for r in self.journal if r.get("fact") == "WorkerStarted"}

    def describe(self) -> list[str]:
        return [f"{pid} {state(pid)} {command(pid)}" for pid in self.alive()]

    def close(self) -> list[str]:
        """Kill what is left and say what it was."""
        left = self.describe()
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if self.process is not None:
            self.process.wait(BOUND)
        return left


def until(holds: Callable[[], bool], seconds: float, what: str | Callable[[], str]) -> None:
    """The one place that waits for something to become so; a deadline, not a duration."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what if isinstance(what, str) else what()}")
        pause.wait(0.01)


def environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A launcher to start. Afterwards: nothing lives, the scratch directory is gone, decisions can be replayed."""
    one = Run(tmp_path)
    try:
        yield one
        if one.process is not None and one.process.poll() is not None:
            one.gone(BOUND)
    finally:
        left = one.close()
    assert left == []
    until(lambda: not list(one.tmp.glob("elastic-run-*")), BOUND, "scratch directory removed")
    for path in one.logs.glob("*/node_*/events.jsonl"):
        if "start" in next(records(path), {}):  # else a test took the beginning away
            assert replay(path) is None
