"""A program that writes down all that it sees of its interpreter and process, and leaves much to do at its end."""

import atexit
import faulthandler
import json
import logging
import multiprocessing
import os
import pickle
import random
import resource
import signal
import stat
import sys
import threading
import weakref

import numpy
import torch


class Own:
    def __init__(self, value: int) -> None:
        self.value = value


def double(own: Own) -> int:
    return own.value * 2


def signals() -> dict[str, str]:
    return {str(number): str(signal.getsignal(number)) for number in sorted(signal.valid_signals())}


def limits() -> dict[str, list[int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: list(resource.getrlimit(getattr(resource, name))) for name in names}


def main_module() -> dict[str, str]:
    main = sys.modules["__main__"].__dict__
    names = ("__name__", "__doc__", "__package__", "__spec__", "__file__", "__cached__", "__annotations__")
    return {**{name: str(main.get(name, "absent")) for name in names}, "__loader__": type(main["__loader__"]).__name__}


def status() -> dict[str, str]:
    wanted = ("Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed_list", "NoNewPrivs")
    with open("/proc/self/status") as file:
        pairs = [line.split(":", 1) for line in file]
    return {name: value.strip() for name, value in pairs if name in wanted}


def everything() -> dict[str, object]:
    umask = os.umask(0)
    os.umask(umask)
    environment = {k: v for k, v in os.environ.items() if k not in VARY}
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags),
        "executable": sys.executable, "prefix": sys.prefix, "main": main_module(), "signals": signals(),
        "limits": limits(), "umask": umask, "cwd": os.getcwd(), "status": status(), "environment": environment,
        "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
        "descriptors": sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if fd < 20 and usable(fd)),
        "streams": [[s.name, s.encoding, s.errors, s.line_buffering, s.isatty(), s.fileno()] for s in
                    (sys.stdin, sys.stdout, sys.stderr)],
        "unbuffered": [sys.stdout.write_through, sys.stderr.write_through],
        "stdin": sys.stdin.read() if stat.S_ISREG(os.fstat(0).st_mode) else "",
        "thread": threading.current_thread() is threading.main_thread(), "threads": threading.active_count(),
        "pickle": pickle.loads(pickle.dumps(Own(3))).value,
        "faulthandler": faulthandler.is_enabled(), "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(), "warnings": len(sys.warnoptions), "hooks": sys.excepthook.__name__,
        "threads of torch": torch.get_num_threads(),
        "command": open("/proc/self/cmdline").read().rstrip("\0"), "name": open("/proc/self/comm").read(),
    }  # fmt: skip


def usable(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


VARY = ("ELASTIC_RUN_JOB", "ELASTIC_RUN_SCRATCH", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE", "UP", "LIVES_FOR", "TMPDIR", "XDG_STATE_HOME", "PWD", "_")  # fmt: skip


class Noisy:
    def __del__(self) -> None:
        os.write(2, b"__del__ ran\n")


if __name__ == "__main__":
    place = sys.argv[1]
    rank = os.environ["RANK"]
    seen = everything()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seen["spawned"] = pool.map(double, [Own(4)])
    with multiprocessing.get_context("fork").Pool(1) as pool:
        seen["forked"] = pool.map(double, [Own(5)])
    chance = [random.random(), float(numpy.random.random()), torch.rand(1).item()]
    with open(f"{place}/{rank}.json", "w") as file:
        json.dump({"seen": seen, "chance": chance}, file)
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    atexit.register(os.write, 2, b"atexit 1\n")
    atexit.register(os.write, 2, b"atexit 2\n")
    noisy = Noisy()
    finalized = weakref.finalize(noisy, os.write, 2, b"finalize ran\n")
    unclosed = open(f"{place}/{rank}.unclosed", "w")  # noqa: SIM115
    unclosed.write("kept")
    threading.Thread(target=lambda: (threading.Event().wait(0.2), os.write(2, b"thread ended\n"))).start()
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    logging.warning("logged")
    sys.stdout.write("no line end")
