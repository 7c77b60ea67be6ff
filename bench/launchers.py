"""The launchers that are compared: a command for each, and where the peers are installed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).parent.parent
PEERS = {
    "ft_launcher": ("nvidia-resiliency-ext", ".venv-ft"),
    "dlrover-run": ("dlrover", ".venv-dlrover"),
}
"""Package and environment of each; pynvml, which one of them brings, changes what `import torch` does."""

EXTRA = {"ft_launcher": ("--ignore-missing-fault-tol-cfg",), "dlrover-run": ("--standalone",)}


@dataclass(frozen=True)
class Launcher:
    """`words` come before the script; {n} and {restarts} are filled in."""

    name: str
    words: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    tee: tuple[str, ...] = ("--tee", "3")
    logs: bool = True
    """It takes --log-dir."""

    def argv(self, script: str, *args: str, n: int, restarts: int = 0, options: tuple[str, ...] = ()) -> list[str]:
        filled = [word.format(n=n, restarts=restarts) for word in self.words]
        return [*filled, *options, script, *args]


COUNTS = ("--nproc-per-node", "{n}", "--max-restarts", "{restarts}")
OURS = Launcher("elastic-run", (sys.executable, "-m", "elastic_run", *COUNTS))
COLD = Launcher("elastic-run, cold", (*OURS.words, "--workers", "cold"))
STANDBY = Launcher("elastic-run, standby", (*OURS.words, "--workers", "standby"))
TORCHRUN = Launcher("torchrun", (sys.executable, "-m", "torch.distributed.run", *COUNTS))
OWN_STORE = Launcher("torchrun, own store", TORCHRUN.words, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
"""Its default store is shared by all attempts, and restarted ranks often meet dead ones there."""


def peers() -> list[Launcher]:
    """Those that can be installed here, each in an environment of its own behind which is the present one."""
    found = []
    for name, (package, place) in PEERS.items():
        python = _environment(package, TOP / place)
        if python is not None:
            program = [str(python), str(python.parent / name)]
            found.append(Launcher(name, (*program, *EXTRA.get(name, ()), *COUNTS)))
    return found


def _environment(package: str, place: Path) -> Path | None:
    python = place / "bin/python"
    ready = place / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        here = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        (place / here / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [str(place / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
        if subprocess.run([*pip, package], cwd=TOP, check=False).returncode != 0:
            print(f"{package} cannot be installed here; it is left out", file=sys.stderr)
            return None
        ready.touch()
    return python
