"""The physical limit: a parent that has imported torch forks the workers, and forks them again when one dies."""

from __future__ import annotations

import os
import runpy
import socket
import sys

import torch.distributed  # noqa: F401


def fork(rank: int, n: int, restart: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": str(restart),
    }  # fmt: skip
    sys.argv = sys.argv[3:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
    os._exit(0)


def main() -> int:
    n, restarts = int(sys.argv[1]), int(sys.argv[2])
    for restart in range(restarts + 1):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        pids = {fork(rank, n, restart, port) for rank in range(n)}
        while pids:
            pid, status = os.wait()
            pids.discard(pid)
            if status:
                break
        else:
            return 0
        for pid in pids:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return 1


sys.exit(main())
