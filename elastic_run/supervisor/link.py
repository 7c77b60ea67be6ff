"""Messages between the launcher and the children that serve it: JSON and descriptors over a socketpair. Stdlib only."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

MOST_FDS = 253
"""In one message (SCM_MAX_FD); what there is no room for the kernel drops, and says so in a flag only."""


def send(link: socket.socket, message: dict[str, Any], fds: list[int] | None = None) -> None:
    """A message is a length of 8 hex digits and JSON; descriptors ride on its first byte."""
    data = json.dumps(message).encode()
    frame = b"%08x" % len(data) + data
    sent = socket.send_fds(link, [frame], fds) if fds else link.send(frame)
    if sent < len(frame):
        link.sendall(frame[sent:])


def receive(link: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message and its descriptors; None at end of file."""
    try:
        head, fds, _, _ = socket.recv_fds(link, 8, MOST_FDS)
        for fd in fds:
            os.set_inheritable(fd, False)
        while 0 < len(head) < 8:
            head += link.recv(8 - len(head)) or b"0" * 8
        data, left = [], int(head or b"0", 16)
        while left and (chunk := link.recv(min(left, 1 << 20))):
            data.append(chunk)
            left -= len(chunk)
    except ConnectionResetError:
        return None, []
    if not head or left:
        return None, fds
    message: dict[str, Any] = json.loads(b"".join(data))
    return message, fds
