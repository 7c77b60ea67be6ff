"""What a seed means: the job, its policy and the list of what goes wrong, all drawn before anything runs.

Mishaps are aimed: at the entry of a phase, at an order on its way, at a fact. They are a list, so that a failure can be
shrunk by leaving some of them out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1

from elastic_run.clusterd.terms import EMBEDDED, Timing
from elastic_run.core.policy import Policy

NEVER = float("inf")
SLOW = (replace(EMBEDDED, flush=0.2, release=1.0), replace(EMBEDDED, flush=1.0, release=2.0))


@dataclass(frozen=True, slots=True)
class When:
    """`after` seconds past the `nth` appearance of `what`: a phase, an order or a fact; "" is the start of the job."""

    what: str
    nth: int
    after: float


@dataclass(frozen=True, slots=True)
class Strike:
    """Ranks die of their own doing, in this order within a microsecond. `peers`: the others then fail as victims."""

    when: When
    ranks: tuple[int, ...]
    how: str
    peers: bool


@dataclass(frozen=True, slots=True)
class Press:
    """Somebody sends the launcher a signal."""

    when: When
    signum: int


@dataclass(frozen=True, slots=True)
class Freeze:
    """The launcher is suspended, its guard ends the workers, the launcher wakes up."""

    when: When
    lasts: float


@dataclass(frozen=True, slots=True)
class StoreDies:
    """The process that hosts the workers' store ends."""

    when: When


@dataclass(frozen=True, slots=True)
class Echo:
    """The `back`-th newest fact of a kind (or saying of the controller) arrives once more."""

    when: When
    kind: str
    back: int


@dataclass(frozen=True, slots=True)
class Slow:
    """The answer to the `nth` order of a kind comes `by` seconds late, or never."""

    what: str
    nth: int
    by: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """The `nth` order of a kind fails."""

    what: str
    nth: int


@dataclass(frozen=True, slots=True)
class Mute:
    """From its `nth` report on the controller answers calls, but says nothing more."""

    nth: int


@dataclass(frozen=True, slots=True)
class Habit:
    """Each new process has this trait with this chance."""

    name: str
    chance: float


@dataclass(frozen=True, slots=True)
class Noise:
    """Each fact is told again with this chance, at some time within so many seconds."""

    chance: float
    within: float


@dataclass(frozen=True, slots=True)
class Resent:
    """Each report reaches the controller twice with this chance: the first answer was lost."""

    chance: float


Mishap = Strike | Press | Freeze | StoreDies | Echo | Slow | Refuse | Mute | Habit | Noise | Resent


@dataclass(frozen=True, slots=True)
class Setup:
    seed: int
    ranks: int
    policy: Policy
    timing: Timing
    work: float
    """Seconds the group trains before every rank exits 0."""
    step: float
    """Seconds of training after which the progress file changes."""
    lag: float
    """Longest delay of the wire and of facts from the operating system."""
    tick_lag: float
    mishaps: tuple[Mishap, ...]


PHASES = ("starting", "training", "reported", "stopping", "stopped", "diagnosed", "recovering", "leaving")
ORDERS = ("BeginRendezvous", "Spawn", "Kill", "Sweep", "Call", "ReadProgress")
FACTS = (
    "WorkerStarted",
    "WorkerExited",
    "SpawnFailed",
    "Swept",
    "RendezvousFinished",
    "SignalReceived",
    "CallFinished",
    "ProgressRead",
)
DEATHS = ("SEGV", "KILL", "ABRT", "oom", "raise", "raise", "code 17", "linger", "linger", "hang")
"""`raise`: exit 1 with a traceback and an error file; `linger`: a traceback is printed, the exit hangs;
`hang`: it is seen from outside that it does not get on."""
HABITS = {
    "saves": 1.0,
    "late": 0.7,
    "ignores": 0.7,
    "fails": 0.3,
    "unkillable": 0.05,
    "slow to die": 0.3,
    "children": 0.7,
    "stubborn children": 0.5,
    "immortal children": 0.05,
    "slow start": 0.3,
}
AIMED_ECHOES = (
    ("RendezvousFinished", "BeginRendezvous"),
    ("Swept", "Sweep"),
    ("Swept", "Sweep"),
    ("CallFinished", "Call"),
    ("STOP_TRAIN", "reported"),
    ("GLOBAL_FAULT", "stopped"),
    ("CHANGE_STRATEGY", "diagnosed"),
    ("CHANGE_STRATEGY", "recovering"),
    ("WorkerExited", "Spawn"),
    ("WorkerStarted", "Spawn"),
    ("ProgressRead", "ReadProgress"),
)
"""An old answer comes just when a new one is awaited."""


def draw(seed: int) -> Setup:
    """The same seed always gives the same setup."""
    dice = Random(seed)
    ranks = dice.choice((1, 2, 2, 3, 4))
    policy = _policy(dice)
    mishaps: list[Mishap] = []
    if dice.random() < 0.8:
        mishaps.append(_strike(dice, _when_alive(dice), ranks))
    for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        mishaps += _mishap(dice, ranks, policy)
    mishaps += _background(dice, policy, ranks)
    return Setup(
        seed=seed,
        ranks=ranks,
        policy=policy,
        timing=dice.choice((EMBEDDED, EMBEDDED, *SLOW)),
        work=dice.choice((0.5, 5.0, 40.0)),
        step=dice.choice((0.1, 0.1, 1.0, 20.0)),
        lag=dice.choice((0.0, 0.002, 0.05)),
        tick_lag=dice.choice((0.0, 0.0, 0.001)),
        mishaps=tuple(mishaps),
    )


def _policy(dice: Random) -> Policy:
    return Policy(
        max_restarts=dice.choice((0, 1, 1, 2, 2, 3, 5, None, None)),
        window=dice.choice((None, None, 2.0, 8.0)),
        max_no_progress=dice.choice((1, 2, 3)),
        progress_known=dice.random() < 0.4,
        short_life=dice.choice((1.0, 8.0)),
        stop_grace=dice.choice((0.2, 1.0, 4.0)),
        kill_grace=dice.choice((0.5, 2.0)),
        start_wait=dice.choice((3.0, 6.0)),
        signal_wait=dice.choice((5.0, 10.0)),
        progress_wait=dice.choice((0.05, 0.5, 2.0)),
        requeue_on_stop=dice.random() < 0.3,
    )


def _mishap(dice: Random, ranks: int, policy: Policy) -> list[Mishap]:
    when = _when(dice, policy, ranks)
    kind = dice.random()
    if kind < 0.46:
        found: list[Mishap] = [_strike(dice, when, ranks)]
        if dice.random() < 0.15:
            found.append(Press(when, _signum(dice)))
        return found
    if kind < 0.62:
        found = [Press(when, _signum(dice))]
        if dice.random() < 0.5:
            after = dice.choice((0.0, 0.05, 0.5, 2.0)) * policy.stop_grace
            found.append(Press(When("QuitRequested", 1, after), _signum(dice)))
        return found
    if kind < 0.64:
        return [StoreDies(when), *(StoreDies(When("training", nth, 0.3)) for nth in range(1, dice.choice((1, 2, 6))))]
    if kind < 0.66:
        hard = When(dice.choice(("stopping", "leaving")), 1, policy.stop_grace + dice.choice((0.001, 0.1)))
        return [Freeze(dice.choice((when, hard)), dice.choice((0.5, 20.0)))]
    if kind < 0.78:
        return _echoes(dice, policy)
    if kind < 0.82:
        return [Echo(when, dice.choice(FACTS), dice.randrange(4))]
    if kind < 0.92:
        return _slow(dice, policy, ranks)
    if kind < 0.98:
        what = dice.choice(("Spawn", "Spawn", "BeginRendezvous"))
        return [Refuse(what, 1 + dice.randrange(2 * ranks))]
    return [Mute(1 + dice.randrange(6))]


def _echoes(dice: Random, policy: Policy) -> list[Mishap]:
    """Each time a question of a kind is asked, an old answer comes first."""
    look = ("ProgressRead", "ReadProgress")
    fact, aim = look if policy.progress_known and dice.random() < 0.4 else dice.choice(AIMED_ECHOES)
    back, after = dice.choice((0, 0, 1, 2)), dice.choice((0.0, 0.0, 0.001))
    return [Echo(When(aim, nth, after), fact, back) for nth in range(1, 9)]


def _slow(dice: Random, policy: Policy, ranks: int) -> list[Mishap]:
    what = dice.choice(("Spawn", "Sweep", "Call", "ReadProgress", "BeginRendezvous"))
    first = 1 + dice.randrange(2 * ranks if what == "Spawn" else 4)
    by = dice.choice((0.1, 0.5, 2.0, 6.0, NEVER, NEVER, policy.stop_grace + 0.8 * policy.kill_grace))
    return [Slow(what, nth, by) for nth in range(first, first + dice.choice((1, 3)))]


def _when_alive(dice: Random) -> When:
    """A moment that nearly every job reaches."""
    what = dice.choice(("training", "training", "WorkerStarted", "Spawn"))
    return When(what, 1, dice.choice((0.0, 0.001, 0.02, 0.4, 2.0, 9.0)))


def _strike(dice: Random, when: When, ranks: int) -> Strike:
    hit = dice.sample(range(ranks), 1 if dice.random() < 0.6 else 1 + dice.randrange(ranks))
    return Strike(when, tuple(hit), dice.choice(DEATHS), dice.random() < 0.4)


def _when(dice: Random, policy: Policy, ranks: int) -> When:
    after = dice.choice((0.0, 0.0, 0.001, 0.02, 0.3, policy.stop_grace, policy.kill_grace, 3.0))
    kind = dice.random()
    if kind < 0.45:
        return When(dice.choice(PHASES), dice.choice((1, 1, 2, 3)), after)
    if kind < 0.65:
        return When("Spawn", 1 + ranks * dice.choice((1, 1, 2)), dice.choice((0.0, 0.001, 0.012, 0.3)))
    if kind < 0.9:
        return When(dice.choice(ORDERS + FACTS), dice.choice((1, 1, 2, 3)), after)
    return When("", 1, dice.random() * 45.0)


def _background(dice: Random, policy: Policy, ranks: int) -> list[Mishap]:
    """What is so all the time: habits of the workers, facts told twice, a group that keeps dying."""
    found: list[Mishap] = []
    for name, weight in HABITS.items():
        if dice.random() < weight * 0.4:
            found.append(Habit(name, dice.choice((0.3, 1.0)) if weight > 0.2 else 0.3))
    if dice.random() < 0.3:
        found.append(Noise(dice.choice((0.1, 0.5)), dice.choice((0.1, 3.0, 30.0))))
    if dice.random() < 0.25:
        phase, afters = (
            dice.choice(("training", "training", "Spawn")),
            dice.choice(((0.0, 0.2), (0.2, 1.5), (1.5, 10.0))),
        )
        for nth in range(1, dice.choice((3, 6)) + 1):
            found.append(Strike(When(phase, nth, dice.choice(afters)), (0,), "raise", False))
    if dice.random() < 0.15:
        found.append(Resent(0.5))
    if dice.random() < 0.15:
        after = dice.choice((0.0, 0.001, 0.012, 0.3))
        found += [_strike(dice, When("Spawn", 1 + ranks * n, after), ranks) for n in range(dice.choice((2, 4)))]
    if dice.random() < 0.04:
        found.append(Slow(dice.choice(("BeginRendezvous", "Spawn")), dice.choice((2, 1 + ranks)), NEVER))
        found += [Echo(When("recovering", 1, after), "CHANGE_STRATEGY", 0) for after in (0.0, 1.0)]
    if policy.progress_known and dice.random() < 0.1:
        found += [Slow("ReadProgress", nth, dice.choice((1.0, NEVER))) for nth in (1, 2, 3)]
    elif policy.progress_known and dice.random() < 0.15:
        found += [Echo(When("ReadProgress", nth, 0.0), "ProgressRead", 0) for nth in range(2, 6)]
        found += [Strike(When("training", nth, 1.5), (0,), "raise", False) for nth in (1, 2, 3)]
    if dice.random() < 0.04:  # only a victim is known to have died when the next start fails
        hangs = Strike(When("training", 1, 0.02), (0,), dice.choice(("linger", "raise")), True)
        found += [hangs, Refuse("Spawn", 1 + ranks + dice.randrange(ranks))]
    return found


def _signum(dice: Random) -> int:
    return int(dice.choice((SIGTERM, SIGTERM, SIGINT, SIGHUP, SIGUSR1)))
