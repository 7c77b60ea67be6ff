"""Where each rank's output goes: torchrun's grammar for --redirects and --tee, and its filters, for any rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Template

from elastic_run.errors import ConfigError

STREAMS = {1: "stdout", 2: "stderr"}
TEMPLATE_NAMES = ("role_name", "local_rank", "rank", "hostname")


@dataclass(frozen=True, slots=True)
class Place:
    """A rank, and what a prefix can say of it; `alone`: the only one on this node."""

    rank: int
    local_rank: int
    role: str
    host: str
    alone: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """What happens to one stream of one rank: into a file, onto the console, and with which prefix there."""

    copy: bool
    show: bool
    prefix: bytes = b""
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """`redirects` and `tee`: stream names by local rank; what is in neither goes to the console."""

    redirects: dict[int, frozenset[str]]
    tee: dict[int, frozenset[str]]
    local_ranks: frozenset[int] | None = None
    """Only these are shown on the console; None for all."""
    ranks: frozenset[int] | None = None
    template: str = ""
    """Of the prefix; empty for the usual one."""
    filters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Stream name -> texts; a line with one of them is also written into attempt_<n>/filtered_<stream>.log."""
    max_size: int | None = None
    """Bytes after which a rank's log file is put aside as <name>.1, replacing an earlier one."""

    def asked(self, local_rank: int) -> bool:
        """Whether something is said about one stream of this rank or the other: each then has its own file."""
        return any(chosen.get(local_rank) for chosen in (self.tee, self.redirects))

    def unseen(self, workers: int, world_size: int) -> str:
        """In words, that the filters show no rank of a job with so many on each node; empty if they show some."""
        for flag, shown, count in (
            ("--local-ranks-filter", self.local_ranks, workers),
            ("--ranks-filter", self.ranks, world_size),
        ):
            if shown is not None and min(shown) >= count:
                return f"{flag} names no rank of this job, which has {count}: their output is kept but not shown"
        return ""

    def choose(self, place: Place, name: str, prefixed: bool, terminal: bool) -> Choice | None:
        """None: the worker has the launcher's own stream, a `terminal`. `prefixed`: so are lines that are not tee'd."""
        tee, redirected = (name in chosen.get(place.local_rank, ()) for chosen in (self.tee, self.redirects))
        shown = self.local_ranks is None or place.local_rank in self.local_ranks
        shown = shown and (self.ranks is None or place.rank in self.ranks)
        if place.alone and terminal and shown and not (tee or redirected or prefixed):
            return None  # so that progress bars, colours and prompts are what they are without us
        prefix = self._prefix(place) if tee or prefixed else b""
        return Choice(True, shown and (tee or not redirected), prefix, dict(self.filters).get(name, ()) if tee else ())

    def placed(self, place: Place, redirected: bool, tee: bool, terminal: bool) -> Choice | None:
        """The same for a stream whose file a plug-in of torchrun has chosen."""
        if place.alone and terminal and not (redirected or tee):
            return None
        return Choice(redirected or tee, tee or not redirected, self._prefix(place) if tee else b"")

    def _prefix(self, place: Place) -> bytes:
        given = {"role_name": place.role, "local_rank": place.local_rank, "rank": place.rank, "hostname": place.host}
        return (
            Template(self.template or "[${role_name}${local_rank}]:").substitute(given).encode(errors="surrogateescape")
        )


def mapping(flag: str, text: str, workers: int) -> dict[int, frozenset[str]]:
    """`3`, or `0:1,10:3`: 0 nothing, 1 stdout, 2 stderr, 3 both.

    Raises:
        ConfigError: `text` is neither.
    """
    if re.fullmatch(r"[0-3]", text):
        return dict.fromkeys(range(workers), _streams(text))
    chosen = {rank: frozenset[str]() for rank in range(workers)}
    named = set[int]()
    for entry in text.split(","):
        found = re.fullmatch(r"\s*(\d+):([0-3])\s*", entry)
        if found is None:
            raise ConfigError(f"{flag} {text!r}: write 0 to 3, or local rank:0-3 pairs such as 0:1,10:3")
        rank = int(found[1])
        if rank in named:
            raise ConfigError(f"{flag} {text!r} names local rank {rank} twice; write it once, 3 is both streams")
        named.add(rank)
        if rank in chosen:
            chosen[rank] = _streams(found[2])
    return chosen


def _streams(digit: str) -> frozenset[str]:
    return frozenset(name for bit, name in STREAMS.items() if int(digit) & bit)


def ranks(flag: str, text: str) -> frozenset[int] | None:
    """`0,2,4`; empty for no filter.

    Raises:
        ConfigError: an entry is no number.
    """
    if not text:
        return None
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entry.isdigit() for entry in entries):
        raise ConfigError(f"{flag} {text!r}: write ranks with commas between them, such as 0,1,2")
    return frozenset(int(entry) for entry in entries)


def needles(text: str) -> tuple[str, ...]:
    """A comma-separated list in which `,,` stands for a comma."""
    parts = text.replace(",,", "\0").split(",")
    return tuple(part.replace("\0", ",") for part in parts if part)


def size(flag: str, text: str) -> int:
    """`500M`, `2G`, `64k` or bytes.

    Raises:
        ConfigError: `text` is no size.
    """
    found = re.fullmatch(r"(\d+)\s*([kKmMgG]?)i?[bB]?", text.strip())
    if found is None or int(found[1]) == 0:
        raise ConfigError(f"{flag} {text!r}: write a size such as 500M or 2G")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]


def checked_template(flag: str, text: str) -> str:
    """A prefix template with torchrun's names.

    Raises:
        ConfigError: another name is used, or a dollar sign stands alone.
    """
    try:
        Template(text).substitute(dict.fromkeys(TEMPLATE_NAMES, ""))
    except (KeyError, ValueError) as error:
        names = " ".join("${" + name + "}" for name in TEMPLATE_NAMES)
        raise ConfigError(
            f"{flag} {text!r}: only these names may be used, and $$ for a dollar sign: {names}"
        ) from error
    return text
