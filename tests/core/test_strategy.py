"""What can be offered follows from the budget, and carries its reason."""

from __future__ import annotations

from elastic_run.core.budget import Verdict
from elastic_run.core.dialogue import Offer, Strategy
from elastic_run.core.strategy import offer


def test_recover_only_while_restarts_are_left_and_exit_always() -> None:
    assert offer(Verdict(True, "yes")) == Offer((Strategy.RECOVER, Strategy.EXIT), "yes")
    assert offer(Verdict(False, "no")) == Offer((Strategy.EXIT,), "no")
