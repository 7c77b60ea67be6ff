"""ClusterD's side of jobs, in any order of events: never stuck, never two subscribers, every report answered once.

What is said in which case stands in tests/scenarios/controller and, recorded, in test_traces.py.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from elastic_run.clusterd.controller import Controller
from elastic_run.clusterd.machine import Answered, Ended, Out
from elastic_run.clusterd.registry import Declared, Registry
from elastic_run.clusterd.states import WAITS, State
from elastic_run.clusterd.terms import CLUSTERD, EMBEDDED, FAST, Terms
from elastic_run.core.dialogue import (
    FaultRank,
    FaultReported,
    FaultType,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.events import SignalReceived

JOBS = ("a", "b")
TRAINS = (State.INIT, State.SCALED_IN)
DECLARED = st.builds(
    Declared,
    st.builds(
        Terms,
        st.lists(st.sampled_from([s for s in Strategy if s is not Strategy.EXIT]), unique=True).map(tuple),
        nodes=st.integers(1, 3),
        ranks_per_node=st.integers(1, 3),
        framework=st.sampled_from(["pytorch", "other"]),
        grace_exit=st.booleans(),
        hot_switch=st.booleans(),
        rescheduling=st.booleans(),
        scheduled=st.booleans(),
        reschedule_wait=st.sampled_from([30.0, 270.0]),
    ),
    st.booleans(),
)
FAULTS = st.lists(st.builds(FaultRank, st.integers(0, 9), st.sampled_from(FaultType)), max_size=3)
REPORTS = st.one_of(
    st.builds(FaultReported, FAULTS.map(tuple)),
    st.builds(StopCompleted, st.sampled_from([0, 401, 404, 499])),
    st.builds(StrategiesOffered, st.lists(st.sampled_from(Strategy), max_size=4).map(tuple)),
    st.builds(
        StatusReported,
        st.sampled_from([0, 1, 201, 405, 406, 499]),
        st.one_of(st.none(), st.sampled_from(Strategy)),
        st.lists(st.integers(0, 9), max_size=2).map(tuple),
    ),
)
ON_REQUEST = (SignalKind.HOT_SWITCH, SignalKind.KEEP_ALIVE, SignalKind.KILL_MASTER)
"""Signals that may belong to no incident."""


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self.tickets = 0
        self.open: dict[str, set[int]] = {job: set() for job in JOBS}
        self.listening: set[str] = set()
        self.ids: dict[str, str] = {}
        self.registry = Registry("test")

    def took(self, job: str, told: list[Out]) -> None:
        for out in told:
            match out:
                case Answered():
                    self.open[job].remove(out.ticket)  # KeyError: answered twice
                case Ended():
                    assert job in self.listening
                    self.listening.discard(job)
                case SignalReceived():
                    assert job in self.listening, "told to nobody"
                    assert out.uuid or out.kind in ON_REQUEST or out.strategy is Strategy.MIGRATE
                    if out.uuid:
                        assert self.ids.setdefault(out.uuid, job) == job, "an id of two jobs"

    @rule(timing=st.sampled_from([CLUSTERD, FAST, EMBEDDED]))
    def another_server(self, timing: object) -> None:
        """It starts with what is declared; every stream has broken."""
        self.registry = Registry(f"test{self.at}", timing, declared=self.registry.declared)  # type: ignore[arg-type]
        self.open = {job: set() for job in JOBS}
        self.listening.clear()

    @rule(job=st.sampled_from(JOBS), declared=DECLARED)
    def declare(self, job: str, declared: Declared) -> None:
        self.registry.declare(job, declared)

    @rule(job=st.sampled_from(JOBS))
    def delete(self, job: str) -> None:
        self.took(job, self.registry.delete(job))
        assert job not in self.listening
        assert not self.open[job]

    @rule(job=st.sampled_from(JOBS))
    def register(self, job: str) -> None:
        first, _ = self.registry.init(job)
        second, _ = self.registry.register(job, self.at)
        known = job in self.registry.declared
        assert first in ((0, 403) if known or job in self.registry.initialised else (502,))
        assert (second == 0) == (job in self.registry.controllers)

    @rule(job=st.sampled_from(JOBS))
    def subscribe(self, job: str) -> None:
        told = self.registry.subscribe(job, self.at)
        assert (told is None) == (job not in self.registry.controllers)
        if told is not None:
            self.listening.add(job)
            self.took(job, told)
            assert self.registry.controllers[job].state is State.INIT or self.registry.controllers[job].intake.seen

    @rule(job=st.sampled_from(JOBS))
    def leave(self, job: str) -> None:
        if job in self.listening:
            told = self.registry.controllers[job].unsubscribe(self.at)
            self.listening.discard(job)
            self.took(job, self.registry.moved(job, told))

    @rule(job=st.sampled_from(JOBS), report=REPORTS)
    def report(self, job: str, report: FaultReported) -> None:
        self.tickets += 1
        self.open[job].add(self.tickets)
        self.took(job, self.registry.report(job, report, self.at, self.tickets))

    @rule(job=st.sampled_from(JOBS), faults=FAULTS, ailing=st.frozensets(st.integers(0, 9), max_size=2))
    def devices(self, job: str, faults: list[FaultRank], ailing: frozenset[int]) -> None:
        self.cluster(job, lambda c: c.devices(frozenset(faults), ailing, self.at))

    @rule(job=st.sampled_from(JOBS), node=st.integers(0, 3))
    def node_back(self, job: str, node: int) -> None:
        self.cluster(job, lambda c: c.node_back(node, self.at))

    @rule(job=st.sampled_from(JOBS), node=st.integers(0, 3))
    def node_gone(self, job: str, node: int) -> None:
        self.cluster(job, lambda c: c.node_gone(node, self.at))

    @rule(job=st.sampled_from(JOBS), running=st.booleans())
    def runs(self, job: str, running: bool) -> None:
        self.cluster(job, lambda c: c.runs(running, self.at))

    @rule(job=st.sampled_from(JOBS), done=st.booleans())
    def operate(self, job: str, done: bool) -> None:
        self.cluster(job, lambda c: c.switch_links(((0, True),), self.at)[1])
        self.cluster(job, lambda c: c.links_switched(done, self.at))

    @rule(job=st.sampled_from(JOBS), code=st.sampled_from("01234"))
    def stress(self, job: str, code: str) -> None:
        self.cluster(job, lambda c: c.stress_test(((0, (0,)),), self.at)[1])
        self.cluster(job, lambda c: c.stress_tested({0: {code}}, self.at))

    def cluster(self, job: str, tell: object) -> None:
        if job in self.registry.controllers:
            self.took(job, self.registry.moved(job, tell(self.registry.controllers[job])))  # type: ignore[operator]

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 15.0, 100.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        until = self.at + seconds
        while (due := self.registry.deadline()) is not None and due <= until:
            self.at = max(self.at, due)
            for job, told in self.registry.tick(self.at):
                self.took(job, told)
        self.at = until

    @invariant()
    def every_wait_has_an_end(self) -> None:
        for controller in self.registry.controllers.values():
            assert (controller.until is None) == (controller.state in TRAINS)
            assert controller.until is None or controller.until > self.at

    @invariant()
    def who_waits_for_an_answer_waits_in_a_place(self) -> None:
        for job, tickets in self.open.items():
            controller = self.registry.controllers.get(job)
            assert tickets == ({t for t, _ in controller.case.blocked} if controller else set())

    @invariant()
    def a_subscriber_is_known_as_one(self) -> None:
        assert {job for job, c in self.registry.controllers.items() if c.subscribed} == self.listening

    def teardown(self) -> None:
        """Left alone, every job comes to rest: no chain of waits is longer than this."""
        for _ in range(40):
            self.wait(1000.0)
        assert {c.state for c in self.registry.controllers.values()} <= set(TRAINS)


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_every_state_but_training_has_an_end_with_a_reason() -> None:
    assert set(WAITS) == set(State) - set(TRAINS)
    assert all(wait.overdue for wait in WAITS.values())


def test_each_incident_of_a_job_has_an_id_of_its_own() -> None:
    controller = Controller("job")
    seen = []
    for _ in range(3):
        controller.subscribe(0.0)
        told = controller.report(FaultReported((FaultRank(0),)), 0.0)
        seen += [out.uuid for out in told if isinstance(out, SignalReceived)]
    assert seen == ["job-1", "job-2", "job-3"]


def test_a_job_that_was_deleted_does_not_leave_its_ids_to_another() -> None:
    registry = Registry("test")
    seen = set()
    for job in ("a", "b", "a", "c"):
        registry.delete(job)
        registry.declare(job, Declared(Terms()))
        registry.init(job)
        registry.register(job, 0.0)
        registry.subscribe(job, 0.0)
        registry.delete("a" if job == "b" else "nobody")
        if job in registry.controllers:
            seen.add(registry.controllers[job].name)
    assert len(seen) == 4


def test_more_jobs_than_it_serves_are_refused() -> None:
    registry = Registry("test")
    registry.controllers = {str(i): Controller(str(i)) for i in range(10_000)}
    registry.declare("one more", Declared(Terms()))
    assert registry.init("one more")[0] == 0
    assert registry.register("one more", 0.0)[0] == 500
