"""Exits in words and as a shell shows them."""

from __future__ import annotations

from signal import SIGRTMIN

import pytest

from elastic_run.core.vocabulary import ExitStatus, signal_name


@pytest.mark.parametrize(
    ("status", "words", "shell", "ok"),
    [
        (ExitStatus(code=0), "exit code 0", 0, True),
        (ExitStatus(code=3), "exit code 3", 3, False),
        (ExitStatus(signal=9), "SIGKILL", 137, False),
        (ExitStatus(signal=11, core=True), "SIGSEGV (core dumped)", 139, False),
        (ExitStatus(), "exit code None", 0, False),
    ],
)
def test_an_exit(status: ExitStatus, words: str, shell: int, ok: bool) -> None:
    assert (status.describe(), status.shell_code, status.ok) == (words, shell, ok)


def test_signals_have_names_even_where_the_library_knows_none() -> None:
    assert signal_name(15) == "SIGTERM"
    assert signal_name(SIGRTMIN + 3) == "SIGRTMIN+3"
    assert signal_name(33) == "signal 33"
