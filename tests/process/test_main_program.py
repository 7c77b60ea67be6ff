"""A program that runs in an interpreter that was there already ends as in one of its own: code, texts, files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.conftest import TOP

INSIDE = """
import sys
sys.path[0] = sys.argv[1]
from elastic_run.supervisor import main_program
del sys.path[0]
for name in [name for name in sys.modules if name.startswith("elastic_run")]:
    del sys.modules[name]
main_program.run([sys.executable, "-u", "script.py"], frozenset(sys.modules))
"""

CRASHES = {
    "raises": "def f(): raise ValueError('text')\nf()",
    "says why": "import sys\nsys.exit('my text')",
    "number": "import sys\nsys.exit(300)",
    "syntax": "def",
    "import": "import no_such_module",
    "abort": "import os\nos.abort()",
    "interrupt": "raise KeyboardInterrupt",
    "system exit of a class": "raise SystemExit(ValueError('v'))",
    "hook": "import sys\nsys.excepthook = lambda *a: print('my hook', a[0].__name__, file=sys.stderr)\n1 / 0",
    "chained": "try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise KeyError('k') from e",
    "closed output": "import sys\nsys.stdout.close()",
    "interrupt with hooks": "import atexit\natexit.register(print, 'hook ran')\n"
    "f = open('left.txt', 'w')\nf.write('checkpoint')\nraise KeyboardInterrupt",
    "hook that exits": "import sys\nsys.excepthook = lambda *a: sys.exit(42)\n1 / 0",
    "hook that fails": "import sys\ndef hook(*a): raise KeyError('k')\nsys.excepthook = hook\n1 / 0",
    "no hook": "import sys\nsys.excepthook = None\n1 / 0",
    "deleted hook": "import sys\ndel sys.excepthook\n1 / 0",
    "last error": "import atexit, sys\natexit.register(lambda: print(sys.last_type, sys.last_value))\n1 / 0",
    "large number": "import sys\nsys.exit(2**64)",
    "no stderr": "import sys\nsys.stderr = None\nsys.exit('my text')",
    "handler that exits while a thread ends": "import atexit, os, signal, sys, threading, time\n"
    "atexit.register(print, 'hook ran')\nsignal.signal(15, lambda *a: sys.exit(0))\n"
    "def f():\n  time.sleep(0.3)\n  os.kill(os.getpid(), 15)\n  time.sleep(0.3)\n  print('saved')\n"
    "threading.Thread(target=f).start()",
    "objects": "class Own:\n  def __del__(self): print('gone')\nown = Own()\ndef main(): pass\nmain()",
    "zip file": "import atexit, zipfile\nz = zipfile.ZipFile('left.zip', 'w')\nz.writestr('a', 'b')\n"
    "def main(): pass\nmain()",
    "exit in atexit": "import atexit, os\natexit.register(lambda: os._exit(9))",
    "thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
}


def end(place: Path, command: list[str]) -> tuple[object, ...]:
    place.mkdir()
    (place / "script.py").write_text(place.with_suffix(".txt").read_text())
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=30)
    shown = re.sub(r"0x[0-9a-f]+|\d{15,}", "N", done.stderr.replace(str(place), "PLACE"))
    left = {path.name: path.stat().st_size for path in place.glob("left.*")}
    return done.returncode, done.stdout, shown.splitlines(), left


@pytest.mark.parametrize("name", CRASHES)
def test_every_end_is_the_same(tmp_path: Path, name: str) -> None:
    for way in ("alone", "inside"):
        (tmp_path / f"{way}.txt").write_text(CRASHES[name])
    alone = end(tmp_path / "alone", [sys.executable, "-u", "script.py"])
    inside = end(tmp_path / "inside", [sys.executable, "-u", "-c", INSIDE, str(TOP)])
    assert inside == alone
