"""A module to run with -m."""

import os
import sys

print(f"module rank {os.environ['RANK']} {sys.argv[1:]}")
