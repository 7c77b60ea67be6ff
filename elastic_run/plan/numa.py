"""Which cores each rank may use under --numa-binding, from what sysfs says of devices, sockets and caches."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")
ACCELERATORS = {("0x10de", "0x03"), ("0x1002", "0x03"), ("0x19e5", "0x12")}
"""PCI vendor and class of NVIDIA's, AMD's and Huawei's devices."""


def binding(
    mode: str | None, workers: int, sysfs: Path = SYSFS, usable: Set[int] | None = None
) -> Callable[[int], Sequence[int] | None]:
    """Cores by local rank: `node` those of its device's NUMA node, `socket` of that node's socket, `exclusive` its
    share of the node, `core-complex` one group of cores with a common last-level cache.

    Ranks without a device are spread evenly over the nodes. None where nothing is bound. Only `usable` cores are given,
    by default those that this process may use.
    """
    if mode is None:
        return lambda local_rank: None
    machine = _Machine.read(sysfs, os.sched_getaffinity(0) if usable is None else usable)
    homes = machine.homes(workers)
    return lambda local_rank: machine.cores(mode, homes, local_rank)


def span(text: str) -> list[int]:
    """Numbers of a kernel list such as `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


@dataclass(frozen=True, slots=True)
class _Machine:
    nodes: dict[int, list[int]]
    """NUMA node -> usable cores."""
    socket: dict[int, int]
    """Core -> socket."""
    cache: dict[int, tuple[int, ...]]
    """Core -> cores that share its last-level cache."""
    devices: list[int]
    """NUMA node of each accelerator, in the order of bus addresses."""

    @classmethod
    def read(cls, sysfs: Path, usable: Set[int]) -> _Machine:
        found = sorted((sysfs / "devices/system/node").glob("node[0-9]*"), key=lambda p: int(p.name[4:]))
        nodes = {int(p.name[4:]): [c for c in span(_text(p / "cpulist")) if c in usable] for p in found}
        nodes = {node: cores for node, cores in nodes.items() if cores} or {0: sorted(usable)}
        cores = [core for members in nodes.values() for core in members]
        cpu = sysfs / "devices/system/cpu"
        socket = {c: int(_text(cpu / f"cpu{c}/topology/physical_package_id") or 0) for c in cores}
        cache = {c: tuple(x for x in _last_level(cpu / f"cpu{c}/cache") or [c] if x in usable) for c in cores}
        return cls(nodes, socket, cache, _devices(sysfs))

    def homes(self, workers: int) -> list[int]:
        """The NUMA node of each local rank."""
        if len(self.devices) >= workers and all(node in self.nodes for node in self.devices[:workers]):
            return self.devices[:workers]
        order = sorted(self.nodes)
        return [order[rank * len(order) // workers] for rank in range(workers)]

    def cores(self, mode: str, homes: Sequence[int], local_rank: int) -> list[int]:
        home = homes[local_rank]
        own = self.nodes[home]
        before = sum(1 for node in homes[:local_rank] if node == home)
        sharers = sum(1 for node in homes if node == home)
        match mode:
            case "socket":
                return sorted(c for c in self.socket if self.socket[c] == self.socket[own[0]])
            case "exclusive":
                share = own[before * len(own) // sharers : (before + 1) * len(own) // sharers]
                return share or [own[before % len(own)]]
            case "core-complex":
                groups = sorted({self.cache[core] for core in own})
                return list(groups[before % len(groups)])
            case _:
                return own


def _devices(sysfs: Path) -> list[int]:
    nodes = []
    for path in sorted((sysfs / "bus/pci/devices").glob("*")):
        if (_text(path / "vendor"), _text(path / "class")[:4]) in ACCELERATORS:
            nodes.append(int(_text(path / "numa_node") or -1))
    return nodes


def _last_level(caches: Path) -> list[int]:
    levels = [(int(_text(p / "level") or 0), _text(p / "shared_cpu_list")) for p in caches.glob("index[0-9]*")]
    return span(max(levels)[1]) if levels else []


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
