"""Starts the launcher that argv[1:] names inside a worker."""

import subprocess
import sys

done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print("inner", done.returncode, sorted(done.stdout.split()), flush=True)
sys.exit(done.returncode)
