"""Exits in words and as a shell shows them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, is_dataclass, replace
from signal import SIGRTMIN

import pytest

from elastic_run.core import vocabulary
from elastic_run.core.dialogue import StopCompleted
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind, signal_name


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


def test_blame_goes_from_the_likeliest_to_the_least() -> None:
    order = [Blame.CULPRIT, Blame.STOPPED_WHILE_FAILING, Blame.VICTIM, Blame.STOPPED]
    assert sorted(Blame, key=lambda blame: blame.value) == order


def test_to_have_stopped_is_a_success_unless_said_otherwise() -> None:
    assert StopCompleted() == StopCompleted(0)


def test_nobody_changes_a_noun_on_its_way() -> None:
    with pytest.raises(FrozenInstanceError):
        ExitStatus(code=0).code = 1  # type: ignore[misc]
    nouns = [v for v in vars(vocabulary).values() if isinstance(v, type) and is_dataclass(v)]
    assert all(noun.__dataclass_params__.frozen for noun in nouns)  # type: ignore[attr-defined]


def test_our_own_signal_is_no_exit_code_of_a_failure() -> None:
    fault = Fault(0, 0, FaultKind.KILLED, Blame.STOPPED_WHILE_FAILING, "x", 1.0, ExitStatus(signal=15))
    assert fault.code == 1
    assert replace(fault, status=ExitStatus(code=7)).code == 7
    assert replace(fault, blame=Blame.CULPRIT).code == 143
