"""Decides how the survivor of a dead peer leaves a gloo collective and, same process, joins a new group."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

dist = pytest.importorskip("torch.distributed")
WORKER = Path(__file__).with_name("gloo_worker.py")
OUT_WITHIN = 5.0
"""Milliseconds are usual; the process group itself would wait for half an hour."""
BOUND = 30.0
"""For everything else, on loaded machines: five of them import torch on two cores."""


class Worker:
    """A rank in a process of its own, and what it has said that nobody has asked for yet."""

    def __init__(self) -> None:
        command = [sys.executable, str(WORKER)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.messages: deque[dict[str, Any]] = deque()
        self._partial = b""

    def tell(self, **command: Any) -> None:
        self.stdin.write(json.dumps(command).encode() + b"\n")
        self.stdin.flush()

    def read(self) -> None:
        data = os.read(self.stdout.fileno(), 1 << 16)
        assert data, f"worker {self.process.pid} ended with {self.process.wait(BOUND)}"
        *lines, self._partial = (self._partial + data).split(b"\n")
        self.messages.extend(json.loads(line) for line in lines)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()


class Crew:
    """Workers that are alive, the stores of their groups, and all that was ever started."""

    def __init__(self) -> None:
        self.started: list[Worker] = []
        self.idle: list[Worker] = []
        self.stores: list[Any] = []

    def take(self, count: int) -> list[Worker]:
        """Those who survived the last case first: one process goes through several incidents."""
        new: list[Worker] = []
        while len(self.idle) + len(new) < count:
            new.append(Worker())
            self.started.append(new[-1])
        expect("ready", new)
        taken = [*self.idle, *new][:count]
        self.idle = [worker for worker in self.idle if worker not in taken]
        return taken

    def publish(self, members: list[Worker], steps: int, absent: int = 0) -> None:
        """A new generation, on a store of its own."""
        self.stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        for rank, worker in enumerate(members):
            world = len(members) + absent
            worker.tell(do="join", port=self.stores[-1].port, rank=rank, world=world, steps=steps)

    def close(self) -> None:
        for worker in self.started:
            worker.close()


def expect(event: str, workers: list[Worker], within: float = BOUND) -> list[dict[str, Any]]:
    """The next message of each, which must be of that event."""
    deadline = time.monotonic() + within
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if not worker.messages:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
        while selector.get_map():
            left = deadline - time.monotonic()
            silent = [key.data.process.pid for key in selector.get_map().values()]
            assert left > 0, f"no {event!r} within {within} s from {silent}"
            for key, _ in selector.select(left):
                key.data.read()
                if key.data.messages:
                    selector.unregister(key.fileobj)
    said = [worker.messages.popleft() for worker in workers]
    assert [message["event"] for message in said] == [event] * len(said), said
    return said


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew()
    try:
        yield crew
    finally:
        crew.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("victim", [0, 2])
def test_every_survivor_gets_out_and_joins_again(crew: Crew, victim: int, how: int) -> None:
    *ring, replacement = crew.take(5)
    crew.publish(ring, steps=1_000_000)
    joined = expect("joined", ring)
    assert [message["sum"] for message in joined] == [1 + 2 + 3 + 4] * 4
    assert [message["sockets"] for message in joined] == [4] * 4, "three connections and a listening socket"
    expect("training", ring)  # from now on in DDP's backward, over and over
    lost, right, far, left = ring[victim:] + ring[:victim]
    os.kill(lost.process.pid, how)

    began = time.monotonic()
    far.tell(do="cut")  # alone at first: its neighbours keep their connections, so nothing else can free it
    [out] = expect("out", [far], OUT_WITHIN)
    assert out["told"], f"freed by something else than its own cut: {out['error']}"
    for neighbour in (right, left):  # after SIGKILL some have noticed by themselves
        neighbour.tell(do="cut")
    errors = [out["error"], *(message["error"] for message in expect("out", [right, left], OUT_WITHIN))]
    took = time.monotonic() - began
    assert took < OUT_WITHIN
    assert not [error for error in errors if "timed out" in error.lower()], errors

    before = {message["pid"] for message, worker in zip(joined, ring, strict=True) if worker is not lost}
    together = [right, far, left, replacement]
    crew.publish(together, steps=3)
    joined = expect("joined", together)
    assert [message["sum"] for message in joined] == [1 + 2 + 3 + 4] * 4
    assert {message["pid"] for message in joined[:3]} == before
    expect("training", together)
    expect("done", together)
    crew.idle += together  # not after a failure: the next case then starts with new ones
    print(f"out of the collective after {took * 1000:.0f} ms")


def test_a_group_that_could_not_be_made_does_not_spoil_the_next(crew: Crew) -> None:
    *early, late = crew.take(4)
    crew.publish(early, steps=0, absent=1)  # a newcomer that died before it could join
    expect("alone", early)
    crew.publish([*early, late], steps=3)
    assert [message["sum"] for message in expect("joined", [*early, late])] == [1 + 2 + 3 + 4] * 4
    expect("training", [*early, late])
    expect("done", [*early, late])
    crew.idle += [*early, late]
