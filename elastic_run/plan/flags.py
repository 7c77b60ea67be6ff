"""The options of a launch, with click, and what they mean: parsed values -> Plan."""

from __future__ import annotations

import math
import os
import re
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
from elastic_run.plan.plugins import plugins
from elastic_run.plan.services import services
from elastic_run.plan.warm import start_mode

if TYPE_CHECKING:
    from elastic_run.core.policy import Policy
    from elastic_run.plan.plan import Nodes, Plan

F = TypeVar("F", bound=Callable[..., Any])

UNLIMITED = "unlimited"
BACKENDS = ("static", "c10d")
DEFAULT_PORT = 29500
DEFAULT_C10D_PORT = 29400
CONF_INTEGERS = (
    "timeout", "read_timeout", "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout",
    "keep_alive_interval", "keep_alive_max_attempt",
)  # fmt: skip
"""Of --rdzv-conf, what torch reads as integers (2.13: its rendezvous package)."""


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
        nodes=_nodes(given),
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

    nodes, conf, plain = _nodes(given), _conf(given["rdzv_conf"]), Policy()
    return Policy(
        nodes_min=nodes.least,
        nodes_max=nodes.most,
        spares=nodes.spares,
        fixed_places=nodes.several and nodes.rank is not None,
        last_call=_seconds(conf, "last_call_timeout", plain.last_call),
        join_wait=_seconds(conf, "join_timeout", _seconds(conf, "timeout", plain.join_wait)),
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


def _nodes(given: Mapping[str, Any]) -> Nodes:
    """Which launchers make up the job, from torchrun's rendezvous options."""
    from elastic_run.plan.plan import Nodes

    least, most = _span(given["nnodes"])
    backend = given["rdzv_backend"]
    if given["standalone"]:
        if given["rdzv_endpoint"]:
            raise ConfigError("--standalone and --rdzv-endpoint exclude each other; drop one of them")
        if most > 1:
            raise ConfigError(f"--standalone and --nnodes {given['nnodes']} exclude each other; drop one of them")
        return Nodes()
    if backend not in BACKENDS:
        raise ConfigError(f"--rdzv-backend {backend}: only static and c10d are supported")
    host, port = _endpoint(given)
    if most == 1:
        if given["node_rank"] > 0:
            raise ConfigError(f"--node-rank {given['node_rank']} is not below --nnodes {most}; ranks count from 0")
        return Nodes() if backend == "c10d" else Nodes(master_addr=host, master_port=port or 0)
    shared = {
        "least": least,
        "most": most,
        "backend": backend,
        "spares": given["spares"],
        "lost_after": given["node_lost_after"],
        "token_file": given["token_file"],
    }
    return _static(given, shared, host, port) if backend == "static" else _c10d(given, shared, host, port)


def _static(given: Mapping[str, Any], shared: dict[str, Any], host: str | None, port: int | None) -> Nodes:
    """Every node is told its rank; node 0 leads, on the port after that of rank 0's store."""
    from elastic_run.plan.plan import Nodes

    most, rank = shared["most"], given["node_rank"]
    if shared["least"] != most or shared["spares"]:
        raise ConfigError("--nnodes MIN:MAX and --spares need --rdzv-backend c10d: with static each node has its rank")
    if host is None:
        raise ConfigError(f"--nnodes {most} needs --master-addr: the host of rank 0, the same on every node")
    if rank >= most:
        raise ConfigError(f"--node-rank {rank} is not below --nnodes {most}; ranks count from 0")
    port = DEFAULT_PORT if port is None else port
    fleet = given["fleet_port"] or port + 1
    if port == 0 or fleet > 65535 or fleet == port:
        raise ConfigError(f"--master-port {port}: several nodes need one that all know, and --fleet-port beside it")
    return Nodes(**shared, rank=rank, master_addr=host, master_port=port, leader=(host, fleet), leads=rank == 0)


def _c10d(given: Mapping[str, Any], shared: dict[str, Any], host: str | None, port: int | None) -> Nodes:
    """The launcher on the endpoint's host leads, and gives the others their ranks."""
    from elastic_run.plan.plan import Nodes

    if not given["rdzv_endpoint"] or host is None:
        raise ConfigError(f"--nnodes {given['nnodes']} needs --rdzv-endpoint: HOST:PORT of the launcher that leads")
    is_host = _conf(given["rdzv_conf"]).get("is_host", "").lower()
    if is_host not in ("", "0", "1", "true", "false"):
        raise ConfigError(f"--rdzv-conf is_host={is_host}: write true or false")
    leads = is_host in ("1", "true") if is_host else None
    at = (host, DEFAULT_C10D_PORT if port is None else port)
    address = given["master_addr"] or given["local_addr"] or host
    hint = given["node_rank"] or None
    return Nodes(**shared, rank=None, hint=hint, master_addr=address, leader=at, leads=leads)


def _seconds(conf: Mapping[str, str], key: str, default: float) -> float:
    if key not in conf:
        return default
    try:
        seconds = float(conf[key])
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"--rdzv-conf {key}={conf[key]}: write a number of seconds")
    return seconds


def _span(text: str) -> tuple[int, int]:
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise ConfigError(f"--nnodes {text}: write N or MIN:MAX")
    least, most = int(parts[0]), int(parts[-1])
    if not 0 < least <= most:
        raise ConfigError(f"--nnodes {text}: 1 <= MIN <= MAX must hold")
    return least, most


def _conf(text: str) -> dict[str, str]:
    """`key=value,...`; quotes around values are dropped, as shells pass them on at times."""
    pairs: dict[str, str] = {}
    for entry in text.split(",") if text.strip() else []:
        key, _, value = (part.strip().strip("\"'") for part in entry.partition("="))
        if not key or not value:
            raise ConfigError(f"--rdzv-conf {entry!r}: write key=value pairs with commas between them")
        if key in CONF_INTEGERS and not re.fullmatch(r"[-+]?[0-9]+", value):
            raise ConfigError(f"--rdzv-conf {entry!r}: {key} is a whole number")
        pairs[key] = value
    return pairs


def _endpoint(given: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Host and port of rank 0's store; --rdzv-endpoint stands for both master options."""
    endpoint = given["rdzv_endpoint"]
    if not endpoint:
        return given["master_addr"] or given["local_addr"], given["master_port"]
    host, colon, port = endpoint.rpartition(":") if not endpoint.endswith("]") else (endpoint, "", "")
    if not colon:
        host = endpoint
    elif not (port.isdecimal() and int(port) < 65536):
        raise ConfigError(f"--rdzv-endpoint {endpoint}: the port must be a number below 65536")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not re.fullmatch(r"[\w.:-]+", host):
        raise ConfigError(f"--rdzv-endpoint {endpoint}: write HOST or HOST:PORT, an IPv6 address in brackets")
    return host, int(port) if colon else given["master_port"]
