"""A few collectives over gloo, with the group made by env:// or tcp://; argv[1] says which."""

import os
import sys

import torch
import torch.distributed as dist

if sys.argv[1] == "tcp":
    where = f"tcp://{os.environ['MASTER_ADDR']}:{int(sys.argv[2])}"
    dist.init_process_group(
        "gloo", init_method=where, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
else:
    dist.init_process_group("gloo")
x = torch.ones(3)
dist.all_reduce(x)
assert dist.is_torchelastic_launched()
sys.stdout.write(f"sum {int(x[0])} of {dist.get_world_size()}\n")  # one write: ranks share the console
dist.destroy_process_group()
