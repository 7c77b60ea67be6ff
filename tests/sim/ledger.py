"""The restart budget and the crash-loop guard, kept a second time from the documents and compared with the agent's."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_run.core.events import Event, ProgressRead
from elastic_run.core.policy import Policy


@dataclass(slots=True)
class Ledger:
    policy: Policy
    restarts: list[float] = field(default_factory=list)
    forgiven: set[int] = field(default_factory=set)
    """Those of the restarts that are not counted, by their number."""
    futile: int = 0
    """Failures in a row without progress."""
    token: str = ""
    looks: int = 0
    look: tuple[int, float, float] | None = None
    """A look at the progress file: its number, when it counts as unknown, how long training had lasted."""

    def failed(self, at: float, uptime: float) -> None:
        """A group failed after so long; where a progress file is known, a look at it decides."""
        if self.policy.progress_known:
            self.look = (self.looks, at + self.policy.progress_wait, uptime)
        else:
            self.observe(None, uptime)

    def hears(self, fact: Event, at: float, *, leaving: bool) -> None:
        if self.look is None:
            return
        seq, by, uptime = self.look
        if isinstance(fact, ProgressRead) and fact.seq == seq and not leaving:
            self.look = None
            self.observe(fact.token or "", uptime)
        elif at >= by:
            self.look = None
            self.observe(None, uptime)

    def observe(self, token: str | None, uptime: float) -> None:
        if token is not None:
            advanced, self.token = token != self.token, token
        else:
            guarded = self.policy.progress_known or self.policy.max_restarts is None
            advanced = not guarded or uptime >= self.policy.short_life
        self.futile = 0 if advanced else self.futile + 1

    @property
    def crash_loop(self) -> bool:
        return self.futile >= self.policy.max_no_progress

    def allows(self, at: float) -> bool:
        if self.crash_loop:
            return False
        since = -1.0 if self.policy.window is None else at - self.policy.window
        counted = [t for number, t in enumerate(self.restarts) if number not in self.forgiven]
        return self.policy.max_restarts is None or sum(t > since for t in counted) < self.policy.max_restarts

    def forgives(self) -> bool:
        return len(self.forgiven) < 3
