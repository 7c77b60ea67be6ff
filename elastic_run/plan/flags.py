"""The options of a launch, with click, and what they mean: parsed values -> Plan."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click import shell_completion
from click.core import ParameterSource

from elastic_run.errors import ConfigError
from elastic_run.plan import output as out
from elastic_run.plan import torchrun
from elastic_run.plan.clusterd import clusterd
from elastic_run.plan.command import STDIN, command
from elastic_run.plan.count import count
from elastic_run.plan.nodes import conf_of, nodes, seconds
from elastic_run.plan.plugins import plugins
from elastic_run.plan.services import services
from elastic_run.plan.warm import start_mode

if TYPE_CHECKING:
    from elastic_run.core.policy import Policy
    from elastic_run.plan.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])

UNLIMITED = "unlimited"


class Restarts(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """A number of restarts, or `unlimited`."""

    name = "N|unlimited"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == UNLIMITED:
            return UNLIMITED
        if not str(value).isdigit():
            self.fail(f"{value!r} is neither a number of restarts nor 'unlimited'", param, ctx)
        return int(value)


class SignalList(click.ParamType):  # type: ignore[type-arg]
    """Names such as `SIGUSR1,SIGUSR2`; `USR1` and numbers will do."""

    name = "SIG,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        found = tuple(dict.fromkeys(self._one(word, param, ctx) for word in words if word))
        if value and not found:
            self.fail(f"{value!r} names no signal; write names such as SIGUSR1", param, ctx)
        return found

    def _one(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            full = word.upper() if word.upper().startswith("SIG") else f"SIG{word.upper()}"
            number = signal.Signals(int(word)) if word.isdigit() else signal.Signals[full]
        except (KeyError, ValueError):
            self.fail(f"{word!r} is no signal; write names such as SIGUSR1", param, ctx)
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            self.fail(f"{number.name} cannot be handled", param, ctx)
        return int(number)


class Seconds(click.FloatRange):
    """A duration: `nan` compares with nothing, and what never comes is no deadline."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no finite number of seconds", param, ctx)
        return seconds


class Option(click.Option):
    """In complaints it names a variable only if the value came from it."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        names = " / ".join(f"'{name}'" for name in self.opts)
        from_variable = ctx is not None and ctx.get_parameter_source(self.name or "") is ParameterSource.ENVIRONMENT
        return names + (f" (from the variable {_variable(self)})" if from_variable else "")


def _option(name: str, help: str, variable: str = "", **attrs: Any) -> Callable[[F], F]:
    """One option in both spellings, with its variable: PET_… for torchrun's, ELASTIC_RUN_… for ours.

    `variable` is another one, with which torch itself says the same; it counts where ours is not set.
    """
    field = name.replace("-", "_")
    known = torchrun.BY_FIELD.get(field)
    spellings = [f"--{name}"] + ([f"--{field}"] if "-" in name else [])
    spellings += [f"-{known.short}"] if known and known.short else []
    if attrs.get("is_flag") and known:
        attrs.setdefault("type", bool)
    own = ("PET_" if known else "ELASTIC_RUN_") + field.upper()
    env = [own, variable] if variable else own
    shown = attrs.get("default") not in (None, "")
    attrs |= {"envvar": env, "show_envvar": True, "show_default": shown, "help": help}
    return click.option(*spellings, field, cls=Option, **attrs)


def _print_completion(context: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None:
        return
    kind = shell_completion.get_completion_class(shell)
    assert kind is not None
    name = "elastic-run"
    click.echo(kind(context.command, {}, name, "_ELASTIC_RUN_COMPLETE").source())
    context.exit()


SECONDS = Seconds(min=0)
PORT = click.IntRange(0, 65535)

OPTIONS: list[Callable[[Any], Any]] = [
    _option("nproc-per-node", "Ranks to start on this machine: a number, auto, cpu, gpu, npu or xpu.", default="1"),
    _option("max-restarts", "How often the group is restarted after a fault; 'unlimited' leaves it to the crash-loop "
            "guard.", type=Restarts(), default="0"),
    _option("restart-window", "Count only the restarts of the last SECONDS against --max-restarts.  [default: all]",
            type=Seconds(min=0, min_open=True), metavar="SECONDS"),
    _option("progress-file", "A file that changes when training advances, such as the newest checkpoint; lets the "
            "crash-loop guard tell progress.", type=click.Path()),
    _option("max-no-progress", "Crash-loop guard: exit 93 after so many failures in a row without progress. It acts "
            "with --progress-file or --max-restarts unlimited.", type=click.IntRange(min=1), default=3),
    _option("shutdown-timeout", "Seconds from asking a worker to stop to SIGKILL, after a signal and after a fault.",
            type=SECONDS, default=30.0, variable="TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
    _option("signals-to-handle", "Signals passed on to the workers besides SIGTERM, SIGINT and SIGHUP.",
            type=SignalList(), default=""),
    _option("on-stop", "Exit code after a stop by signal: 'exit' 0 or 128+n, 'requeue' 75; 'auto' requeues in a Slurm "
            "job or MindCluster pod.", type=click.Choice(["auto", "exit", "requeue"]), default="auto"),
    _option("exit-code", "'worker' passes the culprit's own code on; 'torchrun' gives 1 for every failure.",
            type=click.Choice(["worker", "torchrun"]), default="worker"),
    _option("nnodes", "Launchers of this job: N, or MIN:MAX.", default="1"),
    _option("node-rank", "This launcher's place among them, from 0.", type=click.IntRange(min=0), default=0),
    _option("spares", "Launchers beyond --nnodes that wait, warm, for the loss of a node.", type=click.IntRange(min=0),
            default=0),
    _option("node-lost-after", "Seconds of silence after which a node counts as lost; a node that is cut off ends its "
            "workers before.  [default: 10, more for over 200 nodes]", type=Seconds(min=0, min_open=True),
            metavar="SECONDS"),
    _option("replacement-wait", "Seconds to wait for another node after a loss, before going on with fewer.",
            type=SECONDS, default=0.0),
    _option("fleet-port", "Port of the leader, with --rdzv-backend static.  [default: --master-port + 1]", type=PORT),
    _option("token-file", "File with the job's secret, which lets a launcher take part.  [default: the variable "
            "ELASTIC_RUN_TOKEN]", type=click.Path()),
    _option("master-addr", "Host of rank 0's store.  [default: 127.0.0.1]", metavar="HOST"),
    _option("master-port", "Port of rank 0's store.  [default: a free one for each round on one node, 29500 on "
            "several]", type=PORT),
    _option("local-addr", "This node's own address, where rank 0 is here and --master-addr is not given."),
    _option("standalone", "One node that needs nobody else.", is_flag=True),
    _option("rdzv-backend", "How nodes find each other: static (each is told its --node-rank) or c10d (the one on the "
            "endpoint's host leads).", default="static"),
    _option("rdzv-endpoint", "HOST[:PORT] of the leader; with static, of rank 0's store.", default=""),
    _option("rdzv-conf", "key=value,...: join_timeout, last_call_timeout, is_host.", default=""),
    _option("rdzv-id", "Name of the job; part of the run directory's name."),
    _option("role", "Name of the workers' role.", default="default"),
    _option("redirects", "Output that goes to files only: 0 none, 1 stdout, 2 stderr, 3 both, or local rank:0-3 "
            "pairs such as 0:1,10:3.", default="0"),
    _option("tee", "Output that goes to files and, with prefixes, to the console; same grammar.", default="0"),
    _option("log-dir", "Where run directories go.  [default: ./elastic-run-logs]", type=click.Path()),
    _option("summary-file", "Also write the summary of the run (JSON) to this file.", type=click.Path()),
    _option("log-max-size", "Size at which a rank's log file is put aside as <name>.1, such as 500M."),
    _option("local-ranks-filter", "Only these local ranks are shown on the console, such as 0,1.", default=""),
    _option("ranks-filter", "Only these ranks, counted over all nodes, are shown on the console.", default=""),
    _option("duplicate-stdout-filters", "Lines of tee'd stdout with one of these texts also go to "
            "attempt_<n>/filtered_stdout.log.", default=""),
    _option("duplicate-stderr-filters", "The same for stderr.", default=""),
    _option("log-line-prefix-template", "Prefix of tee'd lines; ${role_name} ${local_rank} ${rank} ${hostname} may be "
            "used.", default="", variable="TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
    _option("prefix", "Rank before each line of output; 'auto': with several ranks on a terminal.",
            type=click.Choice(["auto", "always", "never"]), default="auto"),
    _option("numa-binding", "Bind each rank to cores near its device: node, socket, exclusive, core-complex.",
            type=click.Choice(["node", "socket", "exclusive", "core-complex"])),
    _option("virtual-local-rank", "Every rank sees one device and LOCAL_RANK 0.", is_flag=True),
    _option("module", "The script is a module, as with python -m.", is_flag=True),
    _option("no-python", "The script is a program of any kind; exec it.", is_flag=True),
    _option("run-path", "Run the script with runpy.", is_flag=True),
    _option("dry-run", "Show what would be done and where each value comes from; start nothing.", is_flag=True),
    _option("print-completion", "Print the completion script for a shell.", type=click.Choice(["bash", "zsh", "fish"]),
            is_eager=True, expose_value=False, callback=_print_completion),
    _option("workers", "How ranks start: 'template' forks them from a process that has imported torch, 'standby' has "
            "an interpreter with torch waiting for each, 'cold' starts new ones; 'auto' reads the script.",
            type=click.Choice(["auto", "template", "standby", "cold"]), default="auto"),
    _option("preload", "A module that template and standby import besides torch; may be given several times.",
            multiple=True, metavar="MODULE"),
    _option("logs-specs", "Plug-in of torchrun (entry point torchrun.logs_specs) that says where output goes."),
    _option("event-log-handler", "Handler of torch's that hears of starts and ends: null, console, or one that a "
            "package registers.", default="null"),
    _option("clusterd", "ClusterD that decides recoveries: grpc://HOST:PORT, grpcs:// for TLS, or off.  [default: in a "
            "MindCluster pod the one it names]", metavar="ADDRESS"),
    _option("clusterd-job", "The job's id there.  [default: MINDX_TASK_ID, then --rdzv-id]", metavar="ID"),
    _option("clusterd-ca", "Certificate (PEM) of who signed ClusterD's.", type=click.Path()),
    _option("clusterd-cert", "Our own certificate (PEM), for mutual TLS.", type=click.Path()),
    _option("clusterd-key", "Its key.", type=click.Path()),
    _option("clusterd-timeout", "Seconds that an incident waits for a ClusterD out of reach, before the embedded "
            "controller decides it.", type=SECONDS, default=60.0),
    _option("require-clusterd", "Start nothing without ClusterD: exit 69 after --clusterd-timeout.", is_flag=True),
    _option("monitor-interval", "Accepted: deaths are noticed at once, without polling.", type=SECONDS),
    _option("start-method", "Accepted: scripts are exec'ed.", type=click.Choice(["spawn", "fork", "forkserver"])),
    _option("exit-barrier-timeout", "Accepted: no exit barrier is needed.", type=float),
]  # fmt: skip


def options(function: F) -> F:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def expanded(argv: Sequence[str], parsed: click.Command) -> list[str]:
    """`argv` with torchrun's abbreviations spelled out."""
    takes_value = {
        spelling: not param.is_flag
        for param in parsed.params
        if isinstance(param, click.Option)
        for spelling in param.opts
    }
    return torchrun.expanded(argv, {**takes_value, "--help": False, "-h": False})


def plan_from(context: click.Context, environ: Mapping[str, str] = os.environ) -> Plan:
    """The Plan of a parsed command line.

    Raises:
        ConfigError: the values contradict each other or name what does not exist.
    """
    try:
        return _plan(context.params, environ)
    except ConfigError as error:
        raise ConfigError(f"{error}{_blamed_variable(context, str(error))}") from error


def _blamed_variable(context: click.Context, message: str) -> str:
    """The variable that an option named in `message` took its value from, if it did."""
    for param in context.command.params:
        from_variable = context.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT
        if from_variable and param.opts[0] in message:
            return f" (from the variable {_variable(param)})"
    return ""


def _variable(param: click.Parameter) -> str:
    """The one that the value came from."""
    names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    return next((name for name in names if os.environ.get(name)), "")


def origins(context: click.Context) -> dict[str, tuple[object, str]]:
    """Option -> its value and where that came from."""
    found: dict[str, tuple[object, str]] = {}
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if not isinstance(param, click.Option) or param.name not in context.params or source is None:
            continue
        variable = f"variable {_variable(param)}"
        words = {ParameterSource.COMMANDLINE: "command line", ParameterSource.ENVIRONMENT: variable}
        found[param.opts[0]] = (context.params[param.name], words.get(source, "default"))
    return found


def _plan(given: Mapping[str, Any], environ: Mapping[str, str]) -> Plan:
    from elastic_run.plan.plan import Plan  # here: --help and usage errors do not load the core

    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise ConfigError("the working directory does not exist any more; change to one that does") from error
    interpreter = environ.get("PYTHON_EXEC", sys.executable)
    workers = count(given["nproc_per_node"], environ, interpreter)
    argv = command(
        given["script"],
        given["args"],
        module=given["module"],
        no_python=given["no_python"],
        run_path=given["run_path"],
        interpreter=interpreter,
    )
    center = clusterd(given, environ)
    restarts = None if given["max_restarts"] == UNLIMITED else int(given["max_restarts"])
    if given["restart_window"] is not None and not restarts:
        raise ConfigError("--restart-window needs --max-restarts N with N of 1 or more: it limits what N counts")
    return Plan(
        argv=argv,
        workers=workers,
        policy=_policy(given, environ, restarts, center is not None),
        output=_output(given, workers),
        nodes=nodes(given),
        role=given["role"],
        script_on_stdin=given["script"] == STDIN and not (given["module"] or given["no_python"]),
        run_id=given["rdzv_id"],
        log_dir=given["log_dir"],
        signals=given["signals_to_handle"],
        progress_file=given["progress_file"],
        prefix=given["prefix"],
        numa_binding=given["numa_binding"],
        virtual_local_rank=given["virtual_local_rank"],
        summary_file=_summary_file(given["summary_file"]),
        interpreter=interpreter,
        threads=_threads(workers, environ),
        plugins=plugins(given),
        start=start_mode(
            given["workers"],
            argv,
            python=not given["no_python"] or given["run_path"],
            workers=workers,
            restarts=restarts != 0,
            cwd=os.getcwd(),
        ),
        preload=tuple(given["preload"]),
        services=services(environ),
        clusterd=center,
        plain_exit_code=given["exit_code"] == "torchrun",
    )


def _policy(given: Mapping[str, Any], environ: Mapping[str, str], restarts: int | None, ruled: bool) -> Policy:
    from elastic_run.core.policy import Policy

    those, conf, plain = nodes(given), conf_of(given["rdzv_conf"]), Policy()
    return Policy(
        nodes_min=those.least,
        nodes_max=those.most,
        spares=those.spares,
        fixed_places=those.several and those.rank is not None,
        last_call=seconds(conf, "last_call_timeout", plain.last_call),
        join_wait=seconds(conf, "join_timeout", seconds(conf, "timeout", plain.join_wait)),
        replacement_wait=given["replacement_wait"],
        max_restarts=restarts,
        window=given["restart_window"],
        max_no_progress=given["max_no_progress"],
        progress_known=given["progress_file"] is not None,
        stop_grace=given["shutdown_timeout"],
        requeue_on_stop=_requeues(given["on_stop"], environ),
        clusterd=ruled,
        require_clusterd=given["require_clusterd"],
        clusterd_timeout=given["clusterd_timeout"],
    )


def _threads(workers: int, environ: Mapping[str, str]) -> int | None:
    """An even share of the cores that we may use; nothing where the user has chosen, or with one rank."""
    if workers == 1 or "OMP_NUM_THREADS" in environ:
        return None
    return max(1, len(os.sched_getaffinity(0)) // workers)


def _summary_file(path: str | None) -> str | None:
    if path is not None and os.path.isdir(path):
        raise ConfigError(f"--summary-file {path} is a directory; name a file in it")
    if path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise ConfigError(f"--summary-file {path}: there is no such directory; make it first")
    return path


def _requeues(on_stop: str, environ: Mapping[str, str]) -> bool:
    scheduled = "SLURM_JOB_ID" in environ or "MINDX_TASK_ID" in environ
    return on_stop == "requeue" or (on_stop == "auto" and scheduled)


def _output(given: Mapping[str, Any], workers: int) -> out.Output:
    filters = {name: out.needles(given[f"duplicate_{name}_filters"]) for name in ("stdout", "stderr")}
    tee = out.mapping("--tee", given["tee"], workers)
    for name, texts in filters.items():
        if texts and not any(name in streams for streams in tee.values()):
            raise ConfigError(f"--duplicate-{name}-filters needs --tee of {name}: it filters what is tee'd")
    return out.Output(
        redirects=out.mapping("--redirects", given["redirects"], workers),
        tee=tee,
        local_ranks=out.ranks("--local-ranks-filter", given["local_ranks_filter"]),
        ranks=out.ranks("--ranks-filter", given["ranks_filter"]),
        template=out.checked_template("--log-line-prefix-template", given["log_line_prefix_template"]),
        filters=tuple((name, texts) for name, texts in filters.items() if texts),
        max_size=None if given["log_max_size"] is None else out.size("--log-max-size", given["log_max_size"]),
    )
