"""PURE: the states of a controller and what each waits for; docs/clusterd.md is drawn from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elastic_run.core.dialogue import Report, StatusReported, StopCompleted, StrategiesOffered


class State(Enum):
    INIT = "init"
    WAIT_STOP = "wait for stop complete"
    FLUSHING = "gather late faults"
    RELEASING = "let nodes release"
    CALMING = "let devices calm down"
    WAIT_STRATEGIES = "wait for strategies"
    WAIT_RESOURCES = "wait for nodes"
    CONVERGING = "let routes converge"
    WAIT_RETRY = "wait for the retry"
    WAIT_RECOVER = "wait for the recovery"
    WAIT_DUMP = "wait for the dump"
    LISTENING = "wait for the job to be scheduled"
    RESTARTING = "let all processes start again"
    PAUSED = "wait for the job to run without recovery"
    WAIT_ISOLATE = "wait for whom scaling in leaves out"
    WAIT_SCALE_IN = "wait for scaling in"
    SCALED_IN = "trains with fewer nodes"
    WAIT_SCALE_OUT = "wait for scaling out"
    WAIT_PAUSE = "wait for the pause"
    WAIT_NIC = "wait for the switch of links"
    WAIT_STRESS = "wait for the stress test"
    WAIT_CONTINUE = "wait for training to go on"
    WAIT_NEW_NODE = "wait for the new node"
    WAIT_MIGRATION = "wait for the offer to migrate"
    WAIT_OLD_NODE = "wait for the old node to go"
    WAIT_MIGRATED = "wait for the migration"


@dataclass(frozen=True, slots=True)
class Wait:
    """`bound` names the field of Timing that ends it; `poll` the one with the pause between two looks."""

    report: type[Report] | None
    bound: str
    overdue: str
    """What then happens, for people."""
    poll: str = ""


_PAUSE = "recovery is paused, the job must run again by itself"
_STATUS = StatusReported

WAITS: dict[State, Wait] = {
    State.WAIT_STOP: Wait(StopCompleted, "report_wait", _PAUSE),
    State.FLUSHING: Wait(None, "flush", "on"),
    State.RELEASING: Wait(None, "release", "on"),
    State.CALMING: Wait(None, "calm", "the nodes whose devices are still faulty must leave", "calm_poll"),
    State.WAIT_STRATEGIES: Wait(StrategiesOffered, "report_wait", _PAUSE),
    State.WAIT_RESOURCES: Wait(None, "resources", "training goes on with fewer nodes", "poll"),
    State.CONVERGING: Wait(None, "converge", "on"),
    State.WAIT_RETRY: Wait(_STATUS, "report_wait", _PAUSE),
    State.WAIT_RECOVER: Wait(_STATUS, "report_wait", _PAUSE, "poll"),
    State.WAIT_DUMP: Wait(_STATUS, "report_wait", _PAUSE),
    State.LISTENING: Wait(None, "listen", "all processes start again if the job runs; else as above", "poll"),
    State.RESTARTING: Wait(None, "restart_all", _PAUSE),
    State.PAUSED: Wait(None, "run_again", "kill master", "poll"),
    State.WAIT_ISOLATE: Wait(_STATUS, "report_wait", "the next strategy"),
    State.WAIT_SCALE_IN: Wait(_STATUS, "report_wait", _PAUSE),
    State.WAIT_SCALE_OUT: Wait(_STATUS, "report_wait", _PAUSE),
    State.WAIT_PAUSE: Wait(StopCompleted, "report_wait", "kill master"),
    State.WAIT_NIC: Wait(_STATUS, "report_wait", "an ordinary fault"),
    State.WAIT_STRESS: Wait(_STATUS, "report_wait", "an ordinary fault"),
    State.WAIT_CONTINUE: Wait(_STATUS, "report_wait", "kill master"),
    State.WAIT_NEW_NODE: Wait(None, "new_node", "the switch is off", "poll"),
    State.WAIT_MIGRATION: Wait(StrategiesOffered, "report_wait", "the job is stopped"),
    State.WAIT_OLD_NODE: Wait(None, "report_wait", "the job is stopped"),
    State.WAIT_MIGRATED: Wait(_STATUS, "report_wait", "the job is stopped"),
}
"""Every state but INIT and SCALED_IN, in which the job trains."""
