"""ClusterD's side of one job: the path of a software fault, and that it is never stuck."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elastic_run.clusterd.controller import Controller, State, Timing
from elastic_run.core.dialogue import (
    FaultReported,
    Report,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.events import SignalReceived

BOTH = StrategiesOffered((Strategy.RECOVER, Strategy.EXIT))
SLOW = Timing(flush=1.0, release=10.0, report_wait=900.0)


def kinds(signals: list[SignalReceived]) -> list[SignalKind]:
    return [signal.kind for signal in signals]


def to_status(controller: Controller, at: float = 0.0) -> None:
    controller.report(FaultReported((1,)), at)
    controller.report(StopCompleted(), at)
    controller.report(BOTH, at)


def test_a_fault_is_stopped_diagnosed_and_recovered_from() -> None:
    controller = Controller("job")
    assert controller.report(FaultReported((3,)), 0.0) == [SignalReceived("job-1", SignalKind.STOP_TRAIN, (3,))]
    assert controller.report(StopCompleted(), 1.0) == [SignalReceived("job-1", SignalKind.GLOBAL_FAULT, (3,))]
    assert controller.report(BOTH, 2.0) == [SignalReceived("job-1", SignalKind.CHANGE_STRATEGY, (3,), Strategy.RECOVER)]
    assert controller.report(StatusReported(0, Strategy.RECOVER), 3.0) == []
    assert (controller.state, controller.deadline()) == (State.INIT, None)


def test_each_incident_has_an_id_of_its_own() -> None:
    controller = Controller("job")
    to_status(controller)
    controller.report(StatusReported(0, Strategy.RECOVER), 0.0)
    (stop,) = controller.report(FaultReported((0,)), 1.0)
    assert (stop.uuid, stop.ranks) == ("job-2", (0,))


def test_late_faults_are_merged() -> None:
    controller = Controller("job")
    controller.report(FaultReported((8,)), 0.0)
    assert controller.report(FaultReported((1, 8)), 0.0) == []
    (told,) = controller.report(StopCompleted(), 0.0)
    assert told.ranks == (1, 8)


def test_exit_is_chosen_when_nothing_else_is_offered_and_needs_no_offer() -> None:
    for offered in (StrategiesOffered((Strategy.EXIT,)), StrategiesOffered(())):
        controller = Controller("job")
        controller.report(FaultReported((1,)), 0.0)
        controller.report(StopCompleted(), 0.0)
        (told,) = controller.report(offered, 0.0)
        assert told.strategy is Strategy.EXIT
        assert controller.state is State.INIT


def test_a_recovery_that_failed_ends_in_exit() -> None:
    controller = Controller("job")
    to_status(controller)
    (told,) = controller.report(StatusReported(1, Strategy.RECOVER), 0.0)
    assert told.strategy is Strategy.EXIT
    assert controller.state is State.INIT


def test_what_is_told_a_second_time_changes_nothing() -> None:
    controller = Controller("job", SLOW)
    controller.report(FaultReported((1,)), 0.0)
    controller.report(StopCompleted(), 0.0)
    assert controller.report(StopCompleted(), 1.0) == []
    assert controller.deadline() == 11.0
    controller.tick(11.0)
    controller.report(BOTH, 11.0)
    for again in (StopCompleted(), BOTH):
        assert controller.report(again, 12.0) == []
    assert (controller.state, controller.deadline()) == (State.WAIT_STATUS, 911.0)


def test_the_embedded_controller_waits_for_nothing_but_reports() -> None:
    controller = Controller("job")
    controller.report(FaultReported((1,)), 5.0)
    assert controller.deadline() == 905.0


def test_the_waits_of_clusterd_are_kept() -> None:
    controller = Controller("job", SLOW)
    controller.report(FaultReported((1,)), 0.0)
    assert controller.report(StopCompleted(), 5.0) == []
    assert controller.deadline() == 16.0
    assert controller.tick(15.9) == []
    assert kinds(controller.tick(16.0)) == [SignalKind.GLOBAL_FAULT]


def test_an_early_report_waits_for_its_turn() -> None:
    controller = Controller("job", SLOW)
    controller.report(FaultReported((1,)), 0.0)
    controller.report(BOTH, 0.0)
    controller.report(StopCompleted(), 0.0)
    assert kinds(controller.tick(11.0)) == [SignalKind.GLOBAL_FAULT, SignalKind.CHANGE_STRATEGY]


def test_reports_of_a_dead_incident_are_forgotten_with_it() -> None:
    controller = Controller("job")
    controller.report(StatusReported(0, Strategy.RECOVER), 0.0)
    assert controller.state is State.INIT
    to_status(controller)
    assert controller.state is State.WAIT_STATUS


def test_silence_ends_in_exit() -> None:
    for reports in ([], [StopCompleted()], [StopCompleted(), BOTH]):
        controller = Controller("job", Timing(report_wait=5.0))
        controller.report(FaultReported((1,)), 0.0)
        for report in reports:
            controller.report(report, 0.0)
        assert controller.tick(4.9) == []
        (told,) = controller.tick(5.0)
        assert told.strategy is Strategy.EXIT
        assert controller.state is State.INIT


REPORTS = st.one_of(
    st.builds(FaultReported, st.lists(st.integers(0, 3), max_size=3).map(tuple)),
    st.builds(StopCompleted, st.integers(0, 500)),
    st.builds(StrategiesOffered, st.lists(st.sampled_from(Strategy), max_size=2).map(tuple)),
    st.builds(StatusReported, st.sampled_from([0, 1, 405]), st.sampled_from(Strategy)),
)


class AnyOrder(RuleBasedStateMachine):
    """Whatever is reported in whatever order, the controller always has a way on."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self.controller = Controller("job", SLOW)

    @rule(report=REPORTS)
    def report(self, report: Report) -> None:
        self.belongs(self.controller.report(report, self.at))

    @rule(seconds=st.floats(0, 1000))
    def time_passes(self, seconds: float) -> None:
        self.at += seconds
        self.belongs(self.controller.tick(self.at))

    @precondition(lambda self: self.controller.deadline() is not None)
    @rule()
    def nothing_more_is_said(self) -> None:
        for _ in range(len(State)):
            deadline = self.controller.deadline()
            if deadline is not None:
                self.at = max(self.at, deadline)
                self.belongs(self.controller.tick(self.at))
        assert self.controller.state is State.INIT

    def belongs(self, signals: list[SignalReceived]) -> None:
        assert all(signal.uuid == self.controller.uuid for signal in signals)

    @invariant()
    def every_wait_has_an_end(self) -> None:
        assert (self.controller.state is State.INIT) == (self.controller.deadline() is None)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
