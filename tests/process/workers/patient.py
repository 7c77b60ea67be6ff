"""In its first life it waits for a sign and dies; later it says whether torch was there before it."""

import os
import sys
import time

was_there = "torch" in sys.modules

import torch  # noqa: E402, F401

while os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.path.exists(sys.argv[1]):
        os._exit(5)
    time.sleep(0.01)
sys.stdout.write(f"{os.environ['RANK']} torch was there: {was_there}\n")
