"""launch(): a job from Python. The supervisor runs in an interpreter of its own, so nothing changes in the caller."""

from __future__ import annotations

import codecs
import io
import json
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from elastic_run.errors import ConfigError, WorkersFailed

PARENT_FD = "ELASTIC_RUN_PARENT_FD"
"""Variable that tells the launcher which descriptor ends with its caller."""
CALLING = "ELASTIC_RUN_CALL"
"""Set by a worker while it imports the caller's program."""
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from elastic_run.cli import main; main()"
CALL = Path(__file__).parent / "worker" / "call.py"


def launch(
    target: Callable[..., Any] | str | os.PathLike[str],
    *args: Any,
    kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> list[Any]:
    """Run a function or a script in several ranks, and wait for the end.

    Args:
        target: a function that can be imported by name (one of the `__main__` script is found by running that script
            again as `__mp_main__`, as multiprocessing's spawn does), or the path of a script.
        args: positional arguments of the function (pickled), or words for the script.
        kwargs: keyword arguments of the function.
        options: options of the command line, with underscores: `nproc_per_node=4`, `max_restarts=3`, `tee="3"`. True
            stands for a flag without value; None and False leave the option out.

    Returns:
        Results of the function by local rank; an empty list for a script.

    Raises:
        ConfigError: an option is wrong, or the function cannot be imported; nothing was started.
        WorkersFailed: the job failed; carries the exit code and the first failure.

    May be called from any thread. When this process ends, the job does too.
    """
    if os.environ.get(CALLING) and "__mp_main__" in sys.modules:
        what = "launch() was called while a worker imported this program to find its function"
        raise ConfigError(f"{what}; put the call under `if __name__ == '__main__':`")
    with tempfile.TemporaryDirectory(prefix="elastic-run-call-") as name:
        place = Path(name)
        if callable(target):
            _write_call(place, target, args, kwargs or {})
            words = [str(CALL), str(place)]
        else:
            words = [os.fspath(target), *map(str, args)]
        code, said = _run([*_flags(options), "--summary-file", str(place / "summary.json"), "--", *words])
        if code == 2 and not (place / "summary.json").exists():
            raise ConfigError(said.strip().splitlines()[-1].removeprefix("elastic-run: ") if said.strip() else "usage")
        if code != 0:
            raise _failure(code, place)
        return _results(place) if callable(target) else []


def _flags(options: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags.append(f"{flag}={value}")
    return flags


def _write_call(place: Path, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    main = sys.modules["__main__"]
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if script is not None and not os.path.isfile(script):
        script = None  # `<stdin>`
    if not name or "<" in name or module is None:
        raise ConfigError(f"{name or function!r} cannot be imported by name; define it at the top of a module")
    if not isinstance(getattr(function, "__self__", None), type | types.NoneType | types.ModuleType):
        raise ConfigError(f"{name} is bound to an object, which would be lost; pass the object to a function")
    if module == "__main__" and script is None:
        raise ConfigError(f"{name} lives in a session without a file; put it into a module that can be imported")
    call = {
        "module": module,
        "name": name,
        "script": None if spec is not None else script and os.path.abspath(script),
        "as_module": spec.name if spec is not None else None,
        "path": [os.path.abspath(entry) for entry in sys.path],
        "argv": sys.argv,
    }
    (place / "call.json").write_text(json.dumps(call))
    try:
        (place / "arguments").write_bytes(pickle.dumps((args, kwargs)))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(f"the arguments of {name} cannot be pickled: {error}") from error


def _run(words: list[str]) -> tuple[int, str]:
    """The launcher's exit code and the end of what it said on stderr."""
    ours, its = os.pipe()
    own_stdout = _descriptor(sys.stdout)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", START, str(Path(__file__).parent.parent), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if own_stdout is None else own_stdout,
            stderr=subprocess.PIPE,
            pass_fds=(ours,),
            env={**os.environ, PARENT_FD: str(ours)},
        ) as launcher:
            said = _pass_on(launcher)
        return launcher.returncode, said
    finally:
        os.close(its)  # had we died, the closing of this end would have told the launcher so
        os.close(ours)


def _descriptor(stream: TextIO) -> int | None:
    """The file behind a stream; None where there is none, as in a notebook."""
    try:
        stream.flush()
        return stream.fileno()
    except (io.UnsupportedOperation, AttributeError, ValueError):
        return None


def _pass_on(launcher: subprocess.Popen[bytes]) -> str:
    """Show the launcher's output as it comes. An interrupt reaches it as well, and it ends in its own way."""
    tail = b""
    with selectors.DefaultSelector() as selector:
        for source, sink in ((launcher.stdout, sys.stdout), (launcher.stderr, sys.stderr)):
            if source is not None:
                decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
                selector.register(source, selectors.EVENT_READ, (sink, decoder))
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 16)
                sink, decoder = key.data
                sink.write(decoder.decode(data, final=not data))
                sink.flush()
                if not data:
                    selector.unregister(key.fileobj)
                if sink is sys.stderr:
                    tail = (tail + data)[-4096:]
    return tail.decode(errors="replace")


def _failure(code: int, place: Path) -> WorkersFailed:
    try:
        summary = json.loads((place / "summary.json").read_text())
    except (OSError, ValueError):
        return WorkersFailed(f"the launcher ended with {code} without saying why", code)
    culprit = summary.get("culprit") or {}
    return WorkersFailed(summary["because"], code, culprit.get("rank"), culprit.get("error"), culprit.get("tail", ""))


def _results(place: Path) -> list[Any]:
    """By local rank; None of one that exited 0 by itself."""
    found = {int(path.stem): path for path in place.glob("*.result")}
    ranks = {int(path.stem) for path in place.glob("*.began")}
    return [pickle.loads(found[rank].read_bytes()) if rank in found else None for rank in sorted(ranks | {*found})]
