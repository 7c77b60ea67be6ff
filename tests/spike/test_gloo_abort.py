"""Decides how a survivor leaves a gloo collective whose peer is gone, and joins a new group in the same process."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

dist = pytest.importorskip("torch.distributed")
WORKER = Path(__file__).with_name("gloo_worker.py")
BOUND = 30.0
"""Generous for loaded machines; the process group itself would wait for half an hour."""


class Ranks:
    """Four workers on pipes; the stores of their groups live here."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.selector = selectors.DefaultSelector()
        self.buffers: dict[int, bytes] = {}
        self.stores: list[Any] = []

    def start(self) -> None:
        process = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self.selector.register(process.stdout, selectors.EVENT_READ, len(self.processes) - 1)
        self.buffers[len(self.processes) - 1] = b""

    def tell(self, index: int, **command: Any) -> None:
        pipe = self.processes[index].stdin
        assert pipe is not None
        pipe.write(json.dumps(command).encode() + b"\n")
        pipe.flush()

    def join(self, members: list[int], steps: int) -> None:
        """A new generation: a store of its own."""
        self.stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        for rank, index in enumerate(members):
            self.tell(index, do="join", port=self.stores[-1].port, rank=rank, world=len(members), steps=steps)

    def until(self, event: str, members: list[int]) -> dict[int, dict[str, Any]]:
        """What each of `members` says with that event, whichever comes first."""
        said: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + BOUND
        while missing := [index for index in members if index not in said]:
            left = deadline - time.monotonic()
            assert left > 0, f"no {event!r} from {missing}"
            for key, _ in self.selector.select(left):
                if key.data not in members:
                    continue  # the victim's pipe
                for message in self.read(key.data, key.fd):
                    if message["event"] == event:
                        said.setdefault(key.data, message)
        return said

    def read(self, index: int, fd: int) -> list[dict[str, Any]]:
        data = os.read(fd, 1 << 16)
        if not data:
            self.selector.unregister(fd)
            raise AssertionError(f"worker {index} ended with {self.processes[index].wait(BOUND)}")
        *lines, self.buffers[index] = (self.buffers[index] + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        self.selector.close()


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    four = Ranks()
    try:
        for _ in range(5):  # the last one has imported torch and waits to replace somebody
            four.start()
        four.until("ready", [0, 1, 2, 3, 4])
        yield four
    finally:
        four.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("victim", [0, 2])
def test_every_survivor_gets_out_and_joins_again(ranks: Ranks, victim: int, how: int) -> None:
    everyone, replacement = [0, 1, 2, 3], 4
    ranks.join(everyone, steps=1_000_000)
    assert {m["sum"] for m in ranks.until("joined", everyone).values()} == {4}
    ranks.until("step", everyone)  # all are in DDP's backward now, over and over
    survivors = [index for index in everyone if index != victim]
    pids = {index: ranks.processes[index].pid for index in survivors}
    os.kill(ranks.processes[victim].pid, how)

    began = time.monotonic()
    for index in survivors:  # neighbours of the dead rank and the one that is none
        ranks.tell(index, do="cut")
    ranks.until("out", survivors)
    took = time.monotonic() - began

    ranks.join([*survivors, replacement], steps=3)
    assert {m["sum"] for m in ranks.until("joined", [*survivors, replacement]).values()} == {4}
    ranks.until("step", [*survivors, replacement])
    assert {index: ranks.processes[index].pid for index in survivors} == pids
    assert all(ranks.processes[index].poll() is None for index in survivors)
    print(f"out of the collective after {took * 1000:.0f} ms")
