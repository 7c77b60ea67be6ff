"""PURE: what people read: the failure box, at most 12 lines with the line that announced the fault."""

from __future__ import annotations

from collections.abc import Iterable

from elastic_run.core.commands import Explain

TAIL_LINES = 6
WIDTH = 200


def box(order: Explain, host: str, logs: str | None) -> list[str]:
    """Rank and host, pid and exit, the worker's own message, its last lines, where the logs are, what was decided."""
    fault = order.fault
    pid = f" (pid {fault.pid})" if fault.pid is not None else ""
    lines = [] if order.announced else [f"it began with rank {fault.rank} on {host}{pid}: {fault.because}"]
    if fault.error is not None:
        lines.append(f"  it says: {cut(_first_line(fault.error.message))}")
    tail = last_lines(fault.tail.splitlines())
    if tail:
        lines.append("  its last lines:")
        lines += [f"  | {cut(line)}" for line in tail]
    if logs is not None:
        lines.append(f"  logs: {logs}")
    return [*lines, order.decision] if order.decision else lines


def last_lines(lines: Iterable[str]) -> list[str]:
    kept = [line.rstrip() for line in lines if line.strip()]
    return kept[-TAIL_LINES:]


def cut(line: str) -> str:
    """Printable, and no longer than a line should be."""
    plain = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line)
    return plain if len(plain) <= WIDTH else plain[: WIDTH - 1] + "…"


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def size(count: int) -> str:
    """Bytes in words: `1.5 MB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
