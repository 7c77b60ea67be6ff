"""Workers that are forked from a template, or were on standby, are what cold ones are; and what goes wrong costs no
worker."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Any

import pytest

from tests.process.conftest import BOUND, TOP, Run, command, state, until

pytest.importorskip("torch")
PROBE = str(Path(__file__).parent / "workers" / "probe.py")
TEMPLATE = ("--workers", "template")


INTERPRETER = {"PYTHONFAULTHANDLER": "1", "PYTHONWARNINGS": "ignore::UserWarning", "PYTHON_EXEC": sys.executable}
"""Settings of the interpreter that reach a worker through the environment."""


def seen(new_run: Callable[..., Run], name: str, *options: str) -> tuple[dict[str, Any], Run]:
    """What the probe saw in rank 1 of 2, and what it left behind; by chance alone the ranks differ."""
    run = new_run(name)
    words = ("--nproc-per-node", "2", "--log-dir", str(run.logs), "--prefix", "never", *options)
    assert run.start(*words, PROBE, str(run.place), env=INTERPRETER).wait(90) == 0, run.err
    said = [json.loads((run.place / f"{rank}.json").read_text()) for rank in range(2)]
    found = json.loads(json.dumps(said[1]["seen"]).replace(str(run.place), "PLACE"))
    found["unclosed"] = (run.place / "0.unclosed").read_text()
    found["errors"] = sorted(line for line in run.err.splitlines() if not line.startswith("elastic-run"))
    found["output"] = run.out
    for one, other in zip(said[0]["chance"], said[1]["chance"], strict=True):
        assert one != other
    return found, run


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {key: (one[key], other[key]) for key in one if one[key] != other[key]}


def test_a_forked_worker_sees_what_a_cold_one_sees(new_run: Callable[..., Run]) -> None:
    umask = os.umask(0o027)
    try:
        cold, _ = seen(new_run, "cold", "--workers", "cold")
        warm, run = seen(new_run, "warm", *TEMPLATE)
    finally:
        os.umask(umask)
    assert differences(cold, warm) == {}
    assert cold["errors"] == sorted(2 * [*ENDS, "logged"])
    assert len(run.said) == 1


ENDS = ("atexit 1", "atexit 2", "finalize ran", "__del__ ran", "thread ended")


def test_one_from_standby_takes_a_dead_ranks_place(run: Run) -> None:
    words = (*run.flags(), "--max-restarts", "1", "--workers", "standby", "-m", "tests.process.workers.patient")
    run.start(*words, str(run.place / "go"))
    until(lambda: len(interpreters(run)) == 2, BOUND, "a second interpreter: then the first is ready")
    waiting = interpreters(run)
    (run.place / "go").touch()
    assert run.wait() == 0, run.err
    again = {fact["rank"]: fact["pid"] for fact in run.facts("WorkerStarted") if fact["incarnation"] == 2}
    assert again[0] in waiting
    assert sorted(run.out.splitlines()) == ["0 torch was there: True", "1 torch was there: False"]


def interpreters(run: Run) -> list[int]:
    return [pid for pid in run.alive() if "template_main.py" in command(pid)]


CRASHES = {
    "raises": "import torch\ndef f(): raise ValueError('text')\nf()",
    "says why": "import sys, torch\nsys.exit('my text')",
    "number": "import sys, torch\nsys.exit(300)",
    "syntax": "import torch\ndef",
    "import": "import torch\nimport no_such_module",
    "abort": "import os, torch\nos.abort()",
    "interrupt": "import torch\nraise KeyboardInterrupt",
    "system exit of a class": "import torch\nraise SystemExit(ValueError('v'))",
    "hook": "import sys, torch\nsys.excepthook = lambda *a: print('my hook', a[0].__name__, file=sys.stderr)\n1 / 0",
    "chained": "import torch\ntry:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise KeyError('k') from e",
    "closed output": "import sys, torch\nsys.stdout.close()",
    "exit in atexit": "import atexit, os, torch\natexit.register(lambda: os._exit(9))",
    "thread": "import threading, torch\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
}


def test_every_end_is_the_same(new_run: Callable[..., Run]) -> None:
    ends: dict[str, list[object]] = {}
    for mode in ("cold", "template"):
        for name, text in CRASHES.items():
            run = new_run(f"{mode} {name}")
            script = run.place / "script.py"
            script.write_text(text)
            code = run.start(*run.flags(2), "--prefix", "never", "--workers", mode, "script.py").wait()
            shown = [line for line in run.err.splitlines() if not line.startswith("elastic-run")]
            shown = [re.sub(r"0x[0-9a-f]+|\d{15,}", "N", line.replace(str(run.place), "PLACE")) for line in shown]
            ends.setdefault(name, []).append((code, sorted({*shown})))
    assert {name: end for name, end in ends.items() if end[0] != end[1]} == {}


def test_what_a_program_does_before_torch_makes_it_cold_with_one_line(run: Run) -> None:
    (run.place / "script.py").write_text("import os\nos.environ['MKL_NUM_THREADS'] = '3'\nimport torch\n")
    assert run.start(*run.flags(), "script.py").wait() == 0
    assert run.said[0] == (
        "elastic-run: workers start cold: script.py line 2 sets MKL_NUM_THREADS before it imports torch"
    )


def test_a_module_beside_the_program_that_hides_a_loaded_one_makes_it_cold(run: Run) -> None:
    (run.place / "sched.py").write_text("mine = True\n")
    (run.place / "script.py").write_text("import torch\nimport sched\nprint(sched.mine)\n")
    assert run.start(*run.flags(), "--preload", "sched", "script.py").wait() == 0
    assert run.out == "True\nTrue\n"
    assert run.said[0] == (
        f"elastic-run: workers start cold: sched in {run.place} has the name of a module that is loaded already"
    )


def test_a_preload_that_cannot_be_imported_makes_it_cold(run: Run) -> None:
    (run.place / "script.py").write_text("import torch\nprint('ran')\n")
    assert run.start(*run.flags(), "--preload", "no_such_module", "script.py").wait() == 0
    assert run.out == "ran\nran\n"
    assert "no_such_module cannot be imported (ModuleNotFoundError" in run.said[0]


def test_a_preload_that_starts_a_thread_makes_it_cold(run: Run) -> None:
    (run.place / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (run.place / "script.py").write_text("import torch\nprint('ran')\n")
    env = {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{TOP}:{run.place}"}
    assert run.start(*run.flags(), "--preload", "threaded", "script.py", env=env).wait() == 0
    assert run.out == "ran\nran\n"
    assert "elastic-run: workers start cold: what was imported has started a thread" in run.said


def refused(run: Run, preload: str) -> list[str]:
    """What is said when such a module is imported beforehand; the program runs all the same."""
    (run.place / "device.py").write_text(preload)
    (run.place / "script.py").write_text("import torch\nprint('ran')\n")
    env = {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{TOP}:{run.place}"}
    assert run.start(*run.flags(), "--preload", "device", "script.py", env=env).wait() == 0
    assert run.out == "ran\nran\n"
    return run.said


def test_a_preload_that_initialises_a_device_makes_it_cold(run: Run) -> None:
    fake = "import types, torch\ntorch.npu = types.SimpleNamespace(is_initialized=lambda: True)\n"
    assert "elastic-run: workers start cold: what was imported has initialised the npu device" in refused(run, fake)


def test_a_preload_that_opens_a_device_makes_it_cold(run: Run) -> None:
    device = Path(f"/dev/davinci-test-{os.getpid()}")
    device.touch()
    try:
        said = refused(run, f"held = open({str(device)!r})\n")
    finally:
        device.unlink()
    assert f"elastic-run: workers start cold: what was imported has opened {device}" in said


def test_a_template_that_is_killed_is_replaced_and_costs_no_worker(run: Run) -> None:
    run.start(*run.flags(), "--max-restarts", "2", "-m", "tests.process.workers.patient", str(run.place / "go"))
    until(lambda: len(run.facts("WorkerStarted")) == 2, BOUND, "both ranks")
    (template,) = interpreters(run)
    os.kill(template, SIGKILL)
    until(lambda: any("the template of the workers has died" in line for line in run.said), BOUND, "a line")
    assert run.orders("Explain") == []
    (run.place / "go").touch()
    assert run.wait() == 0
    assert run.summary["restarts"] == 1


def test_a_template_that_is_frozen_is_passed_by(run: Run) -> None:
    run.start(*run.flags(), "--max-restarts", "2", "-m", "tests.process.workers.patient", str(run.place / "go"))
    until(lambda: len(run.facts("WorkerStarted")) == 2, BOUND, "both ranks")
    (template,) = interpreters(run)
    os.kill(template, SIGSTOP)
    until(lambda: state(template) == "T", BOUND, "a stopped template")
    (run.place / "go").touch()
    assert run.wait(60) == 0
    assert "elastic-run: workers start cold: their template does not answer" in run.said
    assert run.summary["restarts"] == 2  # it was to fork the store as well, so there was one more round


def test_a_lost_store_is_a_new_round_in_which_nobody_is_blamed(run: Run) -> None:
    run.start(*run.flags(), "-m", "tests.process.workers.grouped", str(run.place / "go"))
    until(lambda: len(list(run.place.glob("pid.*"))) == 2, BOUND, "a group of two")
    hosts = [pid for pid in run.alive() if "the workers' store" in command(pid)]
    assert len(hosts) == 1, run.describe()
    os.kill(hosts[0], SIGKILL)
    until(lambda: run.facts("StoreLost"), BOUND, "the fact")
    (run.place / "go").touch()
    assert run.wait() == 0, run.err
    assert "the workers' store on" in run.said[0]
    assert "a new store, not counted as a restart" in run.err
    assert run.summary["restarts"] == 1
