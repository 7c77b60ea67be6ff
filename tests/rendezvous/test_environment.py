"""A worker's environment: torchrun's contract, the job's mark, nothing of an outer launcher."""

from __future__ import annotations

import socket
from contextlib import closing

from elastic_run.core.commands import Spawn
from elastic_run.core.vocabulary import Assignment
from elastic_run.rendezvous.environment import GIVEN, JobWide, is_nested, scrubbed, worker_environment
from elastic_run.rendezvous.static import Static

ORDER = Spawn(3, 1, 2, 4, Assignment(5, 0, (2, 3), 4, "127.0.0.1", 1234, nodes=2))


def env(
    base: dict[str, str], restarts: int | None = 7, threads: int | None = 2, virtual: bool = False
) -> dict[str, str]:
    return worker_environment(
        base,
        JobWide("id", "trainer", restarts, threads, virtual_local_rank=virtual),
        ORDER,
        mark="j:j.1",
        error_file="/e",
    )


def test_it_gives_what_torchrun_gives() -> None:
    given = env({})
    assert given.keys() >= GIVEN
    assert (given["RANK"], given["LOCAL_RANK"], given["WORLD_SIZE"], given["LOCAL_WORLD_SIZE"]) == (
        "3",
        "1",
        "4",
        "2",
    )
    assert (given["MASTER_ADDR"], given["MASTER_PORT"]) == ("127.0.0.1", "1234")
    assert (given["TORCHELASTIC_RESTART_COUNT"], given["TORCHELASTIC_MAX_RESTARTS"]) == ("4", "7")
    assert given["TORCHELASTIC_RUN_ID"] == "id"
    assert (given["ROLE_NAME"], given["GROUP_WORLD_SIZE"]) == ("trainer", "2")


def test_a_virtual_local_rank_sees_its_one_device() -> None:
    given = env({"ASCEND_RT_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "7"}, virtual=True)
    assert given["LOCAL_RANK"] == "0"
    assert (given["ASCEND_RT_VISIBLE_DEVICES"], given["CUDA_VISIBLE_DEVICES"]) == ("5", "1")
    assert given["HIP_VISIBLE_DEVICES"] == "7"
    assert env({}, virtual=False)["LOCAL_RANK"] == "1"


def test_unlimited_restarts_are_still_a_number() -> None:
    assert int(env({}, restarts=None)["TORCHELASTIC_MAX_RESTARTS"]) > 10**6


def test_the_users_own_variables_win_where_torchrun_lets_them() -> None:
    assert env({"OMP_NUM_THREADS": "9"})["OMP_NUM_THREADS"] == "9"
    assert env({})["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in env({}, threads=None)
    assert env({"RANK": "0", "HOME": "/h"})["RANK"] == "3"
    assert env({"HOME": "/h"})["HOME"] == "/h"


def test_the_mark_is_a_path_from_the_outermost_launcher() -> None:
    assert env({})["ELASTIC_RUN_JOB"] == "j:j.1"
    assert env({"ELASTIC_RUN_JOB": "outer:outer.3"})["ELASTIC_RUN_JOB"] == "outer:outer.3:j:j.1"


def test_a_nested_launch_keeps_only_the_mark_of_its_outer_one() -> None:
    outer = {"ELASTIC_RUN_JOB": "o", "ELASTIC_RUN_PREFIX": "x", "PET_NNODES": "2", "RANK": "1", "HOME": "/h"}
    assert is_nested(outer)
    assert is_nested({"TORCHELASTIC_RUN_ID": "x"})
    assert not is_nested({"PET_NNODES": "2"})
    assert scrubbed(outer) == {"ELASTIC_RUN_JOB": "o", "HOME": "/h"}


def test_each_round_has_a_port_of_its_own_that_a_store_can_bind() -> None:
    with closing(Static(2)) as node:
        first, second = node.begin(0).assignment, node.begin(1).assignment
        check_rounds(first, second)


def check_rounds(first: Assignment | None, second: Assignment | None) -> None:
    assert first is not None
    assert second is not None
    assert second.ranks == (0, 1)
    with socket.socket() as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind((second.master_addr, second.master_port))
        store.listen()


def test_a_port_in_use_is_no_rendezvous() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with closing(Static(1, port=other.getsockname()[1])) as node:
            answer = node.begin(0)
    assert answer.assignment is None
    assert "Address already in use" in answer.error
