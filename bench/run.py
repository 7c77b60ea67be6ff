"""`make bench`: the launchers side by side, alternating, with medians, spreads and ratios, as a table and as JSON.

    python bench/run.py [--reps N] [--only NAME,...] [--no-peers] [--out FILE]

Times are CLOCK_MONOTONIC, written by the workers into a pipe that is read here; ends of processes are seen through
pidfds. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launchers import COLD, OURS, OWN_STORE, STANDBY, TORCHRUN, Launcher, peers

HERE = Path(__file__).parent
TOP = HERE.parent
LONGEST = 90.0
"""Seconds for one run; what takes longer did not come back."""
Figures = dict[str, float]


@dataclass
class Event:
    name: str
    at: float
    rank: int
    restart: int
    pid: int


@dataclass
class Job:
    """One launch, watched to its end or to LONGEST."""

    launcher: Launcher
    argv: list[str]
    place: Path
    events: list[Event] = field(default_factory=list)
    deaths: dict[int, float] = field(default_factory=dict)
    began: float = 0.0
    ended: float | None = None

    def run(self, meanwhile: Callable[[Job], None] | None = None) -> Job:
        pipe = self.place / "events"
        os.mkfifo(pipe)
        self._selector, self._rest = selectors.DefaultSelector(), b""
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._selector.register(self._pipe, selectors.EVENT_READ, self._read)
        env = {**os.environ, **self.launcher.env, "BENCH_EVENTS": str(pipe), "TMPDIR": str(self.place)}
        env |= {"OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(self.place), "PYTHONPATH": str(TOP)}
        with open(self.place / "out", "wb") as out:
            self.began = time.monotonic()
            self.process = subprocess.Popen(
                self.argv, cwd=self.place, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self._watch(self.process.pid, self._gone)
        try:
            if meanwhile is not None:
                meanwhile(self)
            self.until(lambda: self.ended is not None, LONGEST)
        finally:
            self._end()
        return self

    def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self._selector.select(left):
                key.data()
        return True

    def of(self, name: str, restart: int = 0) -> list[Event]:
        return [event for event in self.events if event.name == name and event.restart == restart]

    def last(self, name: str, restart: int, n: int, since: float) -> float | None:
        """Seconds until all n ranks had told this."""
        found = {event.rank: event.at for event in reversed(self.of(name, restart))}
        return max(found.values()) - since if len(found) == n else None

    def _read(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._pipe, 1 << 20)).split(b"\n")
        for line in lines:
            name, at, rank, restart, pid = line.decode().split()
            self.events.append(Event(name, float(at), int(rank), int(restart), int(pid)))
            if name == "line":
                self._watch(int(pid), lambda pid=int(pid): self.deaths.setdefault(pid, time.monotonic()))

    def _watch(self, pid: int, gone: Callable[[], object]) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            gone()
            return

        def ended() -> None:
            gone()
            self._selector.unregister(fd)
            os.close(fd)

        self._selector.register(fd, selectors.EVENT_READ, ended)

    def _gone(self) -> None:
        self.ended = time.monotonic()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.until(lambda: self.ended is not None, 5.0)
        for pid in [self.process.pid, *{event.pid for event in self.events}]:
            if pid not in self.deaths:
                try:
                    os.killpg(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
        self.process.wait()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()


def job(launcher: Launcher, place: Path, script: str, *words: str, n: int, restarts: int = 0, tee: bool = False) -> Job:
    options = (*(launcher.tee if tee else ()), "--log-dir", str(place / "logs"))
    argv = launcher.argv(str(HERE / script), *words, n=n, restarts=restarts, options=options if launcher.logs else ())
    return Job(launcher, argv, place)


# -- what is measured; each gives seconds, or nothing for what did not happen


def empty(launcher: Launcher, place: Path, n: int) -> Figures:
    done = job(launcher, place, "worker.py", "empty", n=n).run()
    return _told({"first line": done.last("line", 0, n, done.began)})


def start(launcher: Launcher, place: Path, n: int, script: str = "worker.py") -> Figures:
    done = job(launcher, place, script, "steps", n=n).run()
    last = max((at for pid, at in done.deaths.items()), default=None)
    after = done.ended - last if done.ended is not None and last is not None else None
    return _told({"first step": done.last("first", 0, n, done.began), "last worker dead → launcher gone": after})


def restart(launcher: Launcher, place: Path, n: int, script: str = "worker.py", after: float = 1.0) -> Figures:
    words = ("steps", f"die={min(1, n - 1)}@{after}", "step=0.05", f"steps={int(after / 0.05) + 60}")
    done = job(launcher, place, script, *words, n=n, restarts=1)
    done.run(lambda j: j.until(lambda: len(j.of("first", 1)) == n or j.ended is not None, LONGEST) and None)
    dies = done.of("dies")
    if not dies:
        return {}
    figures = {
        "death → past import torch": done.last("torch", 1, n, dies[0].at),
        "death → first new step": done.last("first", 1, n, dies[0].at),
    }
    return _told({**figures, "death → noticed": _noticed(done, dies[0])})


def _noticed(done: Job, dies: Event) -> float | None:
    """From the kernel's end of the process to our record of it; only our journal has the time."""
    for path in done.place.glob("logs/*/node_0/events.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record.get("fact") == "WorkerExited" and record["rank"] == dies.rank and dies.pid in done.deaths:
                return float(record["at"]) - done.deaths[dies.pid]
    return None


def logs(launcher: Launcher, place: Path, n: int = 4, lines: int = 200_000) -> Figures:
    done = job(launcher, place, "lines.py", str(lines), n=n, tee=True).run()
    seen = [line.rpartition(":")[2] for line in (place / "out").read_text(errors="replace").splitlines()]
    whole = {line for line in seen if line.count("#") == 2 and line.endswith("x" * 40)}
    lost = n * lines - len(whole)
    return _told({"4 × 200,000 lines": done.ended - done.began if done.ended else None, "lines lost": float(lost)})


def idle(launcher: Launcher, place: Path, n: int = 8, seconds: float = 20.0) -> Figures:
    found: Figures = {}

    def look(j: Job) -> None:
        j.until(lambda: len(j.of("first")) == n, LONGEST)
        j.until(lambda: False, 6.0)  # the machine belongs to the workers until they have settled
        workers = {event.pid for event in j.events}
        own = [pid for pid in _tree(j.process.pid) if pid not in workers]
        before = _used(own)
        j.until(lambda: False, seconds)
        after = _used(own)
        found["idle: CPU ms per minute"] = (after[0] - before[0]) * 60 / seconds
        found["idle: wake-ups per minute"] = (after[1] - before[1]) * 60 / seconds
        found["idle: MiB without template"] = sum(_own_memory(pid) for pid in own if not _warm(pid))
        found["idle: MiB of template and store"] = sum(_own_memory(pid) for pid in own if _warm(pid))
        j.process.send_signal(signal.SIGTERM)

    job(launcher, place, "worker.py", "steps", "step=600", "steps=2", n=n).run(look)
    return found


def version(launcher: Launcher, place: Path) -> Figures:
    words = ["version"] if launcher is OURS else ["--help"]
    before = os.times()
    subprocess.run([*launcher.words[:3], *words], check=True, capture_output=True, cwd=place)
    after = os.times()
    return {"CPU": after.children_user + after.children_system - before.children_user - before.children_system}


def _told(figures: dict[str, float | None]) -> Figures:
    return {name: value for name, value in figures.items() if value is not None}


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def _used(pids: list[int]) -> tuple[float, float]:
    """CPU milliseconds and context switches of all threads so far."""
    cpu, switches = 0.0, 0.0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            run_ns = int((task / "schedstat").read_text().split()[0])
            cpu += run_ns / 1e6
            for line in (task / "status").read_text().splitlines():
                if "voluntary_ctxt_switches" in line:
                    switches += int(line.split()[1])
    return cpu, switches


def _own_memory(pid: int) -> float:
    """MiB, pages shared with others counted in part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _warm(pid: int) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"template_main" in command or b"workers' store" in command


Measure = Callable[[Launcher, Path], Figures]


def plan(others: list[Launcher]) -> dict[str, tuple[list[Launcher], Measure]]:
    """Name -> launchers, the first being ours and the second the base of the ratios, and what is measured."""
    all_of_them = [OURS, OWN_STORE, TORCHRUN, *others]
    return {
        "version": ([OURS, TORCHRUN], version),
        "empty script: 1 rank": ([OURS, TORCHRUN, *others], lambda it, at: empty(it, at, 1)),
        "start: 1 rank": ([OURS, TORCHRUN, *others], lambda it, at: start(it, at, 1)),
        "start: 2 ranks": ([OURS, TORCHRUN, COLD, *others], lambda it, at: start(it, at, 2)),
        "start: 8 ranks": ([OURS, TORCHRUN, COLD, *others], lambda it, at: start(it, at, 8)),
        "a rank dies: 2 ranks": (all_of_them, lambda it, at: restart(it, at, 2)),
        "a rank dies: 4 ranks": (all_of_them, lambda it, at: restart(it, at, 4)),
        "a rank dies: 8 ranks": (all_of_them, lambda it, at: restart(it, at, 8)),
        "a rank dies: 4 ranks DDP": ([OURS, OWN_STORE], lambda it, at: restart(it, at, 4, "ddp.py")),
        "a rank dies: 2 ranks standby": ([STANDBY, OWN_STORE], lambda it, at: restart(it, at, 2, after=14.0)),
        "logs": ([OURS, TORCHRUN, *others], lambda it, at: logs(it, at)),
        "idle: 8 ranks": ([OURS, TORCHRUN], lambda it, at: idle(it, at)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--only", default="", help="names of measurements, comma-separated beginnings")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--out", default=str(TOP / "build/bench.json"))
    given = parser.parse_args()
    chosen = [word for word in given.only.split(",") if word]
    results: dict[str, dict[str, list[Figures]]] = {}
    for name, (launchers, measure) in plan([] if given.no_peers else peers()).items():
        if chosen and not any(name.startswith(word) for word in chosen):
            continue
        results[name] = {launcher.name: [] for launcher in launchers}
        for rep in range(given.reps if name != "idle: 8 ranks" else 1):
            turn = launchers[rep % len(launchers) :] + launchers[: rep % len(launchers)]  # whoever is first, it changes
            for launcher in turn:
                with tempfile.TemporaryDirectory(prefix="bench-") as place:
                    results[name][launcher.name].append(measure(launcher, Path(place)))
        print(table(name, results[name]), flush=True)
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    Path(given.out).write_text(json.dumps({"machine": machine(), "results": results}, indent=1))


def table(name: str, runs: dict[str, list[Figures]]) -> str:
    """Medians with spread; how many runs had the figure; the ratio to the second launcher's median."""
    lines = [f"\n{name}"]
    figures = dict.fromkeys(figure for some in runs.values() for run in some for figure in run)
    for figure in figures:
        values = {launcher: [run[figure] for run in some if figure in run] for launcher, some in runs.items()}
        base = list(values.values())[1] if len(values) > 1 else []
        for launcher, got in values.items():
            if not got:
                lines.append(f"  {figure:36} {launcher:22} never (0 of {len(runs[launcher])})")
                continue
            middle = statistics.median(got)
            ratio = f"  {statistics.median(base) / middle:6.1f}x" if base and middle and got is not base else ""
            count = f"{len(got)} of {len(runs[launcher])}"
            lines.append(f"  {figure:36} {launcher:22} {middle:9.4g} ({min(got):.4g}–{max(got):.4g}) {count}{ratio}")
    return "\n".join(lines)


def machine() -> dict[str, object]:
    import torch

    return {
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    sys.exit(main())
