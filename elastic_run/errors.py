"""Exit codes, which are a contract, and the exceptions that lead to them. Imports nothing of ours."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Codes of the launcher itself; a failed job ends with the culprit's own code instead."""

    OK = 0
    USAGE = 2
    UNAVAILABLE = 69
    """ClusterD or the rendezvous is out of reach."""
    INTERNAL = 70
    """A bug of ours; the story is printed."""
    RECYCLE_HOST = 71
    """This host must not be used again before it is looked at."""
    REQUEUE = 75
    """Please start the job again."""
    DO_NOT_REQUEUE = 93
    """Crash loop: starting it again would fail again."""


class ElasticRunError(Exception):
    """Base of all errors of this package; `str()` is one line that names the cause and the remedy."""

    exit_code = ExitCode.INTERNAL


class ConfigError(ElasticRunError):
    """The user's options are wrong; the message names the option."""

    exit_code = ExitCode.USAGE


class PlatformError(ElasticRunError):
    """The host, the driver or the network does not do what a launcher needs."""

    exit_code = ExitCode.UNAVAILABLE


class WorkersFailed(ElasticRunError):
    """The job of `elastic_run.launch` failed.

    Attributes:
        code: the launcher's exit code.
        rank: of the first failure; None if no rank is to blame.
        error: what that rank said in its error file, if anything.
        tail: the end of its stderr, or of its output where both streams were one.
    """

    def __init__(
        self, because: str, code: int, rank: int | None = None, error: str | None = None, tail: str = ""
    ) -> None:
        super().__init__(f"{because}: {error}" if error else because)
        self.code, self.rank, self.error, self.tail = code, rank, error, tail


class InvariantBroken(ElasticRunError):
    """The core contradicts itself: a bug of ours. Carries the story."""
