"""The worker with steps of DistributedDataParallel and an optimizer."""

from __future__ import annotations

from collections.abc import Callable

import torch
import worker
from torch.nn.parallel import DistributedDataParallel


def stepper() -> Callable[[], None]:
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(8, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


worker.main(stepper)
