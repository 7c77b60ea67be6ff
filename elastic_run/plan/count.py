"""How many ranks `--nproc-per-node` means on this machine, without importing torch where the answer lies elsewhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from elastic_run.errors import ConfigError

MOST = 10_000
"""Ranks of one machine; more are a slip of the finger."""
FLAG = "--nproc-per-node"
ASK_TORCH = "import torch; a = torch.accelerator; print(a.device_count() if a.is_available() else 0)"
ASK_TORCH_XPU = "import torch; print(torch.xpu.device_count() if torch.xpu.is_available() else 0)"
ASK_WAIT = 120.0
DEVICE_FILES = {"npu": "davinci[0-9]*", "gpu": "nvidia[0-9]*"}
VISIBLE = {"npu": "ASCEND_RT_VISIBLE_DEVICES", "gpu": "CUDA_VISIBLE_DEVICES"}


def count(wanted: str, environ: Mapping[str, str], interpreter: str, dev: Path = Path("/dev")) -> int:
    """Ranks for `N`, `cpu`, `gpu`, `npu`, `xpu` or `auto`.

    Raises:
        ConfigError: no such device is here, or the word means nothing.
    """
    if wanted.isdigit() and int(wanted) > MOST:
        raise ConfigError(f"{FLAG} {wanted}: more than {MOST} ranks on one machine; is a digit too many there?")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    match wanted:
        case "cpu":
            return len(os.sched_getaffinity(0))
        case "gpu" | "npu":
            found = _devices(wanted, environ, dev) or (_ask(ASK_TORCH, interpreter) if _unknown(dev) else 0)
        case "xpu":
            found = _ask(ASK_TORCH_XPU, interpreter)
        case "auto":
            known = _devices("npu", environ, dev) or _devices("gpu", environ, dev)
            return known or (_ask(ASK_TORCH, interpreter) if _unknown(dev) else 0) or len(os.sched_getaffinity(0))
        case _:
            raise ConfigError(f"{FLAG} {wanted}: write a number of 1 or more, or auto, cpu, gpu, npu or xpu")
    if found == 0:
        raise ConfigError(f"{FLAG} {wanted}: there is no such device here; write a number, or cpu")
    return found


def _devices(kind: str, environ: Mapping[str, str], dev: Path) -> int:
    """Device files, or as many of them as the visible-device variable lets through."""
    present = sum(
        1 for path in dev.glob(DEVICE_FILES[kind]) if path.name.lstrip("abcdefghijklmnopqrstuvwxyz").isdigit()
    )
    visible = environ.get(VISIBLE[kind])
    if visible is None:
        return present
    named = [entry.strip() for entry in visible.split(",") if entry.strip() and entry.strip() != "-1"]
    return min(present, sum(_span(entry) for entry in named))


def _span(entry: str) -> int:
    """Devices that one entry names: Ascend allows ranges such as 0-3; anything else is one device."""
    first, dash, last = entry.partition("-")
    return int(last) - int(first) + 1 if dash and first.isdigit() and last.isdigit() else 1


def _unknown(dev: Path) -> bool:
    """Whether an accelerator may be here that only torch knows: ROCm's or Intel's device files."""
    return (dev / "kfd").exists() or any(dev.glob("dri/renderD*")) or any(dev.glob("accel/accel*"))


def _ask(question: str, interpreter: str) -> int:
    """Let a child with torch answer; the launcher itself never imports it."""
    asked = subprocess.run([interpreter, "-c", question], capture_output=True, text=True, timeout=ASK_WAIT, check=False)
    answer = asked.stdout.strip()
    return int(answer) if asked.returncode == 0 and answer.isdigit() else 0
