"""What is launched: tells by time stamps how far it is, takes steps together with its peers, dies where it is told to.

Words: `empty` or `steps`; then step=SECONDS, steps=N, die=RANK@SECONDS (in the first attempt).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

RANK, RESTART = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
EVENTS = os.open(os.environ["BENCH_EVENTS"], os.O_WRONLY | os.O_APPEND)


def tell(event: str) -> None:
    os.write(EVENTS, f"{event} {time.monotonic():.6f} {RANK} {RESTART} {os.getpid()}\n".encode())


def main(make_step: Callable[[], Callable[[], object]] | None = None) -> None:
    tell("line")
    if sys.argv[1] == "empty":
        return
    given = dict(word.split("=", 1) for word in sys.argv[2:])
    import torch
    import torch.distributed as dist

    tell("torch")
    dist.init_process_group("gloo")
    tell("group")
    value = torch.ones(1024)
    step = make_step() if make_step is not None else lambda: dist.all_reduce(value)
    rank, at = (float(x) for x in given.get("die", "-1@0").split("@"))
    began = time.monotonic()
    for number in range(int(given.get("steps", "10"))):
        if rank == RANK and RESTART == 0 and time.monotonic() - began >= at:
            tell("dies")
            os._exit(1)
        step()
        tell("step" if number else "first")
        time.sleep(float(given.get("step", "0.02")))
    tell("done")


if __name__ == "__main__":
    main()
