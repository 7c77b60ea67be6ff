"""The guard, exec'ed by file path: starts cold workers, and stops the job's processes when the launcher is gone.

One thread, stdlib only. It holds one end of a socket whose other end only the launcher has: end of file means that the
launcher has ended, by whatever cause. A launcher that is stopped (SIGSTOP) is seen in /proc. The parent's side, with
the messages, is guard.py.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import time
from typing import Any, NoReturn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from elastic_run.supervisor import forked, orphans
from elastic_run.supervisor.link import receive, send

LOOK_EVERY = 1.0
"""Seconds between two looks at a silent launcher: sixty wake-ups a minute."""
CONFIRM_AFTER = 0.02
EXEC_WAIT_MS = 10_000
KILL_BOUND = 30.0


class Guard:
    def __init__(self, link: socket.socket, job: str, launcher: int, grace: float, scratch: str) -> None:
        self.link, self.job, self.launcher, self.grace, self.scratch = link, job, launcher, grace, scratch
        self.leaders: dict[int, int] = {}
        link.set_inheritable(False)
        try:
            self.stat = os.open(f"/proc/{launcher}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # it is gone already, and nothing says more of it than an empty file
            self.stat = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.inherited = {number: signal.getsignal(number) for number in forked.OURS}
        self.inherited |= dict.fromkeys(forked.PYTHONS_IGNORED, signal.SIG_DFL)
        for number in forked.OURS:
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> None:
        """Serve the launcher until it is gone, then see that nothing of the job is left."""
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        stopped = False
        while True:
            if poll.poll(LOOK_EVERY * 1000):
                request, fds = receive(self.link)
                if request is None:
                    break
                self.obey(request, fds)
            elif not stopped and self.frozen():
                stopped = True
                self.tell({"stopped": True})
                self.stop("is suspended (SIGSTOP)", armed=False)
        self.stop("has ended without stopping its workers", armed=True)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def obey(self, request: dict[str, Any], fds: list[int]) -> None:
        if "leaders" in request:
            self.leaders |= request["leaders"]
            return
        pid, error = self.spawn(request, fds)
        for fd in fds:
            os.close(fd)
        if pid and (stat := orphans.stat_of(pid)):
            self.leaders[pid] = stat.started
        self.tell({"id": request["id"], "pid": pid, "error": error})

    def tell(self, answer: dict[str, Any]) -> None:
        try:
            send(self.link, answer)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the launcher has ended; the next poll says so

    def launcher_gone(self) -> bool:
        return self.launcher_state() in ("", "Z", "X")

    def launcher_state(self) -> str:
        """A letter as in ps, empty if there is no such process. One read of an open file: it is done once a second."""
        try:
            return os.pread(self.stat, 512, 0).rpartition(b") ")[2][:1].decode()
        except ProcessLookupError:
            return ""

    def frozen(self) -> bool:
        """Stopped, and still stopped a moment later."""
        if self.launcher_state() != "T":
            return False
        time.sleep(CONFIRM_AFTER)
        return self.launcher_state() == "T"

    def spawn(self, request: dict[str, Any], fds: list[int]) -> tuple[int, str]:
        """Pid, or 0 and why not; exec closes the pipe on which an error would come."""
        try:
            read, write = os.pipe()
            (pid,) = forked.fork_adopted(1, lambda _: self.become(request, fds, write))
        except OSError as scarce:
            return 0, f"{scarce.strerror}; raise the limits (ulimit -n, ulimit -u)"
        os.close(write)
        error = b""
        poll = select.poll()
        poll.register(read, select.POLLIN)
        while poll.poll(EXEC_WAIT_MS) and (chunk := os.read(read, 4096)):
            error += chunk
        os.close(read)
        return pid, error.decode(errors="replace")

    def become(self, request: dict[str, Any], fds: list[int], status: int) -> NoReturn:
        """In the grandchild: turn into the worker."""
        try:
            for number, handler in self.inherited.items():
                signal.signal(number, handler)
            forked.settle(self.launcher, self.launcher_gone)
            forked.take_place(request, fds)
            if select.select([status], [status], [], 0)[0]:
                os._exit(1)  # nobody reads it: the guard was killed, and its successor starts this worker
            env = {os.fsencode(k): os.fsencode(v) for k, v in request["env"].items()}
            os.execvpe(request["argv"][0], request["argv"], env)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else f"{request['argv'][0]}: "
            os.write(status, f"{where}{error.strerror}".encode(errors="replace"))
        os._exit(127)

    def stop(self, why: str, *, armed: bool) -> None:
        """SIGTERM, the grace, SIGKILL for all that is ours. `armed`: workers heard SIGTERM from the kernel already."""
        found = orphans.ours(self.job, self.leaders)
        if not found:
            return
        self.say(f"the launcher (pid {self.launcher}) {why}; its guard stops {len(found)} process(es)")
        told = frozenset(self.leaders) if armed else frozenset()
        for pid in found:
            if pid not in told:
                orphans.send(pid, signal.SIGTERM)
        soft, hard = time.monotonic() + self.grace, time.monotonic() + self.grace + KILL_BOUND
        pause = 0.01
        while (found := orphans.ours(self.job, self.leaders)) and time.monotonic() < hard:
            if time.monotonic() >= soft:
                for pid in found:
                    orphans.send(pid, signal.SIGKILL)
                pause = 0.01
            time.sleep(min(pause, max(0.001, soft - time.monotonic())))
            pause = min(pause * 2, 0.25)

    def say(self, text: str) -> None:
        """One line on stderr, unless nobody reads there."""
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in poll.poll(0)):
            try:
                os.write(2, f"elastic-run: {text}\n".encode())
            except OSError:
                pass  # the console is gone with the launcher


if __name__ == "__main__":
    fd, job_id, pid, seconds, directory = sys.argv[1:]
    Guard(socket.socket(fileno=int(fd)), job_id, int(pid), float(seconds), directory).run()
