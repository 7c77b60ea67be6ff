"""Runs a program in an interpreter that runs already, as `python -u program` would in a new one. Stdlib only.

Not here: what the process needs before it (forked.py). Source: CPython's Modules/main.c and Lib/runpy.py.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import gc
import io
import os
import runpy
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

INTERRUPTED = 1 << 8 | 130
"""In place of an exit code: the end is that of SIGINT, once all is done."""
FLAGS = 2
"""Words before the program: the interpreter and -u."""


def run(argv: Sequence[str], modules: frozenset[str]) -> NoReturn:
    """Be the process that `argv` would start, to its exit; `modules` are those that were there before it."""
    _leave(_code_of(lambda: _start(argv)), modules)


def rename(argv: Sequence[str]) -> None:
    """Show `argv` in /proc/PID/cmdline, so far as our own first words left room for it."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    start, end = int(fields[45]), int(fields[46])
    room = end - start
    words = b"\0".join(os.fsencode(word) for word in argv)[: room - 1]
    ctypes.memmove(start, words.ljust(room, b"\0"), room)


def _start(argv: Sequence[str]) -> None:
    words = list(argv[FLAGS:])
    sys.orig_argv = list(argv)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        _put_on_path(os.getcwd())
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # what the interpreter itself calls
        return
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        _put_on_path("")
        code = compile(words[1], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv = words
        path = os.path.abspath(words[0])
        _put_on_path(os.path.dirname(os.path.realpath(path)))
        main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _put_on_path(place: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, place)


def _code_of(start: Callable[[], None]) -> int:
    """The exit code that the interpreter gives to what `start` does; an error is shown without our own frames."""
    failed: BaseException | None = None
    try:
        start()
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as error:
        failed = error  # shown below: what fails there is no consequence of it
    if failed is None:
        return 0
    code = _show(failed)
    return INTERRUPTED if isinstance(failed, KeyboardInterrupt) else code


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF if abs(stop.code) < 1 << 63 else 255
    _flush(sys.stdout)
    if sys.stderr is None:
        os.write(2, f"{stop.code}\n".encode(errors="backslashreplace"))
    else:
        print(stop.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> int:
    """Through the program's hook, with the exit code that follows: a hook may itself exit."""
    trace = _foreign(error)
    _flush(sys.stdout)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    if not hasattr(sys, "excepthook"):
        print("sys.excepthook is missing", file=sys.stderr)
        sys.excepthook = sys.__excepthook__
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as worse:  # as the interpreter does: the hook's own failure, then what it was to show
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(worse), worse, _foreign(worse))
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, trace)
    return 1


def _foreign(error: BaseException) -> types.TracebackType | None:
    """Its traceback without our own frames, from now on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    error.__traceback__ = trace
    return trace


def _leave(code: int, modules: frozenset[str]) -> NoReturn:
    """As the interpreter does at its end, without tearing down what was there before the program: that costs 0.4 s."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    except BaseException as error:  # of a signal's handler; the interpreter shows it and goes on
        _foreign(error)
        print("Exception ignored in:", threading, file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()
    _end_handlers()
    if not all([_flush(sys.stdout), _flush(sys.stderr)]):
        code = code or 120
    _let_go(modules)
    ctypes.CDLL(None).fflush(None)
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _end_handlers() -> None:
    """From here on the interpreter runs no handler of the program's any more, and the signal ends nothing."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, _nothing)


def _nothing(signum: int, frame: object) -> None:
    """In place of a handler of the program's."""


def _let_go(modules: frozenset[str]) -> None:
    """Destroy the program's own objects: files that it left open are written, `__del__` runs.

    Daemon threads may still run and find things gone; in an interpreter that ends they would be stopped.
    """
    threading.excepthook = _silent
    main = sys.modules.pop("__main__")
    sys.last_type = sys.last_value = sys.last_traceback = sys.last_exc = None  # type: ignore[attr-defined]
    _close_files(main)
    _flush_all()  # the collector may close what lies under a text file before the file itself is written
    own = [sys.modules.pop(name) for name in list(sys.modules) if name not in modules]
    held = [weakref.ref(module) for module in (main, *reversed(own)) if isinstance(module, types.ModuleType)]
    del main, own
    gc.collect()
    for module in held:  # as in the interpreter: only what somebody still holds is emptied
        names = getattr(module(), "__dict__", {})
        for name in names.keys() - {"__builtins__", "__name__"}:
            names[name] = None
    _flush_all()


def _close_files(main: types.ModuleType) -> None:
    """In a function of its own: a value that is still named when the collector runs keeps all that it knows alive."""
    for value in list(main.__dict__.values()):
        if isinstance(value, io.IOBase) and value not in (sys.stdin, sys.stdout, sys.stderr):
            _closed(value)


def _flush_all() -> None:
    for thing in gc.get_objects():
        if type(thing) in (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper):
            _flush(thing)


def _closed(file: io.IOBase) -> None:
    try:
        file.close()
    except Exception:
        pass  # as in _flush


def _silent(args: object) -> None:
    """Nobody wants to read how a daemon thread failed in a program that has ended."""


def _flush(stream: Any) -> bool:
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except Exception:  # a full disk, a closed pipe, a stream of the user's own: the program has ended
        return False
    return True
