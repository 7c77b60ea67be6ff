"""The command line: `elastic-run [options] script …` and its few commands; parse, build a Plan, launch."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

from elastic_run import __version__
from elastic_run.errors import ElasticRunError, ExitCode

EPILOG = """
\b
Values come from: option, then PET_* or ELASTIC_RUN_* variable, then default.
\b
Exit codes
  0   all ranks succeeded (after SIGTERM/SIGINT/SIGHUP: they all then exited 0)
  n   a failure: the first culprit's own code, 128+n if signal n killed it
  2   wrong usage, nothing was started
  69  rendezvous or ClusterD out of reach
  70  a bug of elastic-run itself (its story is printed)
  71  a process survives SIGKILL: this host must be recycled
  75  please requeue (stopped by a signal in a Slurm job, or --on-stop requeue)
  93  do not requeue: crash loop without progress
summary.json in the run directory says whose the code is.
\b
Commands
  elastic-run version
  elastic-run server      run a fault centre that speaks ClusterD's protocol; see elastic-run server --help
(a script of such a name: ./version, or after --)
"""


def _launch_command(argv: Sequence[str]) -> tuple[click.Command, list[str]]:
    """The command and the words for it: `argv` with torchrun's abbreviations spelled out."""
    from elastic_run.plan.flags import expanded, options, origins, plan_from

    @click.command(
        name="elastic-run",
        context_settings={
            "allow_interspersed_args": False,
            "help_option_names": ["-h", "--help"],
            "max_content_width": 110,
        },
        epilog=EPILOG,
    )
    @options
    @click.version_option(__version__, prog_name="elastic-run", message="%(prog)s %(version)s")
    @click.argument("script", type=click.Path())
    @click.argument("args", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def launch_command(context: click.Context, /, **_: object) -> None:
        """Start SCRIPT in several ranks, supervise them, and restart them after a fault."""
        plan = plan_from(context)
        if context.params["dry_run"]:
            from elastic_run.plan.preview import preview

            click.echo("\n".join(preview(plan, origins(context))))
            return
        from elastic_run.compose.job import run_job

        run_job(plan)

    return launch_command, expanded(argv, launch_command)


def version(args: Sequence[str]) -> int:
    if args:
        raise click.UsageError("`elastic-run version` takes no argument; a script of that name is ./version")
    click.echo(f"elastic-run {__version__}")
    return ExitCode.OK


def server(args: Sequence[str]) -> int:
    from elastic_run.clusterd.commandline import server as command

    return int(command.main(list(args), prog_name="elastic-run server", standalone_mode=False) or 0)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"version": version, "server": server}
"""Only the first word of the command line names a command; any later word is the script."""


def run(argv: Sequence[str]) -> int:
    """The exit code for a command line. Errors of ours are one line on stderr."""
    try:
        if argv and argv[0] in COMMANDS:
            return COMMANDS[argv[0]](argv[1:])
        from elastic_run.rendezvous.environment import is_nested, scrubbed

        if is_nested(os.environ):
            kept = scrubbed(os.environ)
            click.echo(
                "elastic-run: started by another launcher; its PET_*, rank and store variables are ignored",
                err=True,
            )
            for name in set(os.environ) - set(kept):
                del os.environ[name]
        # Returns only after --help and --version; a launch ends the process.
        command, words = _launch_command(argv)
        return int(command.main(words, prog_name="elastic-run", standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        remedy = "" if ";" in error.format_message() else "; see elastic-run --help"
        return _complain(f"{error.format_message().rstrip('.')}{remedy}", ExitCode.USAGE)
    except click.exceptions.Abort:
        return 130
    except ElasticRunError as error:
        return _complain(str(error), error.exit_code)


def _complain(text: str, code: int) -> int:
    click.echo(f"elastic-run: {text}", err=True)
    return code


def main() -> NoReturn:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the supervisor listens: an end, not a traceback
    sys.exit(run(sys.argv[1:]))
