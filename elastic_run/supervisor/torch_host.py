"""A child with torch, exec'ed by file path: does for the launcher, which never imports torch, what needs it.

Here: torchrun's plug-ins (entry point `torchrun.logs_specs`, event-log handlers). One request, one answer; end of file
means that the launcher is gone. The launcher's side is plugins.py.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import Any

sys.path[:] = [*sys.path[1:], os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]

from elastic_run.supervisor.link import receive, send  # noqa: E402 - found through the line above


class Plugins:
    """torch.distributed.run's own use of its plug-ins (`_get_logs_specs_class`, `events.record`)."""

    specs: Any = None
    handler = "null"

    def begin(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Find what is asked for by name, so that a wrong name is told before anything starts."""
        from torch.distributed.elastic.events.handlers import get_logging_handler
        from torch.distributed.elastic.multiprocessing import Std

        self.handler = asked["event_log_handler"]
        try:
            get_logging_handler(self.handler)
        except KeyError:
            return {"error": f"--event-log-handler {self.handler}: torch knows no such handler; console and null are"}
        if asked["logs_specs"] is not None:
            (found,) = entry_points(group="torchrun.logs_specs", name=asked["logs_specs"])
            ranks = asked["local_ranks_filter"]
            self.specs = found.load()(
                log_dir=asked["log_dir"],
                redirects=Std.from_str(asked["redirects"]),
                tee=Std.from_str(asked["tee"]),
                local_ranks_filter=set(ranks) if ranks is not None else None,
            )
        return {"error": ""}

    def reify(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Where the output of each local rank goes in the attempt that begins."""
        envs = {int(rank): env for rank, env in asked["envs"].items()}
        found = asdict(self.specs.reify(envs))
        names = ("stdouts", "stderrs", "tee_stdouts", "tee_stderrs", "error_files")
        return {name: {str(rank): str(path or "") for rank, path in found[name].items()} for name in names}

    def record(self, asked: dict[str, Any]) -> dict[str, Any]:
        from torch.distributed.elastic.events import record
        from torch.distributed.elastic.events.api import Event, EventSource

        record(Event(asked["name"], EventSource[asked["source"]], asked["timestamp"], asked["metadata"]), self.handler)
        return {}


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    os.dup2(2, 1)  # what plug-ins print belongs on our stderr
    plugins = Plugins()
    while (asked := receive(link)[0]) is not None:
        try:
            answer = getattr(plugins, asked["do"])(asked)
        except Exception as error:  # a plug-in is foreign code: its failure is an answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        send(link, answer)


if __name__ == "__main__":
    main()
