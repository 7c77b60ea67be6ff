"""PURE: what is declared for one job, and every wait of its controller."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_run.core.dialogue import Strategy


@dataclass(frozen=True, slots=True)
class Terms:
    """Read once, when the job says Init. The defaults are those of a launcher that is its own controller."""

    strategies: tuple[Strategy, ...] = (Strategy.RECOVER, Strategy.DUMP)
    """Configured, besides EXIT, which always is. SCALE_IN stands for elastic training, both ways."""
    nodes: int = 1
    ranks_per_node: int = 1
    framework: str = "pytorch"
    grace_exit: bool = False
    """A device that is not quite healthy makes a job whose only strategy is DUMP save and exit."""
    hot_switch: bool = False
    """A node that is not quite healthy is exchanged while the job trains."""
    rescheduling: bool = False
    """Somebody replaces pods or the whole job: SCALE_IN then only when no node comes."""
    scheduled: bool = False
    """Somebody starts nodes and jobs again: their coming back is waited for."""
    reschedule_wait: float = 270.0
    """Seconds for a replaced node to come."""

    @property
    def dump_only(self) -> bool:
        return Strategy.DUMP in self.strategies and not set(self.strategies) & _BEFORE_DUMP


_BEFORE_DUMP = {Strategy.RETRY, Strategy.RECOVER_IN_PLACE, Strategy.RECOVER, Strategy.SCALE_IN}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. The defaults are ClusterD's (CLUSTERD); EMBEDDED and FAST wait for nothing artificially.

    A `poll` of 0 means that what is waited for is noticed at once.
    """

    keep_alive: float = 5.0
    """Between two signs of life on the stream; 0 for none."""
    tick: float = 1.0
    """The fault centre looks so often."""
    report_valid: float = 10.0
    """A report of a fault that a retry may cure counts so long; the same again within it is no news."""
    alarm_grace: float = 10.0
    """A device's alarm that a retry may cure waits for the job's report."""
    hardware_grace: float = 10.0
    """A broken device waits for the job's report, before the processes on its node are ended."""
    flush: float = 1.0
    """From stop complete until late faults are gathered."""
    release: float = 10.0
    """For nodes to give back what the dead ranks held."""
    calm_poll: float = 3.0
    calm: float = 15.0
    """For a device's fault to vanish, where processes may start again in place."""
    converge: float = 3.0
    """For routes, before a step that met a network fault is done again."""
    report_wait: float = 900.0
    """For each report of the job."""
    poll: float = 5.0
    """Between two looks at nodes and job."""
    resources: float = 20.0
    """For a node to come, before training goes on with fewer."""
    listen: float = 20.0
    """For the job to be scheduled again after its exit."""
    restart_all: float = 60.0
    """For all processes to start again."""
    run_again: float = 135.0
    """For the job to run again with recovery switched off."""
    new_node: float = 60.0
    """For the node that a node is to be exchanged for."""


CLUSTERD = Timing()
FAST = Timing(
    tick=0.0, report_valid=0.0, alarm_grace=1.0, hardware_grace=0.0, flush=0.0, release=0.0, calm_poll=0.0, calm=3.0,
    converge=0.0, poll=0.0, restart_all=0.0,
)  # fmt: skip
EMBEDDED = Timing(
    keep_alive=0.0, tick=0.0, report_valid=0.0, alarm_grace=0.0, hardware_grace=0.0, flush=0.0, release=0.0,
    calm_poll=0.0, calm=0.0, converge=0.0, poll=0.0, restart_all=0.0,
)  # fmt: skip
