"""The tables: phases of a job and lives of a worker, with their legal moves. docs/protocol.md is drawn from here."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    STARTING = "starting"
    TRAINING = "training"
    REPORTED = "reported"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DIAGNOSED = "diagnosed"
    RECOVERING = "recovering"
    LEAVING = "leaving"
    DONE = "done"


class Life(Enum):
    STARTING = "starting"
    RUNNING = "running"
    DYING = "dying"
    EXITED = "exited"


PHASE_MOVES: dict[Phase, dict[Phase, str]] = {
    Phase.STARTING: {
        Phase.TRAINING: "all workers have started",
        Phase.REPORTED: "a worker died or could not start",
        Phase.LEAVING: "told to quit, or no rendezvous",
    },
    Phase.TRAINING: {
        Phase.REPORTED: "a worker died",
        Phase.LEAVING: "all workers exited 0, or told to quit",
    },
    Phase.REPORTED: {
        Phase.STOPPING: "the controller says stop train",
        Phase.LEAVING: "told to quit, or no answer in time",
    },
    Phase.STOPPING: {
        Phase.STOPPED: "no worker and no leftover process lives",
        Phase.REPORTED: "the controller forgot the incident",
        Phase.LEAVING: "told to quit, or a process cannot be killed",
    },
    Phase.STOPPED: {
        Phase.DIAGNOSED: "the controller says global fault, or workers were only to save",
        Phase.REPORTED: "the controller forgot the incident",
        Phase.LEAVING: "told to quit, or no answer in time",
    },
    Phase.DIAGNOSED: {
        Phase.RECOVERING: "the controller chose recover",
        Phase.REPORTED: "the controller forgot the incident",
        Phase.LEAVING: "the controller chose exit, told to quit, or no answer in time",
    },
    Phase.RECOVERING: {
        Phase.TRAINING: "all workers have started again",
        Phase.DIAGNOSED: "it failed; the controller chooses again",
        Phase.REPORTED: "it failed, and the controller has forgotten the incident",
        Phase.LEAVING: "told to quit, or a process cannot be killed",
    },
    Phase.LEAVING: {Phase.DONE: "no process of the job lives, or it cannot be killed"},
    Phase.DONE: {},
}

LIFE_MOVES: dict[Life, frozenset[Life]] = {
    Life.STARTING: frozenset({Life.RUNNING, Life.DYING, Life.EXITED}),
    Life.RUNNING: frozenset({Life.DYING, Life.EXITED}),
    Life.DYING: frozenset({Life.EXITED}),
    Life.EXITED: frozenset({Life.STARTING}),
}

UNBOUNDED: frozenset[Phase] = frozenset({Phase.TRAINING, Phase.DONE})
"""Phases that may last for ever; every other one has a deadline."""
