"""run_job(): one launch from its Plan to its exit code."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import traceback
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGTERM
from typing import TYPE_CHECKING, NoReturn

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.loopback import Loopback
from elastic_run.clusterd.terms import Terms
from elastic_run.compose.fleet import FLEET_GRACE, meet
from elastic_run.compose.places import take_places
from elastic_run.compose.services import Services
from elastic_run.compose.store import Stored
from elastic_run.compose.streams import Streams
from elastic_run.core.agent import Agent
from elastic_run.core.commands import Exit, Spawn
from elastic_run.core.events import Event, QuitRequested
from elastic_run.core.vocabulary import Origin, Rank, Site, signal_name
from elastic_run.errors import ConfigError, ElasticRunError, ExitCode, PlatformError
from elastic_run.observe.journal import Journal
from elastic_run.observe.watch import Watch
from elastic_run.observe.words import size
from elastic_run.plan import numa
from elastic_run.plan.plan import Plan
from elastic_run.python import PARENT_FD
from elastic_run.rendezvous.environment import SCRATCH, JobWide, worker_environment
from elastic_run.rendezvous.static import Static
from elastic_run.supervisor import orphans, terminal, writer
from elastic_run.supervisor.guard import Guard
from elastic_run.supervisor.inbox import Inbox
from elastic_run.supervisor.logs import Logs
from elastic_run.supervisor.loop import Loop, Sources
from elastic_run.supervisor.process import Processes
from elastic_run.supervisor.progress import ProgressFile
from elastic_run.supervisor.shell import Shell
from elastic_run.supervisor.signals import DEFAULT, Signals
from elastic_run.supervisor.standby import Standby
from elastic_run.supervisor.template import Template
from elastic_run.supervisor.terminal import Terminal
from elastic_run.supervisor.warm import Kind
from elastic_run.supervisor.workers import Workers, open_standard_streams
from elastic_run.supervisor.writer import Writer

if TYPE_CHECKING:
    from elastic_run.clusterd.channel import Certificates
    from elastic_run.clusterd.client import Client
    from elastic_run.clusterd.routes import Routes

DISK_WAIT = 5.0
"""For the file system of the run directory at the end."""
CONSOLE_WAIT = 5.0
"""For a console that takes nothing, at the end."""
GUARD_WAIT = 1.0
FLEET_WAIT = 2.0
"""For the other nodes to be told how the job ended."""
SCARCE = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
PRELOAD = ("torch", "torch.distributed")
COMPILER = ("torch._dynamo",)
"""What the first DistributedDataParallel and the first optimizer import: 0.8 s."""


def run_job(plan: Plan) -> NoReturn:
    """Run a job to its end, then end this process with the job's code. Main thread only.

    It ends with os._exit, so that a thread stuck in a hung file system or console cannot hold it.

    Raises:
        ConfigError: an option cannot be honoured; nothing was started.
    """
    open_standard_streams()
    orphans.become_subreaper()
    try:
        code = _Job(plan).run()
    except (OSError, RuntimeError) as error:  # too few descriptors, processes or threads
        raise PlatformError(f"the launcher cannot start: {error}; raise the limits (ulimit -n, ulimit -u)") from error
    os._exit(code)


class _Job:
    """The parts of one launch, made in the order in which they need each other."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.job = uuid.uuid4().hex
        self.host = socket.gethostname()
        self.error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
        """Whoever started us reads there why we failed, as it would of torchrun."""
        self.terminal = Terminal()
        self.writer = Writer(self.terminal.say)
        self.inbox, self.sources = Inbox(), Sources()
        self._listen_to_caller()
        self.certificates = _certificates(plan)
        self.met = meet(plan, self.host, self.inbox.post, self.terminal.say)
        self.rendezvous = _rendezvous(plan, self.met.leads)
        self.services = Services(plan, self.inbox.post, self.sources, self.terminal.say)
        self.client: Client | None = None
        node = self.met.node if plan.nodes.rank is None else plan.nodes.rank
        self.places = take_places(plan, self.job, self.writer, self.terminal.say, node, self.met.run)
        self.met.open(self.places.run_name)
        self.streams = Streams(plan, self.places.run, self.host, self.writer, self.terminal)

    def run(self) -> int:
        signals = Signals(self.plan.signals, lambda: self.terminal.say("Ctrl-Z is ignored: workers cannot be paused"))
        processes = Processes(self.job, self._last_words, self.streams.keep_error, self._guard)
        _make(self.places.scratch)  # only now: the guard, which removes it, is there
        self.logs = self._follow_logs()
        self.client = self._client()
        agent = Agent(self.plan.policy, Site(self.met.node, self.host, self.plan.workers, self.met.leads))
        watch = Watch(agent, self.terminal.say, self.writer.replace, self.places.run, self.streams.logs_of)
        watch.summary_file = Path(self.plan.summary_file).absolute() if self.plan.summary_file else None
        terms = Terms(ranks_per_node=self.plan.workers)
        embedded = Loopback(Controller(self.places.run_id, terms), self.inbox.post)
        controller = self._controllers(embedded)
        self.services.start(self.job, self.places, processes, self.streams)
        workers = self._workers(processes)
        warm = self._warm(processes)
        store = self._store(processes)
        shell = Shell(
            workers=workers,
            reporter=controller,
            rendezvous=self.services.rounds(store or self.rendezvous),
            progress=ProgressFile(self.plan.progress_file, self.inbox.post),
            people=watch,
            post=self.inbox.post,
            fleet=self.met.fleet,
        )
        records = [self._journal(agent), *self.services.records()]
        loop = Loop(agent, shell, records, processes.collect, [controller, *warm, *self.services.clocks], self.sources)
        self.sources.listen(self.inbox, self.inbox.read)
        self.sources.listen(signals, signals.read)
        self.sources.listen(processes.guard.link, processes.answered)
        if self.plan.threads is not None:
            self.terminal.say(f"OMP_NUM_THREADS={self.plan.threads} for each rank, from the cores of this machine")
        if unseen := self.plan.output.unseen(self.plan.workers, self.plan.workers * self.plan.nodes.most):
            self.terminal.say(unseen)
        if self.client is not None:
            self.client.start()
        left = self._supervise(loop, agent)
        if store is not None:
            store.close()
        return self._close(left, watch, processes)

    # -- the parts

    def _client(self) -> Client | None:
        """Of ClusterD, if the job belongs to one; grpc is loaded only then."""
        told = self.plan.clusterd
        if told is None or not self.met.leads:
            return None
        from elastic_run.clusterd.channel import open_channel
        from elastic_run.clusterd.client import Client

        if told.note:
            self.terminal.say(f"ClusterD at {told.target}: {told.note}")
        channel = open_channel(told.target, self.certificates)
        return Client(channel, told.target, told.job, self.inbox.post, self.terminal.say)

    def _controllers(self, embedded: Loopback) -> Loopback | Routes:
        if self.client is None:
            return embedded
        from elastic_run.clusterd.routes import Routes

        return Routes(embedded, self.client)

    def _guard(self, leaders: Callable[[], Mapping[int, int]], answered: Callable[[], list[Event]]) -> Guard:
        def replaced(dead: socket.socket, new: socket.socket) -> None:
            self.sources.forget(dead)
            self.sources.listen(new, answered)

        grace = self.plan.policy.stop_grace
        if self.plan.nodes.several:
            grace = min(grace, FLEET_GRACE)
        return Guard(self.job, grace, self.places.scratch, replaced, leaders)

    def _listen_to_caller(self) -> None:
        """`elastic_run.launch` hands down a pipe that closes when its process ends: the job is then stopped.

        It is no business of the workers, whose environment is taken from ours later.
        """
        fd = os.environ.pop(PARENT_FD, "")
        if not fd.isdigit():
            return

        def gone() -> list[Event]:
            self.sources.forget(int(fd))
            return [QuitRequested(SIGTERM)]

        self.sources.listen(int(fd), gone)

    def _follow_logs(self) -> Logs:
        readers = {terminal.READER: self.terminal.wake, writer.READER: self.writer.wake}
        logs = Logs(self.places.scratch, readers)
        self.terminal.follow(logs)
        self.writer.follow(logs, self.plan.output.max_size)
        return logs

    def _journal(self, agent: Agent) -> Journal:
        run = self.places.run

        def append(data: bytes) -> None:
            if run is not None:
                self.writer.append(run.events, data)

        def rotate() -> None:
            if run is not None:
                self.writer.call(run.put_events_aside)

        return Journal(append, rotate, agent)

    def _workers(self, processes: Processes) -> Workers:
        job = JobWide(
            run_id=self.places.run_id,
            role=self.plan.role,
            max_restarts=self.plan.policy.max_restarts,
            threads=self.plan.threads,
            signals=",".join(signal_name(number) for number in dict.fromkeys((*DEFAULT, *self.plan.signals))),
            virtual_local_rank=self.plan.virtual_local_rank,
        )
        base, more = dict(os.environ), {SCRATCH: self.places.scratch, **self.services.variables}

        def environment(order: Spawn, mark: str, error_file: str) -> dict[str, str]:
            return {**worker_environment(base, job, order, mark=mark, error_file=error_file), **more}

        return Workers(
            job=self.job,
            argv=self.plan.argv,
            cwd=os.getcwd(),
            scratch=self.places.scratch,
            processes=processes,
            logs=self.logs,
            treatment=self.streams.treatment,
            joined=self.streams.joined,
            stdin=_keep_stdin(self.places.scratch) if self.plan.script_on_stdin else None,
            cpus=numa.binding(self.plan.numa_binding, self.plan.workers),
            environment=environment,
            attempt=self.streams.attempt,
        )

    def _warm(self, processes: Processes) -> list[Template | Standby]:
        """A quicker way to workers, if the plan has one."""
        start = self.plan.start
        if start.because:
            self.terminal.say(start.because)
        if start.mode == "cold":
            return []
        env = {**os.environ, **self.services.variables, SCRATCH: self.places.scratch}
        if self.plan.threads is not None:
            env["OMP_NUM_THREADS"] = str(self.plan.threads)
        first = (*PRELOAD, *(COMPILER if start.optimises else ()), *self.plan.preload)
        later = () if start.optimises else COMPILER
        kind = Kind(self.plan.interpreter, env, first, later, start.place, os.getpid())
        listen, forget = self.sources.listen, self.sources.forget
        if start.mode == "standby":
            count = self.plan.workers
            standby = Standby(kind, self.job, count, processes, listen, forget, self.terminal.say)
            processes.warm = standby
            return [standby]
        template = Template(kind, self.job, processes, listen, forget, self.terminal.say)
        processes.warm = template
        if start.at_once:
            template.warm()
        return [template]

    def _store(self, processes: Processes) -> Stored | None:
        """The workers' store, where this node leads, its port is not given, and there is a template to fork it."""
        nodes = self.plan.nodes
        own = nodes.master_port or not self.plan.start.hosted_store
        if own or not self.met.leads or not isinstance(processes.warm, Template):
            return None
        kind = processes.warm.kind
        host = kind.store_host(self.job)
        return Stored(self.rendezvous, processes.warm, self.sources, processes.serving, host, nodes.master_addr)

    def _last_words(self, rank: Rank, incarnation: int) -> str:
        return self.logs.tail(rank, incarnation)

    # -- run and leave

    def _supervise(self, loop: Loop, agent: Agent) -> Exit:
        """Run the loop; a bug of ours ends the job with the story, and the guard stops what still runs."""
        try:
            return loop.run()
        except PlatformError as error:
            return Exit(error.exit_code, Origin.LAUNCHER, str(error))
        except OSError as error:
            if error.errno not in SCARCE:
                raise
            because = f"the launcher cannot go on: {error}; raise the limits (ulimit -n, ulimit -u)"
            return Exit(ExitCode.UNAVAILABLE, Origin.LAUNCHER, because)
        except ElasticRunError as error:
            because, code = str(error), error.exit_code
        except Exception:  # whatever it is, it must be told with the story, and must not leave workers behind
            because, code = traceback.format_exc(), ExitCode.INTERNAL
        self.terminal.say(f"this is a bug of elastic-run; please report the lines below\n{agent.story()}\n{because}")
        return Exit(code, Origin.LAUNCHER, because.strip().splitlines()[-1])

    def _close(self, left: Exit, watch: Watch, processes: Processes) -> int:
        plain = self.plan.plain_exit_code and left.origin is not Origin.LAUNCHER
        code = min(left.code, 1) if plain else left.code
        self.services.close()
        self.met.fleet.close(FLEET_WAIT)
        if self.client is not None:
            self.client.close()
        if processes.warm is not None:
            processes.warm.close()
        unread = self._drain()
        lost = {f"{reader} bytes": self.logs.lost(reader) + left for reader, left in unread.items()}
        lost["records"] = self.writer.lost_records
        if self.places.run is not None:
            self.writer.call(self.places.run.give_room)
        watch.close(left, code, lost)
        said = self.streams.errors.get((watch.culprit or {}).get("rank", -1))
        if code != ExitCode.OK and self.error_file and said:
            self.writer.replace(Path(self.error_file).absolute(), said)
        self._say_what_was_lost(lost)
        says_more = code != ExitCode.OK and f"exit code {code}" not in left.because
        self.terminal.say(left.because + (f"; exit code {code}" if says_more else ""))
        written = self.writer.close(0.0 if unread[writer.READER] else DISK_WAIT)
        if not written:
            self.terminal.say(f"the log directory does not answer; {self.writer.lost_records} records are lost")
        self.terminal.close(0.0 if unread[terminal.READER] else CONSOLE_WAIT)
        processes.guard.close(GUARD_WAIT)
        return code

    def _drain(self) -> dict[str, int]:
        """Let the readers of the workers' output finish; bytes that each has left because it is stuck."""
        return self.logs.drain(
            {
                terminal.READER: (lambda: self.terminal.moved, CONSOLE_WAIT),
                writer.READER: (lambda: self.writer.moved, DISK_WAIT),
            }
        )

    def _say_what_was_lost(self, lost: dict[str, int]) -> None:
        for what, count in lost.items():
            if count and what == "records":
                self.terminal.say(f"{count} records could not be written")
            elif count:
                self.terminal.say(f"{size(count)} of output were lost ({what.removesuffix(' bytes')})")


def _certificates(plan: Plan) -> Certificates | None:
    """Checked before anything is started."""
    told = plan.clusterd
    if told is None or not told.tls:
        return None
    from elastic_run.clusterd.channel import Certificates

    files = Certificates(told.ca, told.cert, told.key)
    files.check()
    return files


def _rendezvous(plan: Plan, leads: bool) -> Static:
    nodes = plan.nodes
    static = Static(plan.workers, nodes.master_addr, nodes.master_port)
    if leads and nodes.master_port:
        try:
            static.hold()
        except OSError as error:
            raise ConfigError(f"--master-port {nodes.master_port}: {error.strerror}; choose another") from error
    return static


def _make(scratch: str) -> None:
    try:
        Path(scratch).mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(f"no node-local directory can be written ({error.strerror}); set TMPDIR") from error


def _keep_stdin(scratch: str) -> str:
    """The script that comes on standard input, in a file, so that every rank and every restart can read it."""
    path = Path(scratch) / "stdin"
    with open(0, "rb", closefd=False) as source, path.open("xb") as copy:
        shutil.copyfileobj(source, copy)
    return str(path)
