"""Writes what a worker sees of its start into <directory>/<rank>.json."""

import json
import os
import signal
import sys
from pathlib import Path

seen = {
    "env": dict(os.environ),
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "name": __name__,
    "file": __file__,
    "path0": sys.path[0],
    "orig_argv": sys.orig_argv,
    "unbuffered": os.environ.get("PYTHONUNBUFFERED"),
    "write_through": getattr(sys.stdout, "write_through", None),
    "flags": str(sys.flags),
    "session_leader": os.getsid(0) == os.getpid(),
    "umask": os.umask(0o022),
    "ignored": [n for n in range(1, 32) if n not in (9, 19) and signal.getsignal(n) is signal.SIG_IGN],
    "main_in_modules": sys.modules["__main__"].__dict__ is globals(),
}
(Path(sys.argv[1]) / f"{os.environ.get('RANK', 'x')}.json").write_text(json.dumps(seen))
