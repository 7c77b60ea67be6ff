"""The job's secret: who knows it may take part. It is never sent; both ends prove that they know it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from elastic_run.errors import ConfigError

VARIABLE = "ELASTIC_RUN_TOKEN"
MOST_BYTES = 4096


def nonce() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Secret:
    key: bytes
    derived: bool = False
    """From the job's id only: whoever knows that is let in."""

    def proof(self, role: str, *words: object) -> str:
        """Of knowing the secret, by `role`, for these words; nonces of both ends are among them."""
        text = "\0".join([role, *map(str, words)])
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def fits(self, proof: str, role: str, *words: object) -> bool:
        return hmac.compare_digest(proof.encode(), self.proof(role, *words).encode())


def secret(token_file: str | None, job: str, environ: Mapping[str, str]) -> Secret:
    """From --token-file, else from ELASTIC_RUN_TOKEN, else from the job's id.

    Raises:
        ConfigError: the file cannot be read, is a link, is empty or too large, or others may read it.
    """
    if token_file is not None:
        return Secret(_read(token_file))
    token = environ.get(VARIABLE, "")
    return Secret(token.encode()) if token else Secret(f"elastic-run {job}".encode(), derived=True)


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"--token-file {path}: {error.strerror}; name a file that only you may read") from error
    with open(fd, "rb") as file:
        if os.fstat(fd).st_mode & 0o077:
            raise ConfigError(f"--token-file {path}: others may read it; chmod 600 it")
        token = file.read(MOST_BYTES + 1).strip()
    if not 0 < len(token) <= MOST_BYTES:
        raise ConfigError(f"--token-file {path}: it must hold 1 to {MOST_BYTES} bytes")
    return token
