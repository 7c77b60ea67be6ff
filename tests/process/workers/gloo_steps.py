"""Twenty all-reduces over gloo; in the first life rank R dies in step S, given as `R:S`."""

import os
import signal
import sys

import torch
import torch.distributed as dist

rank, at = map(int, sys.argv[1].split(":"))
dist.init_process_group("gloo")
for step in range(20):
    x = torch.ones(1000)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == rank and step == at:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)
    assert int(x[0]) == dist.get_world_size()
dist.destroy_process_group()
