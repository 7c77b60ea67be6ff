"""A worker that does what its words say, in turn: `action[:value][@rank][#restart]`.

With UP set it makes the file $UP/<rank>.<restart> at the word `up`, with the place of the job's scratch directory.
"""

from __future__ import annotations

import json
import multiprocessing
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


def sign(text: str, name: str) -> None:
    """A file that appears with all its content."""
    path = Path(os.environ["UP"]) / name
    new = path.with_name(f"new-{name}")
    new.write_text(text)
    new.rename(path)


def note(text: str) -> None:
    with open(os.environ["UP"] + "/notes", "a") as file:
        file.write(f"{RANK} {text}\n")


def save(signum: int, frame: object) -> None:
    note("saved")
    sys.exit(0)


def fail(signum: int, frame: object) -> None:
    raise OSError("cannot save")


def idle() -> None:
    while True:
        time.sleep(100)


def child(value: str, *words: str, **popen: object) -> None:
    code = IDLE.format(DEAF if value == "deaf" else "")
    subprocess.Popen([sys.executable, "-c", code, *words], **popen)  # type: ignore[call-overload]


def daemon() -> None:
    """Double fork: out of the session, out of the parent's sight."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            idle()
        os._exit(0)
    os.wait()


def respawn() -> None:
    """A process that is always another one: it forks, and the parent ends, out of every session."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            os.setsid()
            time.sleep(0.02)
            if os.fork():
                os._exit(0)


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


def timer(seconds: float) -> None:
    """As torch's FileTimerClient does it; negative seconds release."""
    expires = time.time() + seconds if seconds > 0 else -1
    said = {"version": 1, "pid": os.getpid(), "scope_id": "step", "expiration_time": expires, "signal": 9}
    with open(os.environ["TORCHELASTIC_TIMER_FILE"], "a") as fifo:
        fifo.write(json.dumps(said) + "\n")


def block() -> None:
    """Uninterruptible sleep until somebody opens the other end of a FIFO: a child born by vfork waits for that."""
    fifo = f"{os.environ['ELASTIC_RUN_SCRATCH']}/{RANK}.fifo"
    os.mkfifo(fifo)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def act(action: str, value: str) -> None:
    match action:
        case "up":
            sign(os.environ["ELASTIC_RUN_SCRATCH"], f"{RANK}.{RESTART}")
        case "sign":
            sign("", f"{value}-{RANK}")
        case "env":
            sign(json.dumps(dict(os.environ)), f"env-{RANK}-{RESTART}")
        case "out":
            print(value, flush=True)
        case "lines":
            for i in range(int(value)):  # one write each, as from print under python -u
                os.write(1, f"{RANK}#{i}#{'x' * 40}\n".encode())
        case "long":
            for i in range(int(value)):
                os.write(1, f"{RANK}#{i}#{chr(97 + i) * (1 << 20)}\n".encode())
        case "bytes":
            os.write(1, bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"") + b"\n")
        case "open":
            os.write(1, value.encode())
        case "fail":
            signal.signal(signal.SIGTERM, fail)
        case "err":
            print(value, file=sys.stderr, flush=True)
        case "work":
            time.sleep(float(value))
        case "until":
            while not Path(os.environ["UP"], value).exists():
                time.sleep(0.01)
        case "idle":
            idle()
        case "timer":
            timer(float(value))
        case "block":
            block()
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
            child(value)
        case "setsid":
            child(value, start_new_session=True)
        case "bare":  # nothing in its environment tells whose it is, but it stays in the worker's session
            child("deaf", os.environ["LIVES_FOR"], env={})
        case "daemon":
            daemon()
        case "loader":
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                context.Process(target=context.Queue().get, daemon=True).start()
        case "respawn":
            respawn()
        case "forks":
            forks(int(value))
        case "write":
            Path(value).write_text(f"{RANK} {RESTART} {time.time()}")
        case "errorfile":
            Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(value)
        case "errordir":
            Path(os.environ["TORCHELASTIC_ERROR_FILE"]).mkdir()
        case "sweep":  # as a cleaner of old temporary files does
            os.rmdir(os.environ["ELASTIC_RUN_SCRATCH"])
        case _:
            raise ValueError(action)


if __name__ == "__main__":
    for word in sys.argv[1:]:
        parsed = re.fullmatch(r"([a-z]+)(?::(.*?))?(?:@(\d+))?(?:#(\d+))?", word)
        assert parsed is not None, word
        action, value, rank, restart = parsed.groups()
        if rank in (None, RANK) and restart in (None, RESTART):
            act(action, value or "")
