"""The options of a launch, with click, and what they mean: parsed values -> Plan."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from elastic_run.errors import ConfigError
from elastic_run.plan.command import command

if TYPE_CHECKING:
    from elastic_run.plan.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])

UNLIMITED = "unlimited"


def torchruns(name: str) -> str:
    """Environment variable of an option that torchrun has."""
    return "PET_" + name.upper()


def ours(name: str) -> str:
    """Environment variable of an option that only we have."""
    return "ELASTIC_RUN_" + name.upper()


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
        return tuple(self._one(word.strip(), param, ctx) for word in str(value).split(",") if word.strip())

    def _one(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            full = word.upper() if word.upper().startswith("SIG") else f"SIG{word.upper()}"
            number = signal.Signals(int(word)) if word.isdigit() else signal.Signals[full]
        except (KeyError, ValueError):
            self.fail(f"{word!r} is no signal; write names such as SIGUSR1", param, ctx)
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            self.fail(f"{number.name} cannot be handled", param, ctx)
        return int(number)


def _option(name: str, env: Callable[[str], str], *more: str, **attrs: Any) -> Callable[[F], F]:
    spellings = [f"--{name}"] + ([f"--{name.replace('-', '_')}"] if "-" in name else [])
    field = name.replace("-", "_")
    return click.option(*spellings, *more, field, envvar=env(field), show_envvar=True, **attrs)


SECONDS = click.FloatRange(min=0)

OPTIONS: list[Callable[[Any], Any]] = [
    _option("nproc-per-node", torchruns, type=click.IntRange(min=1), default=1, show_default=True,
            help="Ranks to start on this machine."),
    _option("max-restarts", torchruns, type=Restarts(), default="0", show_default=True,
            help="How often the group is restarted after a fault; 'unlimited' leaves it to the crash-loop guard."),
    _option("restart-window", ours, type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
            help="Count only the restarts of the last SECONDS against --max-restarts.  [default: count all]"),
    _option("progress-file", ours, type=click.Path(),
            help="A file that changes when training advances, such as the newest checkpoint's marker; "
                 "lets the crash-loop guard tell progress."),
    _option("max-no-progress", ours, type=click.IntRange(min=1), default=3, show_default=True,
            help="Crash-loop guard: exit 93 after so many failures in a row without progress. It acts with "
                 "--progress-file or --max-restarts unlimited."),
    _option("shutdown-timeout", torchruns, type=SECONDS, default=30.0, show_default=True,
            help="Seconds from asking a worker to stop to SIGKILL, after a signal and after a fault."),
    _option("signals-to-handle", torchruns, type=SignalList(), default="",
            help="Signals passed on to the workers besides SIGTERM, SIGINT and SIGHUP."),
    _option("on-stop", ours, type=click.Choice(["auto", "exit", "requeue"]), default="auto", show_default=True,
            help="Exit code after a stop by signal: 'exit' 0 or 128+n, 'requeue' 75; 'auto' requeues in a Slurm job."),
    _option("exit-code", ours, type=click.Choice(["worker", "torchrun"]), default="worker", show_default=True,
            help="'worker' passes the culprit's own code on; 'torchrun' gives 1 for every failure."),
    _option("rdzv-id", torchruns, help="Name of the job; part of the run directory's name."),
    _option("master-port", torchruns, type=click.IntRange(0, 65535), default=0,
            help="Port of the workers' store.  [default: a free one for each round]"),
    _option("log-dir", torchruns, type=click.Path(),
            help="Where run directories go.  [default: ./elastic-run-logs]"),
    _option("prefix", ours, type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
            help="Rank before each line of output; 'auto': with several ranks on a terminal."),
    _option("module", torchruns, "-m", is_flag=True, help="The script is a module, as with python -m."),
    _option("no-python", torchruns, is_flag=True, help="The script is a program of any kind; exec it."),
]  # fmt: skip


def options(function: F) -> F:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def plan_from(context: click.Context, environ: Mapping[str, str] = os.environ) -> Plan:
    """The Plan of a parsed command line.

    Raises:
        ConfigError: the values contradict each other or name what does not exist.
    """
    from elastic_run.core.policy import Policy  # here: --help and usage errors do not load the core
    from elastic_run.plan.plan import Plan

    given = dict(context.params)
    script, args = given.pop("script"), given.pop("args")
    argv = command(script, args, module=given["module"], no_python=given["no_python"], environ=environ)
    restarts = None if given["max_restarts"] == UNLIMITED else int(given["max_restarts"])
    if given["restart_window"] is not None and not restarts:
        raise ConfigError("--restart-window needs --max-restarts N with N of 1 or more: it limits what N counts")
    return Plan(
        argv=argv,
        workers=given["nproc_per_node"],
        policy=Policy(
            max_restarts=restarts,
            window=given["restart_window"],
            max_no_progress=given["max_no_progress"],
            progress_known=given["progress_file"] is not None,
            stop_grace=given["shutdown_timeout"],
            requeue_on_stop=_requeues(given["on_stop"], environ),
        ),
        run_id=given["rdzv_id"],
        log_dir=given["log_dir"],
        master_port=given["master_port"],
        signals=given["signals_to_handle"],
        progress_file=given["progress_file"],
        prefix=given["prefix"],
        plain_exit_code=given["exit_code"] == "torchrun",
        origins=_origins(context),
    )


def _requeues(on_stop: str, environ: Mapping[str, str]) -> bool:
    scheduled = "SLURM_JOB_ID" in environ or "MINDX_TASK_ID" in environ
    return on_stop == "requeue" or (on_stop == "auto" and scheduled)


def _origins(context: click.Context) -> dict[str, str]:
    words = {ParameterSource.COMMANDLINE: "command line", ParameterSource.ENVIRONMENT: "environment"}
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: words[source] for name, source in sources.items() if source in words}
