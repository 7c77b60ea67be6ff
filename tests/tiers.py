"""Runs the suite tier by tier and prints the seconds of each; the first failing tier ends it with its code."""

import subprocess
import sys
import time
from pathlib import Path

TIERS = {
    "pure": [
        "tests/core",
        "tests/scenarios",
        "tests/plan",
        "tests/observe",
        "tests/rendezvous",
        "tests/test_architecture.py",
    ],
    "simulation": ["tests/sim"],
    "wire": ["tests/wire"],
    "command line": ["tests/cli"],
    "processes": ["tests/process"],
    "spike": ["tests/spike"],
    "compatibility": ["tests/compat"],
}
SLOW = ("spike", "compatibility")
"""Only with --slow, as in CI."""
TOP = Path(__file__).parent.parent


def main() -> int:
    seconds = {}
    for tier, paths in TIERS.items():
        if tier in SLOW and "--slow" not in sys.argv:
            continue
        began = time.monotonic()
        code = subprocess.call([sys.executable, "-m", "pytest", "-q", *paths], cwd=TOP)
        seconds[tier] = time.monotonic() - began
        if code != 0:
            print(f"tier {tier} failed")
            return code
    print("seconds: " + ", ".join(f"{tier} {took:.0f}" for tier, took in seconds.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
