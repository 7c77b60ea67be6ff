"""A training script as users of Hugging Face accelerate write it; prints the loss and the place of each process."""

import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    x = torch.randn(32, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for _ in range(3):
        for inputs, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    mean = accelerator.reduce(loss.detach(), "mean")
    sys.stdout.write(f"process {accelerator.process_index} of {accelerator.num_processes}: loss {mean.item():.6f}\n")
    accelerator.wait_for_everyone()
    # Else the group's threads live into the interpreter's end, where torch aborts at times, whoever launched it.
    accelerator.free_memory(model, optimizer, loader)
    del model, optimizer, loader
    accelerator.end_training()


main()
