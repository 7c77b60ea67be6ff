"""Which ClusterD a job belongs to: --clusterd, or the variables of a MindCluster pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_run.errors import ConfigError

PORT = 8899
OFF = "off"
PROXY = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Clusterd:
    """`target` is HOST:PORT. Certificates are paths; without `tls` everything is in the clear."""

    target: str
    job: str
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    note: str = ""
    """For people."""


def clusterd(given: Mapping[str, Any], environ: Mapping[str, str]) -> Clusterd | None:
    """The option (or its variable) first; in a pod (MINDX_TASK_ID) the server that the pod names.

    Raises:
        ConfigError: the address or what belongs to it makes no sense.
    """
    text, note = given["clusterd"], ""
    pod = environ.get("MINDX_TASK_ID", "")
    if not text and pod and environ.get("MINDX_SERVER_IP"):
        local = environ.get("LOCAL_PROXY_ENABLE") == "on"
        text = PROXY if local else environ["MINDX_SERVER_IP"]
        note = "" if local else "in the clear, as the variable MINDX_SERVER_IP says no more than an address"
    if not text or text == OFF:
        _nothing_else(given)
        return None
    job = given["clusterd_job"] or pod or given["rdzv_id"]
    if not job:
        raise ConfigError("--clusterd needs the job's id: --clusterd-job, --rdzv-id or the variable MINDX_TASK_ID")
    tls, target = _target(text)
    files = {name: given[f"clusterd_{name}"] for name in ("ca", "cert", "key")}
    if not tls and any(files.values()):
        raise ConfigError(f"--clusterd {text} is in the clear and needs no certificates; write grpcs://{target}")
    return Clusterd(target, job, tls, note=note, **files)


def _nothing_else(given: Mapping[str, Any]) -> None:
    for name in ("clusterd_ca", "clusterd_cert", "clusterd_key", "clusterd_job", "require_clusterd"):
        if given[name]:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} needs --clusterd ADDRESS: there is no ClusterD to talk to")


def _target(text: str) -> tuple[bool, str]:
    """grpc://HOST:PORT in the clear, grpcs:// with TLS; without a scheme in the clear; without a port 8899."""
    scheme, mark, rest = text.rpartition("://")
    if mark and scheme not in ("grpc", "grpcs"):
        raise ConfigError(f"--clusterd {text}: write grpc://HOST:PORT, or grpcs://HOST:PORT for TLS")
    host, port = _parts(rest)
    if not host or not (port.isdigit() and 0 < int(port) < 65536) or "/" in rest:
        raise ConfigError(f"--clusterd {text}: write HOST:PORT, such as clusterd-grpc-svc.mindx-dl:8899")
    return scheme == "grpcs", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parts(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":") if port else str(PORT)
    if text.count(":") > 1:  # an IPv6 address without brackets
        return text, str(PORT)
    host, colon, port = text.partition(":")
    return host, port if colon else str(PORT)
