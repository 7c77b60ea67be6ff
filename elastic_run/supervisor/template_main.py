"""The template, exec'ed by file path: imports what workers import, then becomes workers: many by fork, or one itself.

One thread. What it imports is the only thing that workers find done; the launcher's side is template.py.
"""

from __future__ import annotations

import gc
import glob
import importlib
import os
import select
import signal
import site
import socket
import sys
import threading
from typing import Any, NoReturn

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if getattr(sys.flags, "safe_path", False):
    sys.path.insert(0, TOP)  # there is no directory of the script's in the first place
else:
    sys.path[0] = TOP

from elastic_run.supervisor import forked, main_program, orphans, store_host  # noqa: E402 - found through the line above
from elastic_run.supervisor.link import receive, send  # noqa: E402

QUIET = 3.0
"""Seconds without a start after which what only later starts need is imported."""
DEVICES = ("/dev/davinci", "/dev/devmm", "/dev/hisi", "/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel")

TORCHS_CONSTANT = 67280421310721
"""The seed with which other versions of torch begin (default_rng_seed_val in ATen/core/Generator.h)."""


class Refused(Exception):
    """Why no worker may come from this process."""


class Template:
    def __init__(self, link: socket.socket, launcher: int, place: str, once: bool) -> None:
        self.link, self.launcher, self.place, self.once = link, launcher, place, once
        link.set_inheritable(False)

    def serve(self, first: list[str], later: list[str]) -> None:
        why = customised() or self.prepare(first)
        send(self.link, {"ready": not why, "why": why})
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        while True:
            if later and not poll.poll(QUIET * 1000):
                send(self.link, {"busy": later[0]})
                self.prepare([later.pop(0)])
                send(self.link, {"ready": True})
                continue
            request, fds = receive(self.link)
            if request is None:
                return
            self.obey(request, fds)

    def prepare(self, names: list[str]) -> str:
        """Import; in words why that is no use to a worker, if so.

        What is imported stays for ever: a collector that looks through it again and again costs a tenth of the time.
        """
        gc.disable()
        name = ""
        try:
            for name in names:
                self.load(name)
            shadows = self.shadows()
        except BaseException as error:  # a worker that imports the same will say it in its own way
            return f"{name} cannot be imported ({type(error).__name__}: {error})"
        finally:
            gc.freeze()
            gc.enable()
        if shadows:
            return f"{', '.join(sorted(shadows))} in {self.place} has the name of a module that is loaded already"
        return ""

    def load(self, name: str) -> None:
        """What the user names is found beside the program too; torch is not to be disturbed by what lies there."""
        beside = name.partition(".")[0] != "torch" and not getattr(sys.flags, "safe_path", False)
        if beside:
            sys.path.insert(0, self.place)
        try:
            importlib.import_module(name)
        finally:
            if beside and self.place in sys.path:
                sys.path.remove(self.place)

    def shadows(self) -> set[str]:
        """Modules beside the program that it would get instead of those that were loaded here."""
        try:
            beside = {entry.partition(".")[0] for entry in os.listdir(self.place) if entry.endswith((".py", ".so"))}
            beside |= {entry for entry in os.listdir(self.place) if os.path.isdir(f"{self.place}/{entry}")}
        except OSError:
            return set()
        loaded = {name for name, module in sys.modules.items() if "." not in name and self.elsewhere(module)}
        return beside & loaded

    def elsewhere(self, module: Any) -> bool:
        """Whether a loaded module comes from another place than the program's directory."""
        path = getattr(module, "__file__", None) or ""
        return not path.startswith(os.path.realpath(self.place) + os.sep) and module.__name__ != "__main__"

    def obey(self, request: dict[str, Any], fds: list[int]) -> None:
        if "store" in request:
            forked.fork_adopted(1, lambda _: self.host_store(request["store"], fds))
            for fd in fds:
                os.close(fd)
            return
        starts = request["start"]
        try:
            self.check()
            if self.once:
                send(self.link, {"started": [[starts[0]["id"], os.getpid()]]})
                self.become(starts[0], fds, 0)
            pids = forked.fork_adopted(len(starts), lambda n: self.become(starts[n], fds, n))
        except (Refused, OSError) as error:
            send(self.link, {"refused": str(error), "started": []})
        else:
            send(self.link, {"started": [[start["id"], pid] for start, pid in zip(starts, pids, strict=True)]})
        for fd in fds:
            os.close(fd)

    def host_store(self, where: dict[str, Any], fds: list[int]) -> NoReturn:
        """In a fork that the launcher adopts; its end is seen as the end of file of the second descriptor."""
        forked.settle(self.launcher, lambda: orphans.stat_of(self.launcher) is None)
        self.link.close()
        main_program.rename(["elastic-run: the workers' store"])
        store_host.serve(fds[0], fds[1], where["address"], where["port"])

    def check(self) -> None:
        """Raise Refused where a fork would copy what must not be copied."""
        if forked.lasting_threads() > 1:
            raise Refused("what was imported has started a thread")
        torch = sys.modules.get("torch")
        for kind in ("npu", "cuda", "xpu"):
            if torch is not None and getattr(getattr(torch, kind, None), "is_initialized", bool)():
                raise Refused(f"what was imported has initialised the {kind} device")
        for fd in os.listdir("/proc/self/fd"):
            try:
                opened = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue  # the descriptor of the listing itself
            if opened.startswith(DEVICES):
                raise Refused(f"what was imported has opened {opened}")

    def become(self, start: dict[str, Any], fds: list[int], number: int) -> NoReturn:
        """`fds`: three for each worker that is started together."""
        try:
            if self.once:
                orphans.signal_at_parent_death(signal.SIGTERM)
            else:
                forked.settle(self.launcher, lambda: orphans.stat_of(self.launcher) is None)
            self.link.close()
            os.environ.update(start["set"])
            for name in start["unset"]:
                os.environ.pop(name, None)
            forked.take_place(start, fds[3 * number : 3 * number + 3])
            for fd in fds:
                os.close(fd)
            main_program.rename(start["argv"])
        except OSError as error:
            print(f"elastic-run: the worker could not take its place: {error}", file=sys.stderr)
            os._exit(127)
        reseed()
        if sys.version_info < (3, 13):
            threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # a fork leaves the parent's
        modules = frozenset(sys.modules)
        for name in [name for name in sys.modules if name.partition(".")[0] == "elastic_run"]:
            del sys.modules[name]  # a program that imports it gets the one on its own path
        main_program.run(start["argv"], modules)


def customised() -> str:
    """In words, what this interpreter has run at its start that depends on the rank, which it does not know yet."""
    named = [getattr(sys.modules.get(name), "__file__", None) for name in ("sitecustomize", "usercustomize")]
    for place in [*site.getsitepackages(), site.getusersitepackages()]:
        named += glob.glob(f"{glob.escape(place)}/*.pth")
    for path in filter(None, named):
        try:
            with open(path, "rb") as file:
                if b"RANK" in file.read(1 << 20):
                    return f"{path} asks for the rank when an interpreter starts"
        except OSError:
            continue
    return ""


def reseed() -> None:
    """What was drawn by chance at import would be the same in every fork; `random` sees to itself."""
    if (multiprocessing := sys.modules.get("multiprocessing.process")) is not None:
        multiprocessing.current_process().authkey = os.urandom(32)
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    if numpy is not None:
        numpy.seed()
    if torch is not None and torch.default_generator.initial_seed() != TORCHS_CONSTANT:
        torch.default_generator.seed()


def main() -> None:
    pid, place, once, first, later, _, number = sys.argv[1:]
    orphans.signal_at_parent_death(signal.SIGKILL)
    if os.getppid() != int(pid):
        os._exit(1)  # the launcher went before the line above
    sys.path.remove(TOP)
    link = socket.socket(fileno=int(number))
    names = [[name for name in given.split(",") if name] for given in (first, later)]
    if once == "once":
        names = [[*names[0], *names[1]], []]
    Template(link, int(pid), place, once == "once").serve(*names)
    os._exit(0)  # hooks that were registered by what was imported belong to the workers


if __name__ == "__main__":
    main()
