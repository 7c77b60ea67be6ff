"""offer(): which strategies this job can honour now, and why."""

from __future__ import annotations

from elastic_run.core.budget import Verdict
from elastic_run.core.dialogue import Offer, Strategy


def offer(budget: Verdict) -> Offer:
    """Exit can always be honoured; recover only while restarts are left."""
    if budget.allowed:
        return Offer((Strategy.RECOVER, Strategy.EXIT), budget.because)
    return Offer((Strategy.EXIT,), budget.because)
