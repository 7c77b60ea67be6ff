"""`elastic-run server …`: run a fault centre that speaks ClusterD's protocol, and tell it what happens."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import grpc

from elastic_run.clusterd.channel import Certificates, cause, open_channel, read
from elastic_run.clusterd.jobs import declared
from elastic_run.clusterd.operator import AILING, KINDS
from elastic_run.clusterd.pb import operator as pb
from elastic_run.clusterd.registry import Declared, Registry
from elastic_run.clusterd.server import fresh_name, serve
from elastic_run.clusterd.store import Store
from elastic_run.clusterd.terms import CLUSTERD, FAST
from elastic_run.errors import ConfigError, PlatformError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

TIMINGS = {"fast": FAST, "clusterd": CLUSTERD}
WAIT = 10.0
"""Seconds for a server to answer an operator."""
MOST_BYTES = 16 << 20


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--listen", metavar="HOST:PORT", help="Run a server here; port 0 takes a free one and says which.")
@click.option("--jobs", "jobs_file", type=click.Path(), help="Jobs to declare at the start, TOML or JSON.")
@click.option("--state", type=click.Path(), help="Directory in which jobs, registrations and device faults survive.")
@click.option(
    "--timing",
    type=click.Choice([*TIMINGS]),
    default="fast",
    show_default=True,
    help="'clusterd' waits as ClusterD does: 11 s before each decision.",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=1),
    default=1000.0,
    show_default=True,
    help="Calls a second that are answered; the rest is refused.",
)
@click.option("--tls-cert", type=click.Path(), help="The server's certificate (PEM).")
@click.option("--tls-key", type=click.Path(), help="Its key.")
@click.option("--tls-client-ca", type=click.Path(), help="Accept only clients with a certificate signed by this one.")
@click.pass_context
def server(context: click.Context, /, listen: str | None, **given: Any) -> None:
    """Run a fault centre that speaks ClusterD's protocol, or tell one that runs what happens."""
    if context.invoked_subcommand is not None:
        if listen:
            raise click.UsageError("--listen runs a server; the commands talk to one, with --server")
        return
    if not listen:
        raise click.UsageError("write --listen HOST:PORT to run a server, or one of its commands")
    _serve(listen, **given)


def _serve(
    listen: str, jobs_file: str | None, state: str | None, timing: str, limit: float, tls_cert: str | None,
    tls_key: str | None, tls_client_ca: str | None,
) -> None:  # fmt: skip
    credentials = _credentials(tls_cert, tls_key, tls_client_ca)
    registry = Registry(fresh_name(), TIMINGS[timing])
    store = Store(Path(state)) if state else None
    if store is not None:
        store.load(registry, time.monotonic(), time.time())
    for job, told in _jobs(jobs_file).items():
        registry.declare(job, told)
    scheme = "grpc" if credentials is None else "grpcs"
    host = listen.rpartition(":")[0]

    def ready(port: int) -> None:
        click.echo(f"elastic-run server: {len(registry.declared)} jobs, listening on {scheme}://{host}:{port}")

    async def main() -> None:
        stop = asyncio.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signum, stop.set)
        await serve(registry, listen, credentials, store, limit, ready, stop)

    try:
        asyncio.run(main())
    except OSError as error:
        raise ConfigError(f"--listen {error}") from error
    finally:
        if store is not None:
            store.close()


def _credentials(cert: str | None, key: str | None, ca: str | None) -> grpc.ServerCredentials | None:
    if (cert is None) != (key is None) or (ca is not None and cert is None):
        raise ConfigError("--tls-cert and --tls-key go together, and --tls-client-ca needs both")
    if cert is None or key is None:
        return None
    Certificates(ca, cert, key).check()
    client_ca = None if ca is None else read(ca)
    return grpc.ssl_server_credentials([(read(key), read(cert))], client_ca, require_client_auth=ca is not None)


def _jobs(path: str | None) -> dict[str, Declared]:
    """{"job": [{"id": …, …}]} of a file, by id."""
    if path is None:
        return {}
    try:
        text = Path(path).read_bytes()[: MOST_BYTES + 1].decode()
        told = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--jobs {path}: {error}") from error
    rows = told.get("job") if isinstance(told, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows):
        raise ConfigError(f"--jobs {path}: write a table [[job]] with an id for each job")
    return {row["id"]: declared(row["id"], {k: v for k, v in row.items() if k != "id"}) for row in rows}


# -- the commands


def _to_server(function: Any) -> Any:
    for option in (
        click.option("--key", type=click.Path(), help="Its key."),
        click.option("--cert", type=click.Path(), help="Our certificate, for mutual TLS."),
        click.option("--ca", type=click.Path(), help="Certificate of who signed the server's; asks for TLS."),
        click.option("--server", "target", metavar="HOST:PORT", envvar="ELASTIC_RUN_SERVER", show_envvar=True,
                     default="127.0.0.1:8899", show_default=True, help="The server to tell."),
    ):  # fmt: skip
        function = option(function)
    return function


def _ask(name: str, request: Any, target: str, ca: str | None, cert: str | None, key: str | None) -> Any:
    certificates = Certificates(ca, cert, key) if ca or cert else None
    with open_channel(target, certificates) as channel:
        method = pb.METHODS[name]
        call = channel.unary_unary(method.path, method.request.SerializeToString, method.answer.FromString)
        try:
            answer = call(request, timeout=WAIT)
        except grpc.RpcError as error:
            raise PlatformError(f"the server at {target} does not answer: {cause(error)}") from error
    if getattr(answer, "error", ""):
        raise ConfigError(answer.error)
    return answer


@server.command()
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@_to_server
def jobs(as_json: bool, **to: Any) -> None:
    """List the jobs, with the state of each."""
    rows = [_row(job) for job in _ask("List", pb.Everything(), **to).jobs]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        marks = [word for word in ("subscribed", "paused") if row[word]] + ([] if row["running"] else ["not running"])
        nodes = f", faulty nodes {', '.join(map(str, row['faulty_nodes']))}" if row["faulty_nodes"] else ""
        left = f", at most {row['seconds_left']:.0f} s" if row["seconds_left"] else ""
        click.echo(f"{row['id']}: {row['state']}{left}{nodes}{f' ({chr(44).join(marks)})' if marks else ''}")


def _row(job: Any) -> dict[str, Any]:
    names = ("id", "state", "incident", "registered", "subscribed", "running", "paused", "seconds_left")
    told = {name: getattr(job, name) for name in names}
    return {**told, "faulty_nodes": list(job.faulty_nodes), "terms": json.loads(job.terms)}


@server.command()
@click.argument("job")
@click.option("--strategies", default="recover,dump", show_default=True, help="What the job may do, besides exit.")
@click.option("--nodes", type=int, default=1, show_default=True)
@click.option("--ranks-per-node", type=int, default=1, show_default=True)
@click.option("--term", "terms", multiple=True, metavar="NAME=VALUE", help="Any other term, as in the jobs file.")
@_to_server
def declare(job: str, strategies: str, nodes: int, ranks_per_node: int, terms: tuple[str, ...], **to: Any) -> None:
    """Declare JOB, or declare it anew: that counts from its next Init on a new registration."""
    told: dict[str, Any] = {"nodes": nodes, "ranks_per_node": ranks_per_node}
    told["strategies"] = [word for word in strategies.split(",") if word]
    for term in terms:
        name, equals, value = term.partition("=")
        if not equals:
            raise ConfigError(f"--term {term}: write NAME=VALUE")
        try:
            told[name] = json.loads(value)
        except ValueError:
            told[name] = value
    declared(job, told)
    _ask("Declare", pb.Job(id=job, terms=json.dumps(told)), **to)


@server.command()
@click.argument("job")
@click.option("--rank", type=int, required=True)
@click.option(
    "--kind",
    type=click.Choice([*KINDS, AILING]),
    default="device",
    show_default=True,
    help="device: broken; memory, network: a retry may cure it; ailing: not quite healthy.",
)
@click.option("--clear", is_flag=True, help="It is gone.")
@_to_server
def fault(job: str, rank: int, kind: str, clear: bool, **to: Any) -> None:
    """A device of JOB shows a fault."""
    _ask("Raise", pb.Alarm(id=job, rank=rank, kind=kind, clear=clear), **to)


@server.command("node-back")
@click.argument("job")
@click.argument("node", type=int)
@_to_server
def node_back(job: str, node: int, **to: Any) -> None:
    """NODE of JOB was started anew and waits for the job."""
    _ask("ChangeNode", pb.NodeChange(id=job, node=node), **to)


@server.command("node-gone")
@click.argument("job")
@click.argument("node", type=int)
@_to_server
def node_gone(job: str, node: int, **to: Any) -> None:
    """NODE of JOB, which was exchanged, is gone."""
    _ask("ChangeNode", pb.NodeChange(id=job, node=node, gone=True), **to)


@server.command()
@click.argument("job")
@click.argument("running", type=click.Choice(["yes", "no"]))
@_to_server
def runs(job: str, running: str, **to: Any) -> None:
    """Whether the cluster runs JOB."""
    _ask("SetRunning", pb.Running(id=job, running=running == "yes"), **to)


@server.command()
@click.argument("job")
@_to_server
def stop(job: str, **to: Any) -> None:
    """Forget JOB; its stream ends."""
    _ask("Delete", pb.JobId(id=job), **to)
