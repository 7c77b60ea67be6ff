"""Each transcript in this folder, played again: of the agent, and in controller/ of ClusterD's side.

`pytest --rewrite` writes what happens now; review the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .desk import Desk
from .stage import Stage

TEXTS = sorted(Path(__file__).parent.rglob("*.txt"))
RULE = "----"


def played(text: str, stage: Stage | Desk) -> str:
    """The transcript with the trace under each command as it is now. Blocks are separated by empty lines."""
    blocks = []
    for block in text.strip().split("\n\n"):
        if block.startswith("#"):
            blocks.append(block)
            continue
        commands = block.split(f"\n{RULE}", 1)[0].splitlines()
        trace = [line for command in commands for line in stage.play(command)]
        if len(commands) > 1:
            trace = [line for line in trace if line != "(nothing)"] or ["(nothing)"]
        blocks.append("\n".join([*commands, RULE, *trace]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    now = played(text, Desk() if path.parent.name == "controller" else Stage())
    if request.config.getoption("rewrite"):
        path.write_text(now)
    else:
        assert now == text


def test_there_are_scenarios() -> None:
    assert {path.parent.name for path in TEXTS} == {"scenarios", "controller"}
    assert len(TEXTS) >= 60
