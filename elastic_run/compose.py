"""The composition root: the only file that knows every package; builds, runs and tears down."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from typing import NoReturn

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.loopback import Loopback
from elastic_run.core.agent import Agent
from elastic_run.core.commands import Exit, Spawn
from elastic_run.core.events import Event, QuitRequested
from elastic_run.core.vocabulary import Origin, Rank, Site, signal_name
from elastic_run.errors import ConfigError, ElasticRunError, ExitCode
from elastic_run.observe import rundir
from elastic_run.observe.journal import Journal
from elastic_run.observe.rundir import RunDirectory
from elastic_run.observe.watch import Watch
from elastic_run.observe.words import size
from elastic_run.plan import numa
from elastic_run.plan.output import Place
from elastic_run.plan.plan import Plan
from elastic_run.plan.services import HEALTH_PORT, TIMER_FILE
from elastic_run.python import PARENT_FD
from elastic_run.rendezvous.environment import SCRATCH, JobWide, worker_environment
from elastic_run.rendezvous.static import Static
from elastic_run.supervisor import orphans, terminal, writer
from elastic_run.supervisor.blocked import Blocked
from elastic_run.supervisor.file_timer import FileTimer
from elastic_run.supervisor.guard import Guard
from elastic_run.supervisor.health import Health
from elastic_run.supervisor.inbox import Inbox
from elastic_run.supervisor.logs import Logs, Treatment
from elastic_run.supervisor.loop import Loop
from elastic_run.supervisor.process import Processes
from elastic_run.supervisor.progress import ProgressFile
from elastic_run.supervisor.shell import Shell
from elastic_run.supervisor.signals import DEFAULT, Signals
from elastic_run.supervisor.terminal import Terminal
from elastic_run.supervisor.workers import Workers, open_standard_streams
from elastic_run.supervisor.writer import Writer

DISK_WAIT = 5.0
"""For the file system of the run directory, at the start and at the end."""
CONSOLE_WAIT = 5.0
"""For a console that takes nothing, at the end."""
GUARD_WAIT = 1.0


def run_job(plan: Plan) -> NoReturn:
    """Run a job to its end, then end this process with the job's code. Main thread only.

    It ends with os._exit, so that a thread stuck in a hung file system or console cannot hold it.

    Raises:
        ConfigError: an option cannot be honoured; nothing was started.
    """
    open_standard_streams()
    orphans.become_subreaper()
    os._exit(_Job(plan).run())


@dataclass(frozen=True, slots=True)
class _Where:
    scratch: str
    run: RunDirectory | None
    run_id: str


class _Job:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.job = uuid.uuid4().hex
        self.host = socket.gethostname()
        self.on_terminal = {"stdout": os.isatty(1), "stderr": os.isatty(2)}
        self.terminal = Terminal({name: not terminal for name, terminal in self.on_terminal.items()})
        self.writer = Writer(self.terminal.say)
        self.logs: Logs | None = None
        self.timer: FileTimer | None = None

    def run(self) -> int:
        nodes, rendezvous, health = self.plan.nodes, self._rendezvous(), self._health()
        where = self._places()
        inbox = Inbox()
        signals = Signals(self.plan.signals, lambda: self.terminal.say("Ctrl-Z is ignored: workers cannot be paused"))
        agent = Agent(self.plan.policy, Site(nodes.rank, self.host, self.plan.workers))
        watch = Watch(agent, self.terminal.say, self.writer.replace, where.run, self._log_finder(where))
        watch.summary_file = Path(self.plan.summary_file).absolute() if self.plan.summary_file else None
        clock = Loopback(Controller(where.run_id), inbox.post)
        loop: Loop | None = None

        def guard(leaders: Callable[[], Mapping[int, int]]) -> Guard:
            def listen(dead: socket.socket) -> None:
                if loop is not None:
                    loop.selector.unregister(dead)
                    loop.listen(processes.guard.link, processes.answered)

            return Guard(self.job, self.plan.policy.stop_grace, where.scratch, listen, leaders)

        processes = Processes(self.job, self._last_words, self._error_keeper(where), guard)
        self._make_scratch(where)
        self._follow_logs(where)
        shell = Shell(
            workers=self._workers(where, processes),
            reporter=clock,
            rendezvous=rendezvous,
            progress=ProgressFile(self.plan.progress_file, inbox.post),
            people=watch,
            post=inbox.post,
        )
        loop = Loop(agent, shell, self._journal(where, agent), processes.collect, [clock])
        loop.listen(inbox, inbox.read)
        self._serve(loop, processes, inbox, where, health)
        loop.listen(signals, signals.read)
        self._listen_to_caller(loop)
        loop.listen(processes.guard.link, processes.answered)
        left = self._supervise(loop, agent)
        return self._close(left, watch, processes, where)

    def _listen_to_caller(self, loop: Loop) -> None:
        """`elastic_run.launch` hands down a pipe that closes when its process ends: the job is then stopped."""
        fd = os.environ.pop(PARENT_FD, "")
        if not fd.isdigit():
            return

        def gone() -> list[Event]:
            loop.selector.unregister(int(fd))
            return [QuitRequested(SIGTERM)]

        loop.listen(int(fd), gone)

    def _serve(self, loop: Loop, processes: Processes, inbox: Inbox, where: _Where, health: Health | None) -> None:
        """Start the services of torch's agent that are asked for."""
        wanted = self.plan.services
        if wanted.timer:
            path = wanted.timer_file or f"{where.scratch}/timer"
            try:
                self.timer = FileTimer(path, inbox.post)
            except OSError as error:
                raise ConfigError(f"the variable {TIMER_FILE}={path}: {error.strerror}; name a new file") from error
            loop.listen(self.timer, self.timer.read)
            loop.clocks.append(self.timer)
        if health is not None:
            loop.listen(health, health.read)
        if wanted.blocked_limit is not None:
            loop.clocks.append(Blocked(wanted.blocked_limit, processes.pids, inbox.post))

    # -- before

    def _rendezvous(self) -> Static:
        nodes = self.plan.nodes
        static = Static(self.plan.workers, nodes.count, nodes.rank, nodes.master_addr, nodes.master_port)
        if nodes.rank == 0 and nodes.master_port:
            try:
                static.hold()
            except OSError as error:
                raise ConfigError(f"--master-port {nodes.master_port}: {error.strerror}; choose another") from error
        return static

    def _health(self) -> Health | None:
        port = self.plan.services.health_port
        try:
            return None if port is None else Health(port)
        except OSError as error:
            raise ConfigError(f"the variable {HEALTH_PORT}={port}: {error.strerror}; choose another port") from error

    def _places(self) -> _Where:
        """The run directory, made by the writer because its file system may hang, and the node-local scratch."""
        name, returns = rundir.job_name(self.plan.run_id, os.environ)
        run = self._take_run(name, returns)
        if run is not None:
            if run.instead_of:
                self.terminal.say(f"{run.instead_of}; records go to {run.path}")
            self.writer.call(lambda: rundir.index(run.path, os.environ))
        return _Where(_scratch(self.job), run, self.plan.run_id or name)

    def _make_scratch(self, where: _Where) -> None:
        """Only now: the guard, which removes it, is there."""
        try:
            Path(where.scratch).mkdir(mode=0o700)
        except OSError as error:
            raise ConfigError(f"no node-local directory can be written ({error.strerror}); set TMPDIR") from error

    def _take_run(self, name: str, returns: bool) -> RunDirectory | None:
        taken: list[RunDirectory] = []
        failed: list[OSError] = []
        done = threading.Event()

        def work() -> None:
            try:
                taken.append(rundir.take(self.plan.log_dir, name, returns, self.plan.nodes.rank))
            except OSError as error:
                failed.append(error)
            done.set()

        self.writer.call(work)
        if not done.wait(DISK_WAIT):
            self.terminal.say(f"the log directory does not answer within {DISK_WAIT:g} s; going on without records")
        if failed and self.plan.log_dir is not None:
            reason = f"{failed[0].filename}: {failed[0].strerror}"
            raise ConfigError(f"--log-dir {self.plan.log_dir}: cannot be written ({reason}); choose another")
        if failed:
            self.terminal.say(f"no run directory ({failed[0].strerror}); going on without records")
        return taken[0] if taken else None

    def _follow_logs(self, where: _Where) -> None:
        readers = {terminal.READER: self.terminal.wake}
        run = where.run
        if run is not None:
            readers[writer.READER] = self.writer.wake
        self.logs = Logs(where.scratch, readers)
        self.terminal.follow(self.logs)
        if run is not None:
            self.writer.follow(
                self.logs, lambda s: run.rank(s.attempt, s.rank) / f"{s.name}.log", self.plan.output.max_size
            )

    def _journal(self, where: _Where, agent: Agent) -> Journal:
        run = where.run

        def append(data: bytes) -> None:
            if run is not None:
                self.writer.append(run.events, data)

        def rotate() -> None:
            if run is not None:
                self.writer.call(run.put_events_aside)

        return Journal(append, rotate, agent)

    def _workers(self, where: _Where, processes: Processes) -> Workers:
        threads = None
        if self.plan.workers > 1:
            threads = max(1, len(os.sched_getaffinity(0)) // self.plan.workers)
        job = JobWide(
            run_id=where.run_id,
            role=self.plan.role,
            max_restarts=self.plan.policy.max_restarts,
            threads=threads,
            signals=",".join(signal_name(number) for number in (*DEFAULT, *self.plan.signals)),
            virtual_local_rank=self.plan.virtual_local_rank,
        )
        base = dict(os.environ)

        def environment(order: Spawn, mark: str, error_file: str) -> dict[str, str]:
            ours = worker_environment(base, job, order, mark=mark, error_file=error_file)
            timer = {TIMER_FILE: self.timer.path} if self.timer is not None else {}
            return {**ours, **timer, SCRATCH: where.scratch}

        return Workers(
            job=self.job,
            argv=self.plan.argv,
            cwd=os.getcwd(),
            scratch=where.scratch,
            processes=processes,
            logs=self.logs,
            treatment=self._treatment,
            stdin=self._keep_stdin(where) if self.plan.script_on_stdin else None,
            cpus=numa.binding(self.plan.numa_binding, self.plan.workers),
            environment=environment,
            attempt=self._attempt(where),
        )

    def _keep_stdin(self, where: _Where) -> str:
        """The script that comes on standard input, in a file, so that every rank and every restart can read it."""
        path = Path(where.scratch) / "stdin"
        with open(0, "rb", closefd=False) as source, path.open("xb") as copy:
            shutil.copyfileobj(source, copy)
        return str(path)

    def _treatment(self, rank: Rank, local_rank: int, name: str) -> Treatment | None:
        wanted = self.plan.prefix == "always" or (self.plan.prefix == "auto" and self.plan.workers > 1)
        prefixed = wanted and (self.plan.prefix == "always" or self.on_terminal[name])
        place = Place(rank, local_rank, self.plan.role, self.host, self.plan.workers == 1)
        choice = self.plan.output.choose(place, name, prefixed)
        if choice is None:
            return None
        readers = [*([writer.READER] if choice.copy else []), *([terminal.READER] if choice.show else [])]
        return Treatment(tuple(readers), choice.prefix, tuple(text.encode() for text in choice.filters))

    # -- the parts' questions

    def _attempt(self, where: _Where) -> Callable[[int], int]:
        first = where.run.first_attempt if where.run else 0
        return lambda restarts: first + restarts

    def _log_finder(self, where: _Where) -> Callable[[Rank, int], str | None]:
        run, attempt = where.run, self._attempt(where)

        def find(rank: Rank, restarts: int) -> str | None:
            captured = self._treatment(rank, rank % self.plan.workers, "stderr") is not None
            return str(run.rank(attempt(restarts), rank)) if run is not None and captured else None

        return find

    def _last_words(self, rank: Rank, incarnation: int) -> str:
        return self.logs.tail(rank, incarnation) if self.logs is not None else ""

    def _error_keeper(self, where: _Where) -> Callable[[Rank, int, bytes], None]:
        run = where.run

        def keep(rank: Rank, number: int, said: bytes) -> None:
            if run is not None:
                self.writer.replace(run.rank(number, rank) / "error.json", said)

        return keep

    # -- run and leave

    def _supervise(self, loop: Loop, agent: Agent) -> Exit:
        """Run the loop; a bug of ours ends the job with the story, and the guard stops what still runs."""
        try:
            return loop.run()
        except ElasticRunError as error:
            because, code = str(error), error.exit_code
        except Exception:  # whatever it is, it must be told with the story, and must not leave workers behind
            because, code = traceback.format_exc(), ExitCode.INTERNAL
        self.terminal.say(f"this is a bug of elastic-run; please report the lines below\n{agent.story()}\n{because}")
        return Exit(code, Origin.LAUNCHER, because.strip().splitlines()[-1])

    def _close(self, left: Exit, watch: Watch, processes: Processes, where: _Where) -> int:
        code = min(left.code, 1) if self.plan.plain_exit_code and left.origin is Origin.WORKERS else left.code
        unread = self._drain(where)
        lost = {f"{r} bytes": self.logs.lost(r) + left for r, left in unread.items() if self.logs is not None}
        lost["records"] = self.writer.lost_records
        watch.close(left, code, lost)
        self._say_what_was_lost(lost)
        self.terminal.say(left.because + (f"; exit code {code}" if self._says_more(code, left) else ""))
        if self.timer is not None:
            self.timer.close()
        written = self.writer.close(0.0 if unread.get(writer.READER) else DISK_WAIT)
        if not written:
            self.terminal.say(f"the log directory does not answer; {self.writer.lost_records} records are lost")
        self.terminal.close(0.0 if unread.get(terminal.READER) else CONSOLE_WAIT)
        processes.guard.close(GUARD_WAIT)
        return code

    def _drain(self, where: _Where) -> dict[str, int]:
        """Let the readers of the workers' output finish; bytes that each has left because it is stuck."""
        readers: dict[str, tuple[Callable[[], int], float]] = {
            terminal.READER: (lambda: self.terminal.moved, CONSOLE_WAIT)
        }
        if where.run is not None:
            readers[writer.READER] = (lambda: self.writer.moved, DISK_WAIT)
        return self.logs.drain(readers) if self.logs is not None else {}

    def _says_more(self, code: int, left: Exit) -> bool:
        """Whether the code is more than what the sentence says already."""
        return code != ExitCode.OK and f"exit code {code}" not in left.because

    def _say_what_was_lost(self, lost: dict[str, int]) -> None:
        for what, count in lost.items():
            if count and what == "records":
                self.terminal.say(f"{count} records could not be written")
            elif count:
                self.terminal.say(f"{size(count)} of output were lost ({what.removesuffix(' bytes')})")


def _scratch(job: str) -> str:
    """Name of a node-local directory for spool and error files, where there is most room."""
    outer = os.environ.get(SCRATCH)  # there the outer launcher's guard removes it where ours cannot any more
    places = [outer] if outer else [tempfile.gettempdir(), "/dev/shm", "/tmp"]
    usable = [place for place in places if os.access(place, os.W_OK | os.X_OK)] or [tempfile.gettempdir()]
    best = max(usable, key=lambda place: shutil.disk_usage(place).free)
    return f"{best}/elastic-run-{job}"
