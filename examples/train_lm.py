"""Trains a small language model on the Python standard library's own sources; survives restarts bit for bit.

    elastic-run --nproc-per-node 4 --max-restarts 3 examples/train_lm.py --steps 60 --checkpoint /tmp/ckpt

Every rank draws its batch from (seed, step, rank) and the newest checkpoint is loaded at the start, so a run that was
interrupted ends with the loss of one that was not.
"""

from __future__ import annotations

import argparse
import os
import signal
import sysconfig
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 256  # bytes
CONTEXT = 96
WIDTH = 128
HEADS = 4
LAYERS = 3
CORPUS_BYTES = 4_000_000


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def corpus() -> Tensor:
    """The first few megabytes of the standard library, in the order of file names."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= CORPUS_BYTES:
            break
    return torch.frombuffer(text, dtype=torch.uint8).long()


def batch(text: Tensor, size: int, seed: int, step: int, rank: int) -> tuple[Tensor, Tensor]:
    """A function of (seed, step, rank) alone: a restarted rank sees what it would have seen."""
    dice = torch.Generator().manual_seed(hash((seed, step, rank)))
    starts = torch.randint(len(text) - CONTEXT - 1, (size,), generator=dice).tolist()
    rows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def load(checkpoint: Path | None) -> dict[str, Any] | None:
    """The checkpoint that rank 0 finds, on every rank."""
    found = None
    if dist.get_rank() == 0 and checkpoint is not None and (checkpoint / "last.pt").exists():
        found = torch.load(checkpoint / "last.pt", weights_only=True)
    told = [found]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def save(checkpoint: Path | None, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Complete or not there at all: a new name, fsync, rename."""
    if checkpoint is None or dist.get_rank() != 0:
        return
    checkpoint.mkdir(parents=True, exist_ok=True)
    new = checkpoint / f"new.{os.getpid()}"
    with new.open("wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(checkpoint / "last.pt")


def die(how: str) -> None:
    """For demonstrations, and only in the first life."""
    if how.isdigit():
        os._exit(int(how))
    os.kill(os.getpid(), getattr(signal, how))


def train(args: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    text, model = corpus(), LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    state = load(args.checkpoint)
    first = 0
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        if rank == 0:
            print(f"resumed at step {first}", flush=True)
    wrapped = DistributedDataParallel(model)
    # DDP sums gradients in other groups in its first iteration than in later ones, so in another order; one iteration
    # that changes nothing makes a resumed run add up the same numbers in the same order.
    wrapped(*batch(text, args.batch, args.seed, 0, rank)).backward()
    optimizer.zero_grad()

    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: stopping.append(signum))
    mean, logged, since = 0.0, first, time.monotonic()
    for step in range(first + 1, args.steps + 1):
        loss = wrapped(*batch(text, args.batch, args.seed, step, rank))
        if step == args.die_at and rank == args.die_rank and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            die(args.die_with)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shared = torch.tensor([loss.item(), float(bool(stopping))], dtype=torch.float64)
        dist.all_reduce(shared)  # the mean loss, and whether any rank was told to stop: all leave at the same step
        mean = shared[0].item() / world
        if rank == 0 and step % args.log_every == 0:
            speed = (step - logged) * args.batch * CONTEXT * world / (time.monotonic() - since)
            print(f"step {step}/{args.steps} loss {mean:.4f} {speed:,.0f} tokens/s", flush=True)
            logged, since = step, time.monotonic()
        if shared[1] > 0 or step % args.save_every == 0 or step == args.steps:
            save(args.checkpoint, step, model, optimizer)
        if shared[1] > 0:
            if rank == 0:
                print(f"told to stop: saved at step {step}", flush=True)
            return
    if rank == 0 and first < args.steps:
        print(f"done: loss {mean!r} at step {args.steps}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8, help="sequences per rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, help="directory; without it nothing is saved")
    parser.add_argument("--die-at", type=int, metavar="STEP", help="demonstration: a rank dies in this step")
    parser.add_argument("--die-rank", type=int, default=1)
    parser.add_argument("--die-with", default="SIGKILL", help="a signal, or an exit code")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    if "RANK" not in os.environ:  # plain python: a world of one
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo")
    try:
        train(args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
