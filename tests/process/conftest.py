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
from elastic_run.supervisor.orphans import stat_of

TOP = Path(__file__).parent.parent.parent
ACT = str(Path(__file__).parent / "workers" / "act.py")
LAUNCHER = (sys.executable, "-m", "elastic_run")
BOUND = 30.0
"""For anything that should happen at once, on a machine that is busy with something else."""
GRACE = 0.6
SLACK = 1.0
"""For a machine that does other things: the promise is grace + 1 s."""
SOON = GRACE + 1 + SLACK


class Run:
    """One launcher. Everything it starts inherits LIVES_FOR, by which the test finds what is left."""

    def __init__(self, place: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.place = place
        self.logs, self.tmp, self.signs = place / "logs", place / "tmp", place / "up"
        for directory in (self.tmp, self.signs):
            directory.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str, before: tuple[str, ...] = (), env: dict[str, str] | None = None, **popen: Any) -> Run:
        argv = [*before, *LAUNCHER, *words]
        with open(self.place / "out", "ab") as out, open(self.place / "err", "ab") as err:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "cwd": self.place, **popen}
            self.process = subprocess.Popen(argv, env=self.environment(env), **streams)
        return self

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        return {
            **os.environ, "PYTHONPATH": str(TOP), "TMPDIR": str(self.tmp), "UP": str(self.signs),
            "XDG_STATE_HOME": str(self.place / "state"), "LIVES_FOR": self.mark,
            "OMP_NUM_THREADS": "1", **(more or {}),
        }  # fmt: skip

    def flags(self, ranks: int = 2) -> tuple[str, ...]:
        return ("--nproc-per-node", str(ranks), "--log-dir", str(self.logs), "--shutdown-timeout", str(GRACE))

    def act(self, *words: str, ranks: int = 2, options: tuple[str, ...] = (), **more: Any) -> Run:
        """Start `act.py` with these words."""
        return self.start(*self.flags(ranks), *options, ACT, *words, **more)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

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
        file = self.place / "err"
        return file.read_text(errors="replace") if file.exists() else ""

    @property
    def said(self) -> list[str]:
        """The launcher's own lines."""
        return [line for line in self.err.splitlines() if line.startswith("elastic-run: ")]

    @property
    def directory(self) -> Path:
        (found,) = self.logs.glob("*/node_*")
        return found

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return found

    @property
    def journal(self) -> list[dict[str, Any]]:
        paths = list(self.logs.glob("*/node_*/events.jsonl"))
        return list(records(paths[0])) if paths else []

    def orders(self, name: str) -> list[dict[str, Any]]:
        return [r for r in self.journal if r.get("order") == name]

    def facts(self, name: str) -> list[dict[str, Any]]:
        return [r for r in self.journal if r.get("fact") == name]

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
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if self.mark in environ(pid) or self.mark in command(pid)]

    def gone(self, within: float) -> None:
        """Wait until nothing of it lives but what cannot run: the launcher itself if it is frozen, and its guard."""

        def nothing() -> bool:
            spared = {self.pid, *self.guards()} if state(self.pid) == "T" else set()
            return not set(self.alive()) - spared

        until(nothing, within, lambda: f"still alive: {self.describe()}")

    def guards(self) -> list[int]:
        return [pid for pid in self.alive() if "guard_main.py" in command(pid)]

    def acting(self) -> list[int]:
        """Workers that have become `act.py`, and what they forked, whether a journal knows them or not."""
        return [pid for pid in self.alive() if f"-u {ACT}" in command(pid)]

    def workers(self) -> dict[int, int]:
        """Rank -> pid of the newest start."""
        return {r["rank"]: r["pid"] for r in self.facts("WorkerStarted")}

    def describe(self) -> list[str]:
        return [f"{pid} {state(pid)} {command(pid)}" for pid in self.alive()]

    def scratch(self) -> list[Path]:
        """Scratch directories that exist, wherever they were made."""
        named = {Path(path.read_text()) for path in self.signs.glob("*.*") if path.stat().st_size}
        return [path for path in {*named, *self.tmp.glob("elastic-run-[0-9a-f]*")} if path.exists()]

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

    def differences(self) -> list[object]:
        """Where decisions cannot be repeated from the journals, nested launchers' included."""
        found = []
        if "records could not be written" in self.err:
            return []
        for path in self.place.rglob("events.jsonl"):
            whole = list(records(path))
            if not whole or "start" not in whole[0]:
                continue  # a test took the beginning away
            if whole[-1].get("order") != "Exit":  # killed, perhaps between a fact and its orders
                last = max((n for n, record in enumerate(whole) if "fact" in record), default=0)
                path = path.with_name("until_the_last_fact.jsonl")
                path.write_text("".join(json.dumps(record) + "\n" for record in whole[:last]))
                if last == 0:
                    continue
            found.append(replay(path))
        return [difference for difference in found if difference is not None]


def until(holds: Callable[[], object], seconds: float, what: str | Callable[[], str]) -> None:
    """The one place that waits for something to become so; a deadline, not a duration."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what if isinstance(what, str) else what()}")
        pause.wait(0.01)


def lasts(seconds: float) -> None:
    """A fault that has a duration or a random moment of its own. Nothing is waited for."""
    threading.Event().wait(seconds)


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
    stat = stat_of(pid)
    return stat.state if stat is not None else ""


def zombies(parent: int) -> list[int]:
    """Children of a process that have ended and were not waited for."""
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    stats = {int(name): stat_of(int(name)) for name in names}
    return [pid for pid, stat in stats.items() if stat is not None and stat.parent == parent and stat.state == "Z"]


@pytest.fixture(scope="session", autouse=True)
def _hangups_are_not_ignored() -> None:
    """Whatever started pytest (nohup does): a launcher under test inherits what a shell gives."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Launchers to start. Afterwards: nothing of them lives, no scratch is left, decisions can be replayed."""
    runs: list[Run] = []

    def make(name: str = "") -> Run:
        runs.append(Run(tmp_path / name))
        return runs[-1]

    try:
        yield make
        for run in runs:
            if run.ended:
                run.gone(BOUND)
    finally:
        left = [line for run in runs for line in run.close()]
    assert left == []
    for run in runs:
        until(lambda run=run: not run.scratch(), BOUND, lambda run=run: f"scratch left: {run.scratch()}")  # type: ignore[misc]
        assert run.differences() == []
    assert zombies(os.getpid()) == []


@pytest.fixture
def run(new_run: Callable[..., Run]) -> Run:
    """One launcher to start."""
    return new_run()
