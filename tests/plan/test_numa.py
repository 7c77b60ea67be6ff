"""NUMA binding from a made-up sysfs: two sockets, two nodes each of which holds devices and cache groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastic_run.plan.numa import binding, span

CORES = 16
ALL = frozenset(range(CORES))


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Cores 0-15; nodes 0-3 of four cores; sockets 0 (nodes 0, 1) and 1; caches of two cores."""
    for node in range(4):
        write(tmp_path / f"devices/system/node/node{node}/cpulist", f"{node * 4}-{node * 4 + 3}\n")
    for core in range(CORES):
        cpu = tmp_path / f"devices/system/cpu/cpu{core}"
        write(cpu / "topology/physical_package_id", str(core // 8))
        write(cpu / "cache/index0/level", "1")
        write(cpu / "cache/index0/shared_cpu_list", str(core))
        write(cpu / "cache/index3/level", "3")
        write(cpu / "cache/index3/shared_cpu_list", f"{core // 2 * 2}-{core // 2 * 2 + 1}")
    return tmp_path


def device(sysfs: Path, address: str, node: int) -> None:
    path = sysfs / f"bus/pci/devices/{address}"
    for name, text in (("vendor", "0x19e5"), ("class", "0x120000"), ("numa_node", str(node))):
        write(path / name, text)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_mode_nothing_is_bound(sysfs: Path) -> None:
    assert binding(None, 4, sysfs, ALL)(0) is None


def test_ranks_without_devices_are_spread_over_the_nodes(sysfs: Path) -> None:
    cores = binding("node", 8, sysfs, ALL)
    assert [(cores(rank) or [-1])[0] // 4 for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_rank_is_near_its_device(sysfs: Path) -> None:
    for address, node in (("0000:01:00.0", 3), ("0000:02:00.0", 3), ("0000:81:00.0", 0)):
        device(sysfs, address, node)
    cores = binding("node", 3, sysfs, ALL)
    assert [cores(rank) for rank in range(3)] == [[12, 13, 14, 15], [12, 13, 14, 15], [0, 1, 2, 3]]
    exclusive = binding("exclusive", 3, sysfs, ALL)
    assert [exclusive(rank) for rank in range(3)] == [[12, 13], [14, 15], [0, 1, 2, 3]]
    assert binding("socket", 3, sysfs, ALL)(0) == list(range(8, 16))
    complexes = binding("core-complex", 3, sysfs, ALL)
    assert [complexes(rank) for rank in range(3)] == [[12, 13], [14, 15], [0, 1]]


def test_more_ranks_than_cores_share(sysfs: Path) -> None:
    cores = binding("exclusive", 64, sysfs, ALL)
    assert all(len(cores(rank) or []) == 1 for rank in range(64))


def test_only_cores_that_may_be_used_are_given(sysfs: Path) -> None:
    cores = binding("node", 2, sysfs, {1, 2, 9})
    assert [cores(0), cores(1)] == [[1, 2], [9]]


def test_a_machine_that_says_nothing_is_one_node(tmp_path: Path) -> None:
    cores = binding("node", 2, tmp_path)
    assert cores(0) == cores(1) == sorted(os.sched_getaffinity(0))


def test_lists_of_the_kernel() -> None:
    assert span("0-2,7,9-10\n") == [0, 1, 2, 7, 9, 10]
    assert span("") == []
