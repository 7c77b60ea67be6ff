"""Writes the tables and the diagram of docs/protocol.md from core/phases.py; `--check` only compares."""

import sys
from pathlib import Path

from elastic_run.core.phases import LIFE_MOVES, PHASE_MOVES, UNBOUNDED

PAGE = Path(__file__).with_name("protocol.md")
BEGIN, END = "<!-- drawn from core/phases.py -->", "<!-- end -->"


def drawn() -> str:
    """The generated part of the page."""
    lines = ["", "```mermaid", "stateDiagram-v2", "    [*] --> starting"]
    lines += [f"    {a.value} --> {b.value}" for a, moves in PHASE_MOVES.items() for b in moves]
    lines += ["    done --> [*]", "```", "", "| from | to | when |", "|---|---|---|"]
    lines += [f"| {a.value} | {b.value} | {why} |" for a, moves in PHASE_MOVES.items() for b, why in moves.items()]
    forever = ", ".join(sorted(phase.value for phase in UNBOUNDED))
    lines += ["", f"Without a deadline: {forever}. Every other phase has one.", "", "Lives of a worker:", ""]
    for life, moves in LIFE_MOVES.items():
        lines.append(f"- {life.value} → {', '.join(sorted(to.value for to in moves))}")
    return "\n".join([*lines, ""])


def main() -> int:
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    new = f"{head}{BEGIN}\n{drawn()}\n{END}{tail}"
    if "--check" in sys.argv:
        return int(new != page)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
