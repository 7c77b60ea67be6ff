"""Shows what comes on standard input."""

import sys

print("read", sys.stdin.read().split(), flush=True)
