"""What survives a restart of the server, with a wall clock that may be stepped."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_run.clusterd.registry import Declared, Registry
from elastic_run.clusterd.store import Store
from elastic_run.clusterd.terms import CLUSTERD, Terms
from elastic_run.core.dialogue import FaultRank, FaultReported, FaultType, SignalKind, Strategy
from elastic_run.core.events import SignalReceived
from elastic_run.errors import PlatformError

TERMS = Terms((Strategy.RETRY, Strategy.RECOVER), nodes=2, ranks_per_node=2, scheduled=True, reschedule_wait=30.0)
MEMORY = frozenset({FaultRank(3, FaultType.MEMORY)})


def known(place: Path, now: float = 100.0, wall: float = 1e9) -> Registry:
    """A registry with a job that has a device with a memory fault since `now`, saved at that time."""
    registry, store = Registry("first", CLUSTERD), Store(place)
    registry.declare("job", Declared(TERMS))
    registry.declare("other", Declared(Terms(), recovery=False))
    registry.init("job")
    registry.register("job", now)
    registry.subscribe("job", now)
    registry.moved("job", registry.controllers["job"].devices(MEMORY, frozenset(), now))
    for job in ("job", "other", "gone"):
        store.save(registry, job, now, wall)
    store.close()
    return registry


def loaded(place: Path, now: float, wall: float) -> Registry:
    registry, store = Registry("second", CLUSTERD), Store(place)
    store.load(registry, now, wall)
    store.close()
    return registry


def kinds(registry: Registry, seconds: float, now: float) -> list[tuple[float, SignalKind]]:
    """What the job is told in these seconds, and when, signs of life apart."""
    found, until = [], now + seconds
    while (due := registry.deadline()) is not None and due <= until:
        for _, told in registry.tick(due):
            found += [(due - now, out.kind) for out in told if isinstance(out, SignalReceived)]
    return [(at, kind) for at, kind in found if kind is not SignalKind.KEEP_ALIVE]


def test_jobs_registrations_and_faults_of_devices(tmp_path: Path) -> None:
    known(tmp_path)
    again = loaded(tmp_path, 5.0, 1e9)
    assert again.declared == {"job": Declared(TERMS), "other": Declared(Terms(), recovery=False)}
    assert (set(again.initialised), set(again.controllers)) == ({"job"}, {"job"})
    assert set(again.controllers["job"].intake.alarms) == MEMORY
    assert again.controllers["job"].case.uuid == ""


@pytest.mark.parametrize(
    ("stepped", "age"),
    [(0.0, 0.0), (6.0, 6.0), (3600.0, 3600.0), (-3600.0, 0.0)],
    ids=["at once", "after six seconds", "an hour later or the clock was set forward", "the clock was set back"],
)
def test_the_age_of_a_fault_is_that_of_the_wall_clock_but_never_of_the_future(
    tmp_path: Path, stepped: float, age: float
) -> None:
    known(tmp_path)
    now = 7.0  # of another process's clock
    again = loaded(tmp_path, now, 1e9 + stepped)
    assert again.controllers["job"].intake.alarms[FaultRank(3, FaultType.MEMORY)] == now - age
    assert again.subscribe("job", now) is not None
    told = kinds(again, 30.0, now)
    # Hidden for ten seconds of its age, then ten more for the job to report it.
    assert [kind for _, kind in told] == [SignalKind.PRE_EXIT]
    assert max(0.0, 10.0 - age) + 10.0 <= told[0][0] <= max(0.0, 10.0 - age) + 12.0


def test_an_incident_does_not_survive(tmp_path: Path) -> None:
    registry = known(tmp_path)
    registry.report("job", FaultReported((FaultRank(0),)), 101.0, 1)
    store = Store(tmp_path)
    store.save(registry, "job", 101.0, 1e9)
    store.close()
    again = loaded(tmp_path, 0.0, 1e9)
    assert again.controllers["job"].case.uuid == ""
    told = again.subscribe("job", 0.0)
    assert told is not None
    _, stop = again.report("job", FaultReported((FaultRank(0),)), 1.0, 1)
    assert isinstance(stop, SignalReceived)
    assert stop.uuid.startswith("second")


def test_recovery_that_was_paused_stays_paused(tmp_path: Path) -> None:
    registry = known(tmp_path)
    controller = registry.controllers["job"]
    controller.paused, controller.running, controller.switchable = True, False, False
    store = Store(tmp_path)
    store.save(registry, "job", 101.0, 1e9)
    store.close()
    again = loaded(tmp_path, 0.0, 1e9).controllers["job"]
    assert (again.paused, again.running, again.switchable) == (True, False, False)


def test_a_job_that_is_not_declared_any_more_is_forgotten(tmp_path: Path) -> None:
    registry = known(tmp_path)
    registry.delete("job")
    store = Store(tmp_path)
    store.save(registry, "job", 101.0, 1e9)
    store.close()
    assert set(loaded(tmp_path, 0.0, 1e9).declared) == {"other"}


def test_what_is_no_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").write_text("no database, but long enough to be taken for one" * 100)
    with pytest.raises(PlatformError, match="--state"):
        Store(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(PlatformError, match="--state"):
        Store(tmp_path / "file")
