"""Functions that tests of `elastic_run.launch` run in several ranks."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def place(*words: str, sep: str = " ") -> tuple[int, str]:
    return int(os.environ["RANK"]), sep.join(words)


def environment() -> dict[str, str]:
    return dict(os.environ)


def fail(rank: int) -> None:
    if int(os.environ["RANK"]) == rank:
        raise ValueError("my own text")


def die_once(sign: str) -> int:
    """Rank 1 is killed in the first attempt."""
    if os.environ["RANK"] == "1" and not Path(sign).exists():
        Path(sign).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def talk() -> None:
    sys.stdout.write(f"rank {os.environ['RANK']} talks\n")


def stay(sign: str) -> None:
    Path(sign).touch()
    time.sleep(600)


class Holder:
    @staticmethod
    def method() -> str:
        return "of a class"


def unpicklable() -> object:
    return lambda: None


def leave_if_first() -> int:
    rank = int(os.environ["RANK"])
    if rank == 0:
        sys.exit(0)
    return rank


class Counter:
    def count(self) -> int:
        return 1


def write_many() -> None:
    for _ in range(5000):
        sys.stderr.write("x" + "\u20ac" * 50 + "\n")
