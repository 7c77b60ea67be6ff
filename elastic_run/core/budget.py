"""Restart budget over a sliding window, and the crash-loop guard."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_run.core.policy import Policy

MOST_FORGIVEN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    because: str
    crash_loop: bool = False


@dataclass(slots=True)
class Budget:
    policy: Policy
    spent: list[float] = field(default_factory=list)
    futile: int = 0
    """Failures in a row that made no progress."""
    forgiven: int = 0
    """Restarts for which no rank was to blame."""
    progress: str | None = ""
    """The file's state at the last look; empty is how a file that does not exist reads."""

    def observe(self, token: str | None, uptime: float) -> None:
        """A group failed after `uptime` seconds; `token` is the progress file's state, None if unknown."""
        if token is not None:
            advanced, self.progress = token != self.progress, token
        elif self.policy.progress_known or self.policy.max_restarts is None:
            advanced = uptime >= self.policy.short_life
        else:
            advanced = True
        self.futile = 0 if advanced else self.futile + 1

    def verdict(self, at: float) -> Verdict:
        """May the group be restarted now? Asking spends nothing."""
        if self.futile >= self.policy.max_no_progress:
            return Verdict(False, f"crash loop: {self.futile} failures in a row without progress", crash_loop=True)
        limit = self.policy.max_restarts
        if limit is None:
            return Verdict(True, f"restart {len(self.spent) + 1}, no limit")
        used = len(self._counted(at))
        span = "" if self.policy.window is None else f" within {self.policy.window:g} s"
        if limit == 0:
            return Verdict(False, "no restarts allowed (--max-restarts 0)")
        if used >= limit:
            return Verdict(False, f"{used} of {limit} restarts used{span} (--max-restarts)")
        return Verdict(True, f"restart {used + 1} of {limit}{span}")

    def spend(self, at: float) -> Verdict:
        """As `verdict`; an allowed restart is counted."""
        answer = self.verdict(at)
        if answer.allowed:
            self.spent.append(at)
        return answer

    def forgive(self) -> Verdict:
        """May the group be restarted because a part of our own failed? It costs the job nothing, but it has a bound."""
        if self.forgiven >= MOST_FORGIVEN:
            return Verdict(False, f"the workers' store was lost {self.forgiven + 1} times")
        return Verdict(True, "a new store, not counted as a restart")

    def _counted(self, at: float) -> list[float]:
        window = self.policy.window
        return self.spent if window is None else [t for t in self.spent if t > at - window]
