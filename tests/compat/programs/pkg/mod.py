"""A module to run with -m."""

import os
import sys

sys.stdout.write(f"module rank {os.environ['RANK']} {sys.argv[1:]}\n")
