"""Which launchers make up a job: torchrun's rendezvous options and ours -> Nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elastic_run.errors import ConfigError

if TYPE_CHECKING:
    from elastic_run.plan.plan import Nodes

BACKENDS = ("static", "c10d")
DEFAULT_PORT = 29500
DEFAULT_C10D_PORT = 29400
CONF_INTEGERS = (
    "timeout", "read_timeout", "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout",
    "keep_alive_interval", "keep_alive_max_attempt",
)  # fmt: skip
"""Of --rdzv-conf, what torch reads as integers (2.13: its rendezvous package)."""


def nodes(given: Mapping[str, Any]) -> Nodes:
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
    is_host = conf_of(given["rdzv_conf"]).get("is_host", "").lower()
    if is_host not in ("", "0", "1", "true", "false"):
        raise ConfigError(f"--rdzv-conf is_host={is_host}: write true or false")
    leads = is_host in ("1", "true") if is_host else None
    at = (host, DEFAULT_C10D_PORT if port is None else port)
    address = given["master_addr"] or given["local_addr"] or host
    hint = given["node_rank"] or None
    return Nodes(**shared, rank=None, hint=hint, master_addr=address, leader=at, leads=leads)


def seconds(conf: Mapping[str, str], key: str, default: float) -> float:
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


def conf_of(text: str) -> dict[str, str]:
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
