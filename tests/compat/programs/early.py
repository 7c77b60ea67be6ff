"""Rank 0 leaves with 0 at once, the others a little later."""

import os
import time

if os.environ["RANK"] != "0":
    time.sleep(0.5)
print("bye", os.environ["RANK"], flush=True)
