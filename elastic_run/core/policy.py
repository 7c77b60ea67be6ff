"""Policy: every duration, budget and preference of the core in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Durations in seconds. The defaults are those of the command line."""

    max_restarts: int | None = 0
    """How often the group may be restarted; None for no limit."""
    window: float | None = None
    """If set, only restarts of the last `window` seconds count against `max_restarts`."""
    max_no_progress: int = 3
    """Crash-loop guard: this many failures in a row without progress end the job with 93."""
    progress_known: bool = False
    """A progress file tells whether training advances."""
    short_life: float = 60.0
    """Without a progress file, with unlimited restarts: an attempt shorter than this made no progress."""
    stop_grace: float = 30.0
    """From asking a worker to stop to SIGKILL."""
    kill_grace: float = 30.0
    """From SIGKILL to the verdict that the process cannot be killed (exit code 71)."""
    culprit_wait: float = 2.0
    """After a rank that only lost its peer: for the peer to end in its own way, before all are stopped."""
    start_wait: float = 60.0
    """For a rendezvous and the start of all workers."""
    signal_wait: float = 60.0
    """For the controller's next word in an incident."""
    nodes_min: int = 1
    nodes_max: int = 1
    spares: int = 0
    """Nodes beyond that, which wait for the loss of one."""
    fixed_places: bool = False
    """Every node is told its group rank, and all must come (torchrun's static rendezvous)."""
    last_call: float = 5.0
    """For more nodes, once `nodes_min` are there."""
    replacement_wait: float = 0.0
    """After a loss, for another node, before going on with fewer."""
    join_wait: float = 600.0
    """For `nodes_min` nodes, at the start and after a loss."""
    fence: float = 1.0
    """After the loss of a node, for its guard to end what runs there."""
    clusterd: bool = False
    """ClusterD decides incidents while it can be reached; without it, and until then, the embedded controller does."""
    require_clusterd: bool = False
    """Nothing is started without it."""
    clusterd_timeout: float = 60.0
    """For a ClusterD that is out of reach, in an incident or at a start that requires it."""
    clusterd_wait: float = 330.0
    """For the next word of one that can be reached: it may wait 300 s for others itself."""
    progress_wait: float = 2.0
    """For a look at the progress file; then it counts as unknown."""
    sweep_every: float = 0.02
    """First pause between two searches for leftovers; doubles up to 0.5 s."""
    requeue_on_stop: bool = False
    """A stop by signal ends with 75 (please requeue) instead of 0 or 128+n."""
