"""Trains a small language model on the Python standard library's own sources; survives restarts bit for bit.

    elastic-run --nproc-per-node 4 --max-restarts 3 examples/train_lm.py --steps 60 --checkpoint /tmp/ckpt

or with torchrun, or with plain python as a world of one. Every rank draws its batch from (seed, step, rank)
and the newest checkpoint is loaded at the start, so an interrupted run ends as an undisturbed one.
"""

from __future__ import annotations

import argparse
import math
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
from torch.optim import AdamW

VOCABULARY = 256  # bytes
CONTEXT = 64
WIDTH = 128
HEADS = 4
LAYERS = 5
CORPUS_BYTES = 2_000_000


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
        widened: Tensor = self.mlp(self.norm2(x))
        return x + widened


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
    # hash() of integers is the same in every process; mixed, as the generator takes only the low 32 bits.
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


def save(checkpoint: Path | None, step: int, loss: float, model: nn.Module, optimizer: AdamW) -> None:
    """Complete or not there at all: a new name, fsync, rename."""
    if checkpoint is None or dist.get_rank() != 0:
        return
    state = {"step": step, "loss": loss, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    new = checkpoint / f"new.{os.getpid()}"
    with new.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(checkpoint / "last.pt")


def die(how: str) -> None:
    if how.isdigit():
        os._exit(int(how))
    os.kill(os.getpid(), signal.Signals[how])


def train(args: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: stopping.append(signum))
    text, model = corpus(), LanguageModel()
    optimizer = AdamW(model.parameters(), lr=args.lr)
    state = load(args.checkpoint)
    first, mean = 0, math.nan
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, mean = state["step"], state["loss"]
        if rank == 0:
            print(f"resumed at step {first}", flush=True)
    wrapped = DistributedDataParallel(model)
    # In its first iteration DDP groups gradients otherwise than in later ones, so adds them in another order;
    # one iteration that changes nothing makes a resumed run add up the same numbers in the same order.
    wrapped(*batch(text, args.batch, args.seed, 0, rank)).backward()
    optimizer.zero_grad()

    logged, since = first, time.monotonic()
    for step in range(first + 1, args.steps + 1):
        loss = wrapped(*batch(text, args.batch, args.seed, step, rank))
        if step == args.die_at and rank == args.die_rank and first_life():
            die(args.die_with)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # The mean loss, and whether any rank was told to stop: all leave at the same step.
        shared = torch.tensor([loss.item(), float(bool(stopping))], dtype=torch.float64)
        dist.all_reduce(shared)
        mean = shared[0].item() / world
        if rank == 0 and step % args.log_every == 0:
            speed = (step - logged) * args.batch * CONTEXT * world / (time.monotonic() - since)
            print(f"step {step}/{args.steps} loss {mean:.4f} {speed:,.0f} tokens/s", flush=True)
            logged, since = step, time.monotonic()
        if shared[1] > 0 or step % args.save_every == 0 or step == args.steps:
            save(args.checkpoint, step, mean, model, optimizer)
        if shared[1] > 0:
            if rank == 0:
                saved = "saved" if args.checkpoint else "not saved, there is no --checkpoint"
                print(f"told to stop at step {step}: {saved}", flush=True)
            return
    if rank == 0:
        print(f"done: loss {mean!r} at step {max(first, args.steps)}", flush=True)


def first_life() -> bool:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def death(text: str) -> str:
    if text not in signal.Signals.__members__ and not (text.isdecimal() and 0 < int(text) < 256):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a signal like SIGKILL nor an exit code 1-255")
    return text


def directory(text: str) -> Path:
    """Made now, so that it is known at the start if it cannot be, and not at the first save."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot make {text} ({error.strerror}); name another") from error
    return path


def arguments() -> argparse.Namespace:
    own = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=own)
    parser.add_argument("--steps", type=positive, default=60)
    parser.add_argument("--batch", type=positive, default=8, help="sequences per rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-every", type=positive, default=10)
    parser.add_argument("--save-every", type=positive, default=10)
    parser.add_argument("--checkpoint", type=directory, help="directory; without it nothing is saved")
    parser.add_argument("--die-at", type=positive, metavar="STEP", help="demonstration: a rank dies in it")
    parser.add_argument("--die-rank", type=int, default=1, help="which; only in the first life of the job")
    parser.add_argument("--die-with", type=death, default="SIGKILL", help="a signal, or an exit code")
    args = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if args.die_at is not None and first_life() and not 0 <= args.die_rank < world:
        parser.error(f"argument --die-rank: there is no rank {args.die_rank} among {world}")
    return args


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
