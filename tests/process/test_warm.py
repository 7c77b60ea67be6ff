"""Workers that are forked from a template, or were on standby, are what cold ones are; and what goes wrong costs no
worker."""

from __future__ import annotations

import json
import os
import re
import shutil
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
    "abort": "import os, torch\nos.abort()",
    "interrupt": "import torch\nraise KeyboardInterrupt",
}
"""The other ways to end are compared without a launcher in test_main_program.py."""


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
            left = {path.name: path.stat().st_size for path in run.place.glob("left.*")}
            ends.setdefault(name, []).append((code, sorted({*shown}), sorted(run.out.splitlines()), left))
    assert {name: end for name, end in ends.items() if end[0] != end[1]} == {}


def test_each_of_many_ranks_has_its_own_streams(run: Run) -> None:
    text = (
        "import os, sys, torch\nprint('out', os.environ['RANK'])\nprint('err', os.environ['RANK'], file=sys.stderr)\n"
    )
    (run.place / "script.py").write_text(text)
    words = ("--nproc-per-node", "6", *TEMPLATE, "--log-dir", str(run.logs), "--redirects", "3", "script.py")
    assert run.start(*words).wait() == 0, run.err
    assert run.out == ""
    found = {path.parent.name: path.read_text() for path in run.logs.glob("*/node_0/attempt_0/*/stdout.log")}
    assert found == {str(rank): f"out {rank}\n" for rank in range(6)}
    found = {path.parent.name: path.read_text() for path in run.logs.glob("*/node_0/attempt_0/*/stderr.log")}
    assert found == {str(rank): f"err {rank}\n" for rank in range(6)}


OWN_QUEUE = (
    "mine = True\nclass Empty(Exception): pass\nQueue = SimpleQueue = LifoQueue = PriorityQueue = Full = Empty\n"
)
"""With the names that torch needs, which in a cold start gets this one as well."""


def test_what_a_program_does_before_torch_makes_it_cold_with_one_line(run: Run) -> None:
    (run.place / "script.py").write_text("import os\nos.environ['MKL_NUM_THREADS'] = '3'\nimport torch\n")
    assert run.start(*run.flags(), "script.py").wait() == 0, run.err
    assert run.said[0] == (
        "elastic-run: workers start cold: script.py line 2 sets MKL_NUM_THREADS before it imports torch"
    )


def test_a_module_beside_the_program_that_hides_a_loaded_one_makes_it_cold(run: Run) -> None:
    (run.place / "own").mkdir()
    (run.place / "own/queue.py").write_text(OWN_QUEUE)
    (run.place / "own/script.py").write_text("import torch\nimport queue\nprint(queue.mine)\n")
    assert run.start(*run.flags(), "own/script.py").wait() == 0, run.err
    assert run.out == "True\nTrue\n"
    assert run.said[0] == (
        f"elastic-run: workers start cold: queue in {run.place}/own has the name of a module that is loaded already"
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
    assert run.summary["restarts"] == 1  # though it was to fork the store as well


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


@pytest.mark.parametrize("what", ["missing", "exits", "shadowed"])
def test_a_template_that_is_refused_costs_a_line_and_no_round(run: Run, what: str) -> None:
    """The store that it was to host is hosted by another process, on the port that the ranks were told."""
    text = "import os, torch.distributed as d\nprint(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
    text += "d.init_process_group('gloo')\nd.barrier()\nd.destroy_process_group()\n"
    (run.place / "own").mkdir()  # beside the program, but not where the launcher itself would find it
    (run.place / "own/script.py").write_text(text)
    (run.place / "own/exits.py").write_text("import sys\nsys.exit(3)\n")
    if what == "shadowed":
        (run.place / "own/queue.py").write_text(OWN_QUEUE)
    words = ["--preload", {"missing": "no_such_module", "exits": "exits", "shadowed": "torch"}[what]]
    assert run.start(*run.flags(), *words, "own/script.py").wait(60) == 0, run.err
    assert run.out.splitlines() == ["0", "0"]
    assert len(run.said) == 2, run.err


def test_what_is_to_be_preloaded_is_found_beside_the_program(run: Run) -> None:
    (run.place / "beside.py").write_text("import os\nloaded_by = os.getpid()\n")
    (run.place / "script.py").write_text("import os, torch, beside\nprint(beside.loaded_by == os.getpid())\n")
    assert run.start(*run.flags(), *TEMPLATE, "--preload", "beside", "script.py").wait() == 0, run.err
    assert run.out.splitlines() == ["False", "False"]


@pytest.mark.parametrize("flag", ["-P", "-I"])
def test_an_interpreter_with_a_safe_path_keeps_its_path(run: Run, flag: str) -> None:
    if flag == "-P" and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    wrapper = run.place / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {flag} "$@"\n')
    wrapper.chmod(0o755)
    (run.place / "script.py").write_text("import sys, torch\nprint(sys.path)\n")
    paths = set()
    for mode in ("cold", "template"):
        env = {"PYTHON_EXEC": str(wrapper), "PYTHONPATH": str(TOP)}
        assert run.start(*run.flags(), "--workers", mode, "script.py", env=env).wait() == 0, run.err
        paths |= {*run.out.splitlines()}
    assert len(paths) == 1


def test_a_start_of_the_interpreter_that_asks_for_the_rank_makes_it_cold(run: Run) -> None:
    (run.place / "own").mkdir()
    (run.place / "own/sitecustomize.py").write_text("import os\nos.environ['MINE'] = os.environ.get('RANK', '-')\n")
    (run.place / "script.py").write_text("import os, torch\nprint(os.environ['MINE'] == os.environ['RANK'])\n")
    path = f"{run.place / 'own'}:{TOP}"
    assert run.start(*run.flags(), *TEMPLATE, "script.py", env={"PYTHONPATH": path}).wait() == 0, run.err
    assert run.out.splitlines() == ["True", "True"]
    assert "asks for the rank when an interpreter starts" in run.err


def test_one_rank_starts_from_the_template_if_that_is_asked_for(run: Run) -> None:
    (run.place / "script.py").write_text("import sys\nprint('torch' in sys.modules)\nimport torch\n")
    words = ("--nproc-per-node", "1", "--log-dir", str(run.logs), *TEMPLATE, "script.py")
    assert run.start(*words).wait() == 0, run.err
    assert run.out.splitlines() == ["True"]


def test_ranks_see_a_hosted_store_in_all_rounds_or_in_none(run: Run) -> None:
    text = "import os, sys, torch\nprint(os.environ['TORCHELASTIC_USE_AGENT_STORE'])\n"
    (run.place / "script.py").write_text(text + "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n")
    words = ("--nproc-per-node", "1", "--max-restarts", "1", "--log-dir", str(run.logs), "script.py")
    assert run.start(*words).wait() == 0, run.err
    assert run.out.splitlines() == ["False", "False"]


def test_a_template_that_imports_dies_with_launcher_and_guard(run: Run) -> None:
    (run.place / "endless.py").write_text("import time\ntime.sleep(1000)\n")
    (run.place / "script.py").write_text("import torch\n")
    run.start(*run.flags(), *TEMPLATE, "--preload", "endless", "script.py")
    until(lambda: interpreters(run), BOUND, "the template")
    guard = next(pid for pid in run.alive() if "guard_main.py" in command(pid))
    for pid in (guard, run.pid):
        os.kill(pid, SIGKILL)
    until(lambda: not run.alive(), BOUND, "the end of the template")
    for left in run.scratch():  # which the guard would have removed
        shutil.rmtree(left)
