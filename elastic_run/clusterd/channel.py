"""A gRPC channel to ClusterD: plain, TLS or mutual TLS. Bad certificates are told before anything starts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elastic_run.errors import ConfigError

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what matters is told by us, once
import grpc

from elastic_run.clusterd.pb import recover as pb

MOST_BYTES = 1 << 20
"""A file with certificates is smaller."""
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),  # ClusterD ends connections that ping more often than every 3 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 8 << 20),
)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files: who signs servers (None: the system's list), and what we show of ourselves."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def check(self) -> None:
        """Before anything is started.

        Raises:
            ConfigError: a file cannot be read, holds no certificate, or key and certificate do not fit.
        """
        for path in (self.ca, self.cert, self.key):
            if path is not None:
                read(path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if (self.cert is None) != (self.key is None):
            raise ConfigError("a certificate of our own needs its key, and the key the certificate; give both or none")
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise ConfigError(f"{self.ca} holds no PEM certificate") from error
        try:
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            what = f"{self.cert} and {self.key} are no certificate and its key"
            raise ConfigError(f"{what} (PEM, without a pass phrase)") from error


def open_channel(target: str, certificates: Certificates | None) -> grpc.Channel:
    """`target` is HOST:PORT. Without `certificates` in the clear.

    Raises:
        ConfigError: as Certificates.check.
    """
    if certificates is None:
        return grpc.insecure_channel(target, options=OPTIONS)
    certificates.check()
    paths = (certificates.ca, certificates.cert, certificates.key)
    ca, cert, key = (None if path is None else read(path) for path in paths)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, cert), options=OPTIONS)


def rpc(channel: grpc.Channel, name: str) -> Callable[..., Any]:
    """A method of service Recover: request in, answer or stream of answers out."""
    method = pb.METHODS[name]
    make = channel.unary_stream if method.streams else channel.unary_unary
    call: Callable[..., Any] = make(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.answer.FromString,
    )
    return call


def cause(error: grpc.RpcError) -> str:
    """What went wrong, short: the last part of gRPC's story."""
    details = str(error.details() or "").strip()
    told = details.rpartition("last error: ")[2].replace("UNKNOWN: ", "")
    for mark in ("CERTIFICATE_VERIFY_FAILED: ", "OPENSSL_internal:"):
        if mark in told:
            return "its certificate is not accepted: " + told.rpartition(mark)[2].lower().replace("_", " ")
    return told.rpartition("Failed to connect to remote host: ")[2] or error.code().name.lower()


def read(path: str) -> bytes:
    """A certificate file.

    Raises:
        ConfigError: it cannot be read, or is too large for one.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the certificate file {path} cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"the certificate file {path} is larger than {MOST_BYTES} bytes; is it the right one?")
    return data
