"""The failure box: who, what it said, where to look; never long."""

from __future__ import annotations

from elastic_run.core.commands import Explain
from elastic_run.core.vocabulary import Blame, ExitStatus, Fault, FaultKind, WorkerError
from elastic_run.observe.words import WIDTH, box, cut, size


def explain(tail: str = "", error: WorkerError | None = None, announced: bool = True) -> Explain:
    status = ExitStatus(signal=11)
    fault = Fault(3, 0, FaultKind.KILLED, Blame.CULPRIT, "SIGSEGV", 1.0, status, 77, error, tail)
    return Explain(fault, 0, "restarting", announced)


def test_it_has_the_last_lines_the_logs_and_the_decision() -> None:
    assert box(explain("one\n\ntwo\n"), "host", "/logs/3") == [
        "  its last lines:",
        "  | one",
        "  | two",
        "  logs: /logs/3",
        "restarting",
    ]


def test_it_names_the_culprit_if_another_rank_was_announced() -> None:
    assert box(explain(announced=False), "host", None) == [
        "it began with rank 3 on host (pid 77): SIGSEGV",
        "restarting",
    ]


def test_with_everything_it_fits_in_twelve_lines_beside_the_announcement() -> None:
    error = WorkerError("\nValueError: no\nmore")
    lines = box(explain("line\n" * 1000, error, announced=False), "host", "/logs")
    assert len(lines) <= 11
    assert lines[1] == "  it says: ValueError: no"


def test_a_line_is_printable_and_not_too_long() -> None:
    assert cut("\x1b[31mred\x07") == "�[31mred�"
    assert len(cut("x" * 1000)) == WIDTH


def test_sizes_are_read_easily() -> None:
    assert [size(n) for n in (0, 999, 1500, 2_500_000, 3 * 10**9)] == [
        "0 bytes", "999 bytes", "1.5 kB", "2.5 MB", "3.0 GB",
    ]  # fmt: skip
