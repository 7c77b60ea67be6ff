"""PURE: all jobs of a server: who is declared, initialised, registered and subscribed, and what each is answered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.machine import Answered, Ended, Out
from elastic_run.clusterd.terms import CLUSTERD, Terms, Timing
from elastic_run.core.dialogue import Report

UNREGISTERED = 400
NO_SUCH_JOB = 402
SWITCHED_OFF = 403
NOT_INITIALISED = 408
TOO_MANY = 500
CANNOT_READ = 502
MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Declared:
    """A job as its operator declares it."""

    terms: Terms
    recovery: bool = True
    """Off: the job is told 403 at Init, unless its nodes may be exchanged."""


@dataclass(slots=True)
class Registry:
    """`name` makes the ids of incidents those of this server's life."""

    name: str
    timing: Timing = CLUSTERD
    declared: dict[str, Declared] = field(default_factory=dict)
    initialised: dict[str, Terms] = field(default_factory=dict)
    """As declared at that time; later changes of the declaration count when the job is declared anew."""
    controllers: dict[str, Controller] = field(default_factory=dict)
    registered: int = 0
    """So far; makes the ids of a job's incidents its own."""
    due: list[tuple[float, str]] = field(default_factory=list)
    """When to look at which job; an entry may be out of date."""

    # -- declarations

    def declare(self, job: str, declared: Declared) -> None:
        self.declared[job] = declared

    def delete(self, job: str) -> list[Out]:
        """Its stream ends, and all that is known of it is forgotten."""
        self.declared.pop(job, None)
        self.initialised.pop(job, None)
        controller = self.controllers.pop(job, None)
        if controller is None:
            return []
        controller.finish()
        told, controller.out = controller.out, []
        return told

    # -- calls of a job

    def init(self, job: str) -> tuple[int, str]:
        declared = self.declared.get(job)
        if job in self.initialised:
            return 0, f"job(uid={job}) init success"
        if declared is None:
            return CANNOT_READ, f"jobId={job} is not declared"
        if not declared.recovery and not declared.terms.hot_switch:
            return SWITCHED_OFF, f"jobId={job}: recovery is off for this job"
        self.initialised[job] = declared.terms
        return 0, f"job(uid={job}) init success"

    def register(self, job: str, at: float) -> tuple[int, str]:
        if job in self.controllers:
            return 0, "register success"
        if job not in self.initialised:
            return NOT_INITIALISED, f"jobId={job} not inited"
        declared = self.declared.get(job)
        if declared is None:
            return NO_SUCH_JOB, f"jobId={job} is not declared"
        if len(self.controllers) >= MOST_JOBS:
            return TOO_MANY, f"{MOST_JOBS} jobs are served already"
        self.declared[job] = replace(declared, recovery=True)
        self.registered += 1
        self.controllers[job] = Controller(f"{self.name}-{self.registered}", self.initialised[job], self.timing)
        return 0, "register success"

    def subscribe(self, job: str, at: float) -> list[Out] | None:
        """None: the job is not registered."""
        controller = self.controllers.get(job)
        return None if controller is None else self.moved(job, controller.subscribe(at))

    def report(self, job: str, report: Report, at: float, ticket: int = 0) -> list[Out]:
        controller = self.controllers.get(job)
        if controller is None:
            return [Answered(ticket, UNREGISTERED, f"jobId={job} not registed")]
        return self.moved(job, controller.report(report, at, ticket))

    # -- time

    def moved(self, job: str, told: list[Out]) -> list[Out]:
        """To be called with what a controller said; remembers when to look at it again."""
        deadline = self.controllers[job].deadline()
        if deadline is not None:
            heappush(self.due, (deadline, job))
        return told

    def deadline(self) -> float | None:
        return self.due[0][0] if self.due else None

    def tick(self, at: float) -> list[tuple[str, list[Out]]]:
        """What all jobs whose time has come say."""
        told = []
        while self.due and self.due[0][0] <= at:
            _, job = heappop(self.due)
            controller = self.controllers.get(job)
            deadline = controller.deadline() if controller else None
            if controller is not None and deadline is not None and deadline <= at:
                told.append((job, self.moved(job, controller.tick(at))))
        return [(job, out) for job, out in told if out]


def ended(told: list[Out]) -> bool:
    return any(isinstance(out, Ended) for out in told)
