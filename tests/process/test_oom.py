"""Where the count of out-of-memory kills is found, on trees as /proc and /sys/fs/cgroup show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_run.supervisor.oom import counter_file, read_counter

V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"


def tree(place: Path, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A /sys/fs/cgroup and a /proc in which process 7 has these cgroups."""
    mount, proc = place / "cgroup", place / "proc"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(cgroup)
    mount.mkdir()
    for name, text in files.items():
        file = mount / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return mount, proc


@pytest.mark.parametrize(
    ("cgroup", "name", "count"),
    [
        ("0::/slurm/job_1/step_0\n", "slurm/job_1/step_0/memory.events", 2),
        ("0::/a:b/c\n", "a:b/c/memory.events", 2),
        ("0::/kubepods/host-only\n", "memory.events", 2),
        ("0::/../../outside\n", "memory.events", 2),
        ("1:name=systemd:/\n0::/a\n", "unified/a/memory.events", 2),
        ("4:memory:/job\n1:name=systemd:/\n0::/\n", "memory/job/memory.oom_control", 5),
        ("9:cpu,memory:/job\n0::/\n", "memory/job/memory.oom_control", 5),
        ("4:memory:/docker/host-only\n", "memory/memory.oom_control", 5),
    ],
    ids=["v2", "colon", "v2 container", "namespace", "hybrid", "v1", "v1 joined", "v1 container"],
)
def test_it_is_found(tmp_path: Path, cgroup: str, name: str, count: int) -> None:
    mount, proc = tree(tmp_path, cgroup, {name: V2 if name.endswith("events") else V1})
    found = counter_file(7, mount, proc)
    assert found is not None
    assert found.resolve() == (mount / name).resolve()
    assert read_counter(found) == count


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/a\n", {}),
        ("0::/a\n", {"a/memory.events": "low 0\n"}),
        ("4:memory:/a\n", {"memory/a/memory.oom_control": "oom_kill_disable 0\n"}),
        ("3:cpuset:/a\n", {"memory/a/memory.oom_control": V1}),
        ("", {}),
    ],
    ids=["no memory controller", "old v2", "v1 before 4.13", "no memory cgroup", "nothing"],
)
def test_it_cannot_be_told(tmp_path: Path, cgroup: str, files: dict[str, str]) -> None:
    mount, proc = tree(tmp_path, cgroup, files)
    assert counter_file(7, mount, proc) is None


def test_a_process_or_a_cgroup_that_is_gone_is_no_error(tmp_path: Path) -> None:
    mount, proc = tree(tmp_path, "0::/a\n", {"a/memory.events": V2})
    assert counter_file(8, mount, proc) is None
    found = counter_file(7, mount, proc)
    assert found is not None
    found.unlink()
    assert read_counter(found) is None
    assert read_counter(None) is None
