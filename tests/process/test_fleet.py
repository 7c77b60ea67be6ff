"""Launchers of several nodes on this host: who leads, what a fault of one is for all, and who comes and goes."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic_run.core.goals import NodeReport
from elastic_run.fleet import wire
from tests.process.conftest import ACT, BOUND, Run, state, until

grpc = pytest.importorskip("grpc")


class Team:
    """Launchers of one job. Each has its own directory, as on hosts of their own; the port is the job's."""

    def __init__(self, new_run: Callable[..., Run], host: str = "localhost") -> None:
        self.new_run, self.host = new_run, host
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.runs: list[Run] = []

    def start(
        self, *words: str, nodes: str = "2", ranks: int = 1, options: tuple[str, ...] = (), **more: object
    ) -> Run:
        run = self.new_run(f"node{len(self.runs)}")
        self.runs.append(run)
        shared = ("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.host}:{self.port}")
        run.start(*shared, *run.flags(ranks), *options, ACT, *words, **more)
        return run

    def lead(self, *words: str, **more: object) -> Run:
        """The first launcher, and wait until it listens: the next ones then are members."""
        run = self.start(*words, **more)  # type: ignore[arg-type]
        until(lambda: listens(self.port) or run.ended, BOUND, "a leader")
        return run


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def team(new_run: Callable[..., Run]) -> Team:
    return Team(new_run)


def worlds(run: Run) -> list[int]:
    """World size of each round that was started there."""
    rounds = {r["restarts"]: r["world_size"] for r in run.orders("Spawn")}
    return [rounds[restarts] for restarts in sorted(rounds)]


def test_ranks_of_all_nodes_are_one_world(team: Team) -> None:
    leader = team.lead("env", ranks=2, nodes="3")
    members = [team.start("env", nodes="3", ranks=ranks) for ranks in (1, 3)]
    assert [run.wait() for run in (leader, *members)] == [0, 0, 0]
    seen = {}
    for run in team.runs:
        for path in run.signs.glob("env-*"):
            env = json.loads(path.read_text())
            group = (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["WORLD_SIZE"])
            seen[int(env["RANK"])] = (*group, env["MASTER_ADDR"])
    sizes = {group: int(size) for group, _, size, _, _ in seen.values()}
    assert sorted(seen) == list(range(6))
    assert sizes["0"] == 2
    assert {world for _, world, _, _, _ in seen.values()} == {"3"}
    assert {(world, host) for _, _, _, world, host in seen.values()} == {("6", "localhost")}


def test_a_worker_of_any_node_dies_and_all_restart_together(team: Team) -> None:
    leader = team.lead("up", "idle#0", "exit:0", ranks=2, options=("--max-restarts", "1"))
    member = team.start("up", "until:die@3#0", "kill:SEGV@3#0", "idle#0", ranks=2, options=("--max-restarts", "1"))
    member.fact("WorkerStarted", rank=3)
    (member.signs / "die").touch()
    assert [leader.wait(), member.wait()] == [0, 0]
    assert leader.summary["restarts"] == 1
    assert any("rank 3 on" in line and "SIGSEGV; stopping the 3 others" in line for line in leader.said)
    assert any("rank 3 on" in line and "SIGSEGV" in line for line in member.said)


def test_the_budget_is_of_the_job_and_every_launcher_ends_with_its_code(team: Team) -> None:
    leader = team.lead("idle")
    member = team.start("exit:7")
    assert [leader.wait(), member.wait()] == [7, 7]
    assert "no restarts allowed" in leader.said[-1]


def test_a_launcher_that_is_killed_costs_its_node(team: Team) -> None:
    options = ("--max-restarts", "1")
    leader = team.lead("up", "idle#0", nodes="1:2", options=options)
    member = team.start("up", "idle#0", nodes="1:2", options=options)
    member.up(ranks=0)
    until(lambda: member.acting(), BOUND, "a worker")
    member.send(signal.SIGKILL)
    member.wait()
    member.gone(BOUND)
    assert leader.wait() == 0
    assert worlds(leader) == [2, 1]
    assert any("the node on" in line and "is lost" not in line for line in leader.said)


def test_a_spare_takes_the_place_of_a_lost_node(team: Team) -> None:
    options = ("--max-restarts", "1", "--spares", "1")
    leader = team.lead("up", "idle#0", options=options)
    others = [team.start("up", "idle#0", options=options) for _ in range(2)]
    until(lambda: any(run.acting() for run in others), BOUND, "a member at work")
    busy = next(run for run in others if run.acting())
    spare = next(run for run in others if run is not busy)
    assert spare.acting() == []
    busy.send(signal.SIGKILL)
    assert [leader.wait(), spare.wait()] == [0, 0]
    assert worlds(leader) == [2, 2]


def test_a_launcher_that_comes_later_leads_to_one_new_group(team: Team) -> None:
    conf = ("--rdzv-conf", "last_call_timeout=1")
    leader = team.lead("up", "idle#0", nodes="1:3", options=conf)
    leader.up(1)
    late = team.start("up", "idle#0", "until:end", nodes="1:3", options=conf)
    until(lambda: worlds(leader) == [1, 2], BOUND, "a new group")
    (late.signs / "end").touch()
    assert [leader.wait(), late.wait()] == [0, 0]
    assert worlds(leader) == [1, 2]
    assert leader.summary["restarts"] == 1  # for which nothing was spent: --max-restarts is 0


def test_a_replacement_may_come_after_the_loss(team: Team) -> None:
    leader = team.lead("up", "idle#0", options=("--max-restarts", "1"))
    member = team.start("idle")
    until(lambda: member.acting(), BOUND, "a worker")
    member.send(signal.SIGKILL)
    leader.fact("NodeLost")
    again = team.start("up")
    assert [leader.wait(), again.wait()] == [0, 0]
    assert worlds(leader) == [2, 2]


def test_without_a_replacement_the_job_asks_to_be_started_again(team: Team) -> None:
    options = ("--max-restarts", "1", "--rdzv-conf", "join_timeout=2")
    leader = team.lead("idle", options=options)
    member = team.start("idle", options=options)
    until(lambda: member.acting(), BOUND, "a worker")
    member.send(signal.SIGKILL)
    assert leader.wait() == 75
    assert "1 of 2 nodes are there" in leader.said[-1]


def test_without_the_leader_members_end_and_leave_nothing(team: Team) -> None:
    leader = team.lead("idle")
    member = team.start("ignore:TERM", "child:deaf", "sign:deaf", "idle")
    until(lambda: (member.signs / "deaf-1").exists(), BOUND, "a deaf worker")
    leader.send(signal.SIGKILL)
    assert member.wait() == 75
    member.gone(BOUND)
    assert "the leader's launcher has ended" in member.said[-1]


def test_a_frozen_launcher_is_lost_and_harmless_when_it_wakes(team: Team) -> None:
    options = ("--max-restarts", "1", "--node-lost-after", "4")
    leader = team.lead("up", "idle#0", nodes="1:2", options=options)
    member = team.start("ignore:TERM", "idle", nodes="1:2", options=options)
    until(lambda: member.acting(), BOUND, "a worker")
    member.send(signal.SIGSTOP)
    assert leader.wait() == 0
    assert worlds(leader) == [2, 1]
    assert member.acting() == []
    assert state(member.pid) == "T"
    member.send(signal.SIGCONT)
    assert member.wait() == 75


def test_a_signal_to_any_launcher_stops_the_job(team: Team) -> None:
    for place in (0, 1):
        each = Team(team.new_run)
        each.runs = [*team.runs]
        leader = each.lead("save", "sign:up", "idle")
        member = each.start("save", "sign:up", "idle")
        team.runs = each.runs
        until(lambda leader=leader: (leader.signs / "up-0").exists(), BOUND, "rank 0")
        until(lambda member=member: (member.signs / "up-1").exists(), BOUND, "rank 1")
        (leader, member)[place].send(signal.SIGTERM)
        assert [leader.wait(), member.wait()] == [0, 0]
        assert (leader.notes(), member.notes()) == (["0 saved"], ["1 saved"])


def test_static_nodes_wait_for_each_other_and_say_who_is_missing(team: Team) -> None:
    run = team.new_run("alone")
    words = ("--nnodes", "3", "--master-addr", "localhost", "--master-port", str(team.port))
    run.start(*words, "--rdzv-conf", "join_timeout=3", *run.flags(1), ACT, "idle")
    assert run.wait() == 69
    assert run.said[0] == "elastic-run: waiting: 1 of 3 nodes are there; missing: node rank 1, 2"
    assert run.said[-1].startswith("elastic-run: no rendezvous: 1 of 3 nodes are there; missing: node rank 1, 2")


def test_a_node_rank_is_given_to_one_only(team: Team) -> None:
    words = ("--nnodes", "3", "--master-addr", "localhost", "--master-port", str(team.port))
    runs = [team.new_run(name) for name in ("zero", "one", "another")]
    for run, place in zip(runs[:2], (0, 1), strict=True):
        run.start(*words, "--node-rank", str(place), *run.flags(1), ACT, "idle")
    until(lambda: runs[0].facts("NodeJoined"), BOUND, "node 1")
    runs[2].start(*words, "--node-rank", "1", *runs[2].flags(1), ACT, "idle")
    assert runs[2].wait() == 2
    assert "--node-rank 1 is taken by" in runs[2].said[-1]
    runs[0].send(signal.SIGTERM)
    assert [runs[0].wait(), runs[1].wait()] == [143, 143]


@pytest.mark.parametrize(
    ("options", "env", "code", "words"),
    [
        (("--rdzv-id", "other"), {}, 2, "another job leads there"),
        ((), {"ELASTIC_RUN_TOKEN": "wrong"}, 2, "does not know the job's secret"),
    ],
)
def test_strangers_are_refused(
    team: Team, options: tuple[str, ...], env: dict[str, str], code: int, words: str
) -> None:
    leader = team.lead("until:go", env={"ELASTIC_RUN_TOKEN": "right"})
    stranger = team.start("idle", options=options, env={"ELASTIC_RUN_TOKEN": "right", **env})
    assert stranger.wait() == code
    assert words in stranger.said[-1]
    assert len(stranger.said) == 1
    assert [words in line for line in leader.said] == [True]
    member = team.start("until:go", env={"ELASTIC_RUN_TOKEN": "right"})
    member.fact("WorkerStarted")
    for run in (leader, member):
        (run.signs / "go").touch()
    assert [leader.wait(), member.wait()] == [0, 0]


def test_a_secret_is_not_in_the_workers_environment(team: Team) -> None:
    team.lead("env", env={"ELASTIC_RUN_TOKEN": "right"})
    team.start("env", env={"ELASTIC_RUN_TOKEN": "right"})
    assert [run.wait() for run in team.runs] == [0, 0]
    for run in team.runs:
        for path in run.signs.glob("env-*"):
            assert "right" not in json.loads(path.read_text()).values()
        assert "right" not in "".join(path.read_text() for path in run.logs.rglob("*.json*"))


def test_whoever_sends_bytes_changes_nothing(team: Team) -> None:
    leader = team.lead("idle")
    member = team.start("up", "idle")
    until(lambda: member.acting(), BOUND, "a worker")
    for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(99)):
        with socket.create_connection(("127.0.0.1", team.port)) as stranger:
            stranger.sendall(data)
    with grpc.insecure_channel(f"127.0.0.1:{team.port}") as channel:
        for said in (b"", b"{}", os.urandom(99), wire.pack(NodeReport(quit=15))):
            call = channel.stream_stream(wire.METHOD)(iter([said]))
            assert isinstance(wire.unpack(next(call)), wire.Challenge)
            assert list(call) == []
    assert [leader.ended, member.ended] == [False, False]
    leader.send(signal.SIGTERM)
    assert [leader.wait(), member.wait()] == [143, 143]
    assert leader.summary["incidents"] == 0


def test_a_port_that_belongs_to_somebody_else(team: Team) -> None:
    with socket.create_server(("127.0.0.1", team.port)):
        run = team.start("idle", options=("--rdzv-conf", "join_timeout=2"))
        assert run.wait() == 69
    assert f"no leader at localhost:{team.port} within 2 s" in run.said[-1]


def test_ipv6(new_run: Callable[..., Run]) -> None:
    team = Team(new_run, "[::1]")
    leader = team.lead("env")
    member = team.start("env")
    assert [leader.wait(), member.wait()] == [0, 0]
    (path,) = member.signs.glob("env-*")
    assert json.loads(path.read_text())["MASTER_ADDR"] == "::1"


GLOO = Path(__file__).parent / "workers" / "gloo_steps.py"


@pytest.mark.parametrize("mode", ["cold", "template"])
def test_a_gloo_group_over_two_nodes_comes_back(team: Team, mode: str) -> None:
    pytest.importorskip("torch")
    shared = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{team.port}")
    words = (*shared, "--max-restarts", "1", "--workers", mode, str(GLOO), "3:5")
    runs = [team.new_run(name) for name in ("first", "second")]
    for run in runs:
        run.start(*run.flags(2), *words)
    assert [run.wait(120) for run in runs] == [0, 0]
    leader = next(run for run in runs if run.facts("NodeJoined"))
    assert leader.summary["restarts"] == 1
