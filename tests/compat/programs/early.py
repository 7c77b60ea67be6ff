"""Rank 0 leaves with 0 at once, the others a little later."""

import os
import sys
import time

if os.environ["RANK"] != "0":
    time.sleep(0.5)
sys.stdout.write(f"bye {os.environ['RANK']}\n")  # one write: ranks share the console
