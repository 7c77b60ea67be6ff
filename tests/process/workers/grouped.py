"""Two ranks form a group; in the first round they stay in it, in the next they end."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
place = os.path.dirname(sys.argv[1])
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with open(f"{place}/pid.{os.environ['RANK']}", "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(1)
dist.destroy_process_group()
