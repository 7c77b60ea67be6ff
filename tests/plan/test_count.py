"""How many ranks a word means, from device files and visible-device variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from elastic_run.errors import ConfigError
from elastic_run.plan.count import count


def ranks(wanted: str, dev: Path, **environ: str) -> int:
    return count(wanted, environ, sys.executable, dev)


@pytest.fixture
def npus(tmp_path: Path) -> Path:
    for name in ("davinci0", "davinci1", "davinci10", "davinci_manager", "null"):
        (tmp_path / name).touch()
    return tmp_path


def test_numbers_and_cores(tmp_path: Path) -> None:
    assert ranks("12", tmp_path) == 12
    assert ranks("cpu", tmp_path) == len(os.sched_getaffinity(0))
    assert ranks("auto", tmp_path) == len(os.sched_getaffinity(0))


def test_devices_are_counted_by_their_files(npus: Path) -> None:
    assert ranks("npu", npus) == ranks("auto", npus) == 3


@pytest.mark.parametrize(("visible", "there"), [("0", 1), ("0,2", 2), ("0-1", 2), ("-1", 0), ("", 0), ("0-7", 3)])
def test_visible_device_variables_limit_them(npus: Path, visible: str, there: int) -> None:
    if there:
        assert ranks("npu", npus, ASCEND_RT_VISIBLE_DEVICES=visible) == there
    else:
        with pytest.raises(ConfigError, match="no such device"):
            ranks("npu", npus, ASCEND_RT_VISIBLE_DEVICES=visible)


def test_gpus_are_not_control_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert ranks("gpu", tmp_path, CUDA_VISIBLE_DEVICES="GPU-1234") == 1
    assert ranks("auto", tmp_path) == 2


@pytest.mark.parametrize("wanted", ["0", "-1", "many", "", "1.5", "gpu"])
def test_anything_else_is_refused(wanted: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--nproc-per-node"):
        ranks(wanted, tmp_path)
