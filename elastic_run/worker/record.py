"""record: a function's failure goes into the error file that the launcher reads, in torch's format."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
VARIABLE = "TORCHELASTIC_ERROR_FILE"


def record(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a script's entry point: what it raises is written to $TORCHELASTIC_ERROR_FILE and raised again.

    The format is torch's (torch.distributed.elastic.multiprocessing.errors), so either launcher understands it. An
    error that a nested call has written already is kept: it is nearer to the cause. SystemExit is no failure here;
    its code speaks for itself.
    """

    @functools.wraps(function)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            write_error(error)
            raise

    return recorded


def write_error(error: BaseException) -> None:
    """Write `error` to the error file if there is one and it is not written yet. Never raises OSError."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    said = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    try:
        with open(path, "x") as file:
            json.dump(said, file)
    except FileExistsError:
        return
    except OSError as problem:
        print(f"elastic-run: the error file cannot be written: {problem}", file=sys.stderr)
