"""Hosts the workers' store (torch's TCPStore) on a socket that the launcher already listens on, until it is let go.

In a fork of the template, or exec'ed where that was lost: store_host.py LISTENING LIFE ADDRESS PORT.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn


def serve(listening: int, life: int, address: str, port: int) -> NoReturn:
    """`life`: a socket of the launcher's; our pid is told there, and end of file ends us."""
    from torch._C._distributed_c10d import TCPStore

    link = socket.socket(fileno=life)
    link.send(b"%d" % os.getpid())
    store = TCPStore(address, port, None, True, wait_for_workers=False, master_listen_fd=listening)
    link.recv(1)
    del store
    os._exit(0)


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # our own directory, whose modules are not meant for torch
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
