"""One rank that trains with DDP over gloo and, told to, leaves a blocked collective and joins a new group.

Spoken in JSON lines: a command on standard input, what happened on standard output.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

LONG = timedelta(minutes=30)
SHORT = timedelta(seconds=2)
"""For group creation: a peer that dies in it leaves no socket behind to be cut, only this ends the wait."""


def tcp_sockets() -> Iterator[tuple[int, socket.socket]]:
    """Inode and a duplicate of each TCP socket of this process.

    Duplicated first and asked afterwards: a descriptor number may be closed and given to something else in
    between, and the next group gets the numbers of the last one. The inode of an open socket is no other's.
    """
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            copy = os.dup(fd)
        except OSError:
            continue  # closed meanwhile
        what = os.fstat(copy)
        if not stat.S_ISSOCK(what.st_mode):
            os.close(copy)
            continue
        with socket.socket(fileno=copy) as tcp:
            if tcp.family in (socket.AF_INET, socket.AF_INET6) and tcp.type == socket.SOCK_STREAM:
                yield what.st_ino, tcp


def cut(inodes: set[int]) -> None:
    """Shut down those that are connected; a listening one must live, else gloo ends the process.

    `abort()` of gloo does not wake a blocked collective and destroying the group does not either; this does.
    """
    for inode, tcp in tcp_sockets():
        if inode in inodes:
            try:
                tcp.getpeername()
                tcp.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # listening, or cut before


class Group:
    """One generation: a store and a process group that live until they are left."""

    def __init__(self, port: int, rank: int, world: int) -> None:
        self.told = threading.Event()
        self.left = threading.Event()
        c10d._world.group_count = 0  # a half-made group counts: the next would look under another prefix
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=SHORT)  # type: ignore[attr-defined]
        others = {inode for inode, _ in tcp_sockets()}
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=SHORT)
        c10d._set_pg_timeout(LONG)
        self.sockets = {inode for inode, _ in tcp_sockets()} - others

    def leave(self) -> None:
        """Again and again until the main thread is out and has taken the next generation."""
        self.told.set()
        pause = 0.005
        while not self.left.wait(pause):
            cut(self.sockets)
            pause = min(pause * 2, 0.1)


class Rank:
    def __init__(self) -> None:
        self.generations: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.group: Group | None = None
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "join":
                self.generations.put(command)
            elif self.group is not None:
                threading.Thread(target=self.group.leave, daemon=True).start()
        os._exit(0)  # the test is gone

    def run(self) -> None:
        """One generation after the other, in the same process."""
        while True:
            where = self.generations.get()
            if self.group is not None:
                self.group.left.set()
            if dist.is_initialized():
                dist.destroy_process_group()
            try:
                self.group = Group(where["port"], where["rank"], where["world"])
            except RuntimeError as error:
                say(event="alone", error=str(error))
                continue
            try:
                train(self.group, where["rank"], where["steps"])
            except RuntimeError as error:
                say(event="out", error=str(error), told=self.group.told.is_set())


def train(group: Group, rank: int, steps: int) -> None:
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    say(event="joined", pid=os.getpid(), sum=total.item(), sockets=len(group.sockets))
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(128, 128) for _ in range(6))))
    for step in range(steps):
        model(torch.ones(8, 128)).sum().backward()
        if step == 2:  # buckets are in their final order
            say(event="training")
    say(event="done")


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    say(event="ready")
    Rank().run()
