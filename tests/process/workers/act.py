"""A worker that does what its words say, in turn: `action[:value][@rank][#restart]`.

With UP set it makes the file $UP/<rank>.<restart> at the word `up`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

RANK = os.environ["RANK"]
RESTART = os.environ["TORCHELASTIC_RESTART_COUNT"]
IDLE = "import signal, time\n{}\nwhile True: time.sleep(100)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def number(name: str) -> int:
    return int(getattr(signal, f"SIG{name}"))


def note(text: str) -> None:
    with open(os.environ["UP"] + "/notes", "a") as file:
        file.write(f"{RANK} {text}\n")


def save(signum: int, frame: object) -> None:
    note("saved")
    sys.exit(0)


def daemon() -> None:
    """Double fork: out of the session, out of the parent's sight."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(100)
        os._exit(0)
    os.wait()


def forks(count: int) -> None:
    """Many orphans that end soon."""
    for _ in range(count):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def act(action: str, value: str) -> None:
    match action:
        case "up":
            (Path(os.environ["UP"]) / f"{RANK}.{RESTART}").touch()
        case "out":
            print(value, flush=True)
        case "lines":
            sys.stdout.write("".join(f"{RANK}#{i}#{'x' * 40}\n" for i in range(int(value))))
            sys.stdout.flush()
        case "err":
            print(value, file=sys.stderr, flush=True)
        case "work":
            time.sleep(float(value))
        case "idle":
            while True:
                time.sleep(100)
        case "busy":
            while True:
                pass
        case "exit":
            os._exit(int(value))
        case "raise":
            raise RuntimeError(value)
        case "kill":
            os.kill(os.getpid(), number(value))
        case "ignore":
            signal.signal(number(value), signal.SIG_IGN)
        case "count":
            for name in value.split(","):
                signal.signal(number(name), lambda s, f: note(signal.Signals(s).name))
        case "save":
            signal.signal(signal.SIGTERM, save)
        case "child":
            subprocess.Popen([sys.executable, "-c", IDLE.format(DEAF if value == "deaf" else "")])
        case "setsid":
            code = IDLE.format(DEAF if value == "deaf" else "")
            subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        case "daemon":
            daemon()
        case "forks":
            forks(int(value))
        case "write":
            Path(value).write_text(f"{RANK} {RESTART} {time.time()}")
        case "errorfile":
            Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text('{"message": "' + value + '"}')
        case _:
            raise ValueError(action)


for word in sys.argv[1:]:
    parsed = re.fullmatch(r"([a-z]+)(?::(.*?))?(?:@(\d+))?(?:#(\d+))?", word)
    assert parsed is not None, word
    action, value, rank, restart = parsed.groups()
    if rank in (None, RANK) and restart in (None, RESTART):
        act(action, value or "")
