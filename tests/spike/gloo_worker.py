"""One rank that trains with DDP over gloo and, told to, leaves a blocked collective and joins a new group.

Spoken in JSON lines: a command on standard input, what happened on standard output.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
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


def tcp_sockets() -> set[int]:
    """Descriptors of this process's TCP sockets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                with socket.socket(fileno=os.dup(fd)) as copy:
                    if copy.family in (socket.AF_INET, socket.AF_INET6):
                        found.add(fd)
        except OSError:
            continue  # closed meanwhile
    return found


def cut(kept: set[int]) -> int:
    """Shut down every connected TCP socket but `kept`; a listening one must live, else the process dies.

    `abort()` of gloo does not wake a blocked collective and destroying the group does not either; this does.
    """
    count = 0
    for fd in tcp_sockets() - kept:
        try:
            with socket.socket(fileno=os.dup(fd)) as copy:
                copy.getpeername()
                copy.shutdown(socket.SHUT_RDWR)
                count += 1
        except OSError:
            continue  # not connected, or closed meanwhile
    return count


class Rank:
    def __init__(self) -> None:
        self.generations: queue.Queue[dict[str, Any]] = queue.Queue()
        self.kept: set[int] = set()
        self.leaving = threading.Event()
        self.taken = threading.Event()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "join":
                self.generations.put(command)
            elif command["do"] == "cut":
                threading.Thread(target=self.leave, daemon=True).start()
        os._exit(0)  # the test is gone

    def leave(self) -> None:
        """Again and again until the main thread is out: one cut may come before a connection that is being made."""
        pause = 0.005
        self.leaving.set()
        while not self.taken.wait(pause):
            cut(self.kept)
            pause = min(pause * 2, 0.1)

    def join(self) -> int:
        """Take the next generation: a new group on a new store, in the same process."""
        where = self.generations.get()
        self.taken.set()
        if dist.is_initialized():
            dist.destroy_process_group()
        c10d._world.group_count = 0  # a half-made group would leave the next one with another prefix in the store
        store = dist.TCPStore("127.0.0.1", where["port"], is_master=False, timeout=SHORT)
        self.kept = tcp_sockets()
        dist.init_process_group("gloo", store=store, rank=where["rank"], world_size=where["world"], timeout=SHORT)
        c10d._set_pg_timeout(LONG)
        self.leaving.clear()
        self.taken.clear()
        total = torch.ones(1)
        dist.all_reduce(total)
        say(event="joined", sum=int(total))
        return int(where["steps"])

    def run(self) -> None:
        while True:
            steps = self.join()
            model = DistributedDataParallel(nn.Sequential(*(nn.Linear(128, 128) for _ in range(6))))
            try:
                for step in range(steps):
                    model(torch.ones(8, 128)).sum().backward()
                    say(event="step", step=step)
            except RuntimeError as error:
                say(event="out", error=str(error)[:80], told=self.leaving.is_set())


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    say(event="ready")
    Rank().run()
