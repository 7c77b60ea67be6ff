"""One rank of `elastic_run.launch(function, …)`, run by file path: calls the function and keeps its result.

The directory in argv[1] belongs to the caller alone (0700); what is unpickled here is what the caller put there.
"""

from __future__ import annotations

import json
import os
import pickle
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAIN = "__mp_main__"
"""Name under which the caller's script is run again, as multiprocessing's spawn does."""


def main(place: Path) -> None:
    call = json.loads((place / "call.json").read_text())
    sys.path[:] = call["path"]
    sys.argv[:] = call["argv"]
    from elastic_run.worker.record import record

    record(_run)(call, place)


def _run(call: dict[str, Any], place: Path) -> None:
    rank = os.environ["RANK"]
    (place / f"{rank}.began").touch()
    os.environ["ELASTIC_RUN_CALL"] = "1"  # a program that launches again while it is imported is told so
    function = _find(call)
    del os.environ["ELASTIC_RUN_CALL"]
    args, kwargs = pickle.loads((place / "arguments").read_bytes())
    result = function(*args, **kwargs)
    new = place / f"{rank}.{os.getpid()}"
    new.write_bytes(pickle.dumps(result))
    new.rename(place / f"{rank}.result")


def _find(call: dict[str, Any]) -> Callable[..., Any]:
    if call["module"] == "__main__":
        module = types.ModuleType(MAIN)
        sys.modules["__main__"] = sys.modules[MAIN] = module
        if call["script"]:
            module.__dict__.update(runpy.run_path(call["script"], run_name=MAIN))
        else:
            module.__dict__.update(runpy.run_module(call["as_module"], run_name=MAIN, alter_sys=True))
    else:
        __import__(call["module"])
        module = sys.modules[call["module"]]
    found: Any = module
    for name in call["name"].split("."):
        found = getattr(found, name)
    function: Callable[..., Any] = found
    return function


if __name__ == "__main__":
    main(Path(sys.argv[1]))
