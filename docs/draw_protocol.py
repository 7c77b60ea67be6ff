"""Writes the tables and diagrams of docs/ that are drawn from the source; `--check` only compares."""

import sys
from pathlib import Path

from elastic_run.clusterd.states import WAITS
from elastic_run.core.phases import LIFE_MOVES, PHASE_MOVES, UNBOUNDED

HERE = Path(__file__).parent
END = "<!-- end -->"


def phases() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> starting"]
    lines += [f"    {a.value} --> {b.value}" for a, moves in PHASE_MOVES.items() for b in moves]
    lines += ["    done --> [*]", "```", "", "| from | to | when |", "|---|---|---|"]
    lines += [f"| {a.value} | {b.value} | {why} |" for a, moves in PHASE_MOVES.items() for b, why in moves.items()]
    forever = ", ".join(sorted(phase.value for phase in UNBOUNDED))
    lines += ["", f"Without a deadline: {forever}. Every other phase has one.", "", "Lives of a worker:", ""]
    for life, moves in LIFE_MOVES.items():
        lines.append(f"- {life.value} → {', '.join(sorted(to.value for to in moves))}")
    return lines


def states() -> list[str]:
    lines = ["| state | waits for | at most (`Timing`) | then |", "|---|---|---|---|"]
    for state, wait in WAITS.items():
        report = wait.report.__name__ if wait.report else "a look at the cluster" if wait.poll else "time"
        lines.append(f"| {state.value} | {report} | {wait.bound} | {wait.overdue} |")
    return lines


PAGES = {
    "protocol.md": ("<!-- drawn from core/phases.py -->", phases),
    "clusterd.md": ("<!-- drawn from clusterd/states.py -->", states),
}


def main() -> int:
    stale = 0
    for name, (begin, draw) in PAGES.items():
        page = (HERE / name).read_text()
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(END)
        new = "\n".join([f"{head}{begin}", "", *draw(), "", f"{END}{tail}"])
        stale += new != page
        if "--check" not in sys.argv:
            (HERE / name).write_text(new)
    return int("--check" in sys.argv and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
