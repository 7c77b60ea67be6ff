"""Our client and plain ones against our server over real gRPC on loopback: TLS, restarts at each phase, garbage."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import grpc
import pytest

from elastic_run.clusterd.channel import Certificates, open_channel, rpc
from elastic_run.clusterd.client import Client
from elastic_run.clusterd.pb import recover as pb
from elastic_run.core.commands import Call
from elastic_run.core.dialogue import (
    FaultRank,
    FaultReported,
    Report,
    SignalKind,
    StatusReported,
    StopCompleted,
    StrategiesOffered,
    Strategy,
)
from elastic_run.core.events import CallFinished, Event, LinkChanged, SignalReceived
from tests.wire.serving import BOUND, TOP, Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        assert one.tell("declare", "job", "--ranks-per-node", "2", "--strategies", "retry,recover,dump").returncode == 0
        yield one


class Job:
    """A client with the facts that it posts."""

    def __init__(self, target: str, job: str = "job", files: Certificates | None = None) -> None:
        self.facts: SimpleQueue[Event] = SimpleQueue()
        self.said: SimpleQueue[str] = SimpleQueue()
        self.seq = 0
        self.client = Client(open_channel(target, files), target, job, self.facts.put, self.said.put)
        self.client.start()

    def next(self, kind: type = SignalReceived) -> Any:
        """The next fact of a kind; others before it are dropped."""
        ends = time.monotonic() + BOUND
        while time.monotonic() < ends:
            try:
                fact = self.facts.get(timeout=max(0.0, ends - time.monotonic()))
            except Empty:
                break
            if isinstance(fact, kind):
                return fact
        raise AssertionError(f"no {kind.__name__} within {BOUND} s")

    def up(self) -> Job:
        while not self.next(LinkChanged).up:
            pass
        return self

    def report(self, report: Report) -> None:
        self.seq += 1
        self.client.send(Call(self.seq, "", report))

    def signal(self, kind: SignalKind) -> SignalReceived:
        found: SignalReceived = self.next()
        assert found.kind is kind, found
        return found

    def recover(self) -> None:
        """From a fault to its end."""
        self.report(FaultReported((FaultRank(1),)))
        self.signal(SignalKind.STOP_TRAIN)
        self.report(StopCompleted())
        self.signal(SignalKind.GLOBAL_FAULT)
        self.report(StrategiesOffered((Strategy.RECOVER, Strategy.EXIT)))
        assert self.signal(SignalKind.CHANGE_STRATEGY).strategy is Strategy.RECOVER
        self.report(StatusReported(0, Strategy.RECOVER))
        self.up()  # the stream has ended, and we have subscribed again


@pytest.fixture
def job(server: Server) -> Iterator[Job]:
    one = Job(server.target).up()
    yield one
    one.client.close()


def test_incidents_one_after_the_other_over_one_client(job: Job) -> None:
    for _ in range(3):
        job.recover()


def test_a_job_whose_recovery_is_off_is_told_so_once() -> None:
    with serving() as server:
        server.tell("declare", "job", "--term", "recovery=false")
        job = Job(server.target)
        fact = job.next(LinkChanged)
        assert (fact.up, fact.forgo) == (False, True)
        assert fact.because == "its recovery is switched off for job job (403)"
        job.client.close()


def test_a_job_that_is_declared_late_is_served_then() -> None:
    with serving() as server:
        job = Job(server.target)
        assert "answers Init with 502" in job.said.get(timeout=BOUND)
        server.tell("declare", "job", "--ranks-per-node", "2")
        job.up().recover()
        assert job.said.empty()
        job.client.close()


@pytest.mark.parametrize("phase", range(5))
def test_a_server_that_is_killed_in_any_phase_is_told_again(server: Server, job: Job, phase: int) -> None:
    steps: list[Callable[[], object]] = [
        lambda: job.report(FaultReported((FaultRank(1),))),
        lambda: (job.signal(SignalKind.STOP_TRAIN), job.report(StopCompleted())),
        lambda: (job.signal(SignalKind.GLOBAL_FAULT), job.report(StrategiesOffered((Strategy.RECOVER,)))),
        lambda: job.signal(SignalKind.CHANGE_STRATEGY),
    ]
    for step in steps[:phase]:
        step()
    server.end(signal.SIGKILL)
    while job.next(LinkChanged).up:
        pass
    server.start()
    server.tell("declare", "job", "--ranks-per-node", "2", "--strategies", "recover")
    job.up()
    while not job.facts.empty():
        job.facts.get()
    job.recover()


def test_what_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    with serving("--state", str(tmp_path / "state")) as server:
        server.tell("declare", "job", "--ranks-per-node", "2", "--strategies", "recover", "--nodes", "2")
        job = Job(server.target).up()
        assert server.tell("fault", "job", "--rank", "3").returncode == 0
        assert job.signal(SignalKind.PRE_EXIT).ranks == (FaultRank(3),)
        server.end(signal.SIGKILL)
        server.start()
        job.up()
        assert job.said.empty()  # it still knew the job, and that it had said Init and Register
        rows = server.tell("jobs", "--json").stdout
        assert '"subscribed": true' in rows
        job.report(FaultReported((FaultRank(2), FaultRank(3))))
        job.signal(SignalKind.STOP_TRAIN)
        job.client.close()


def test_two_servers_do_not_share_a_state(tmp_path: Path) -> None:
    with serving("--state", str(tmp_path / "state")):
        words = [
            sys.executable,
            "-m",
            "elastic_run",
            "server",
            "--listen",
            "127.0.0.1:0",
            "--state",
            str(tmp_path / "state"),
        ]
        done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, timeout=30)
        assert done.returncode == 69
        assert re.fullmatch(r"elastic-run: --state .*; is another server running on it\?\n", done.stderr)


def test_the_newest_subscriber_is_the_only_one(server: Server, job: Job) -> None:
    other = Job(server.target).up()
    job.up()  # it has lost the stream and taken it back
    other.up()  # as the other one has
    other.client.close()
    job.up()
    job.recover()


def test_signals_of_operators_reach_the_job(server: Server, job: Job) -> None:
    assert server.tell("fault", "job", "--rank", "1", "--kind", "memory").returncode == 0
    assert job.signal(SignalKind.PRE_EXIT).ranks == (FaultRank(1),)
    assert server.tell("fault", "job", "--rank", "1", "--kind", "memory", "--clear").returncode == 0
    assert server.tell("stop", "job").returncode == 0
    job.next(LinkChanged)
    assert server.tell("stop", "job").stderr == "elastic-run: no job job is declared\n"
    assert server.tell("fault", "job", "--rank", "1").stderr == "elastic-run: job job is not registered\n"


# -- certificates


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca, other-ca, server, client, expired (of the server), each .pem and .key."""
    place = tmp_path_factory.mktemp("pki")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    for name in ("ca", "other-ca"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    (place / "index").write_text("")
    (place / "serial").write_text("01\n")
    (place / "ca.cnf").write_text(
        "[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index\nserial=serial\ndefault_md=sha256\n"
        "policy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=IP:127.0.0.1\n"
    )
    for name, year in (("server", "2049"), ("client", "2049"), ("expired", "2021")):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        openssl("ca", "-batch", "-config", "ca.cnf", "-in", f"{name}.csr", "-cert", "ca.pem", "-keyfile", "ca.key",
                "-out", f"{name}.pem", "-startdate", "20200101000000Z", "-enddate", f"{year}0101000000Z")  # fmt: skip
    return place


def certificates(pki: Path, ca: str = "ca", own: str | None = None) -> Certificates:
    mine = (str(pki / f"{own}.pem"), str(pki / f"{own}.key")) if own else (None, None)
    return Certificates(str(pki / f"{ca}.pem"), *mine)


def tls(pki: Path, name: str = "server", *more: str) -> tuple[str, ...]:
    return ("--tls-cert", str(pki / f"{name}.pem"), "--tls-key", str(pki / f"{name}.key"), *more)


def declared(pki: Path, server: Server, *own: str) -> None:
    words = ("declare", "job", "--ranks-per-node", "2", "--ca", str(pki / "ca.pem"), *own)
    done = server.tell(*words)
    assert done.returncode == 0, done.stderr


def test_tls(pki: Path) -> None:
    with serving(*tls(pki)) as server:
        declared(pki, server)
        job = Job(server.target, files=certificates(pki)).up()
        job.recover()
        job.client.close()


def test_mutual_tls(pki: Path) -> None:
    with serving(*tls(pki, "server", "--tls-client-ca", str(pki / "ca.pem"))) as server:
        declared(pki, server, "--cert", str(pki / "client.pem"), "--key", str(pki / "client.key"))
        job = Job(server.target, files=certificates(pki, own="client")).up()
        job.recover()
        job.client.close()
        stranger = Job(server.target, files=certificates(pki))
        assert "ClusterD is not there yet" in stranger.said.get(timeout=BOUND)
        stranger.client.close()


@pytest.mark.parametrize(("name", "ca", "words"), [("server", "other-ca", "certificate"), ("expired", "ca", "expired")])
def test_a_servers_certificate_that_is_not_good_is_named_and_nothing_goes_in_the_clear(
    pki: Path, name: str, ca: str, words: str
) -> None:
    with serving(*tls(pki, name)) as server:
        job = Job(server.target, files=certificates(pki, ca))
        line = job.said.get(timeout=BOUND)
        assert "its certificate is not accepted" in line
        assert words in line
        assert job.facts.empty()
        job.client.close()


# -- clients that are not ours


def plain(server: Server, *options: tuple[str, object]) -> tuple[grpc.Channel, Callable[..., Any]]:
    channel = grpc.insecure_channel(server.target, options=list(options))

    def call(name: str, request: Any, **more: Any) -> Any:
        return rpc(channel, name)(request, **{"timeout": BOUND, **more})

    return channel, call


def test_codes_and_texts_of_a_stranger(server: Server) -> None:
    channel, call = plain(server)
    who = pb.ClientInfo(jobId="nobody", role="x")
    assert call("Init", who).code == 502
    assert call("Register", who).code == 408
    assert call("ReportStopComplete", pb.StopCompleteRequest(jobId="nobody")).code == 400
    assert call("HealthCheck", who).info == "jobId=nobody, receive HeathCheck"
    with pytest.raises(grpc.RpcError) as failed:
        next(call("SubscribeProcessManageSignal", who))
    assert failed.value.code() is grpc.StatusCode.UNKNOWN
    assert failed.value.details() == "jobId=nobody not registed"
    known = pb.ClientInfo(jobId="job", role="x")
    assert call("Init", known).info == "job(uid=job) init success"
    assert call("Register", known).info == "register success"
    assert call("ReportProcessFault", pb.ProcessFaultRequest(jobId="job")).info == "receive ReportProcessFault"
    assert call("ReportStopComplete", pb.StopCompleteRequest(jobId="job")).info == (
        "jobId=job, uuid=, receive ReportStopComplete"
    )
    channel.close()


def test_an_old_client_that_pings_every_three_seconds_is_served(server: Server) -> None:
    """TaskD's Python client: pings at 3 s without calls, Init and Register again after each end of the stream."""
    options = (("grpc.keepalive_time_ms", 3000), ("grpc.keepalive_timeout_ms", 1000),
               ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 1))  # fmt: skip
    channel, call = plain(server, *options)
    who = pb.ClientInfo(jobId="job", role="master agent")
    for pings in (2, 0):
        assert call("Init", who).code == 0
        assert call("Register", who).code == 0
        stream = call("SubscribeProcessManageSignal", who, timeout=None)
        fault = pb.ProcessFaultRequest(jobId="job", faultRanks=[pb.FaultRank(rankId="1", faultType="1")])
        call("HealthCheck", who)
        assert call("ReportProcessFault", fault).code == 0
        kinds = [next(stream).signalType]
        alive = [next(stream).signalType for _ in range(pings)]  # one comes every five seconds
        assert alive == ["keep-alive"] * pings
        call("ReportStopComplete", pb.StopCompleteRequest(jobId="job", status=pb.Status()))
        kinds.append(next(m for m in stream if m.signalType != "keep-alive").signalType)
        call("ReportRecoverStrategy", pb.RecoverStrategyRequest(jobId="job", strategies=["recover", "exit"]))
        kinds.append(next(m for m in stream if m.signalType != "keep-alive").signalType)
        call("ReportRecoverStatus", pb.RecoverStatusRequest(jobId="job", status=pb.Status(), strategy="recover"))
        assert [m for m in stream if m.signalType != "keep-alive"] == []
        assert kinds == ["stopTrain", "globalFault", "changeStrategy"]
    channel.close()


def test_more_calls_than_the_limit_are_refused_with_clusterds_text() -> None:
    with serving("--limit", "20") as server:
        channel, call = plain(server)
        who = pb.ClientInfo(jobId="job", role="x")
        answers = []
        for _ in range(60):
            try:
                answers.append(call("Init", who).code)
            except grpc.RpcError as error:
                answers.append(error.details())
        assert "qps exceeded, method=/Recover/Init" in answers
        assert 20 <= answers.count(502) < 60
        channel.close()


def test_garbage_neither_stops_the_server_nor_the_other_jobs(server: Server, job: Job) -> None:
    for data in (
        b"",
        os.urandom(4096),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(512),
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(data)
    channel, call = plain(server)
    who = pb.ClientInfo(jobId="x" * 100_000, role="y" * 100_000)
    assert call("Init", who).code == 502
    raw = channel.unary_unary("/Recover/Init", lambda data: data, lambda data: data)
    with pytest.raises(grpc.RpcError):
        raw(os.urandom(1000) + b"\xff", timeout=BOUND)
    with pytest.raises(grpc.RpcError) as failed:
        raw(b"\x0a" + b"x" * (5 << 20), timeout=BOUND)
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    odd = [pb.FaultRank(rankId=word, faultType="1") for word in ("", "abc", "-1", "1.5", "9" * 50, "٣")]
    assert call("ReportProcessFault", pb.ProcessFaultRequest(jobId="job", faultRanks=odd)).code == 0
    many = [pb.FaultRank(rankId=str(rank), faultType="?") for rank in range(100_000)]
    assert call("ReportProcessFault", pb.ProcessFaultRequest(jobId="job", faultRanks=many)).code == 0
    assert len(job.signal(SignalKind.STOP_TRAIN).ranks) == 100_000
    channel.close()


def test_a_report_that_nobody_reads_yet_is_answered_when_it_is(server: Server, job: Job) -> None:
    job.report(FaultReported((FaultRank(1),)))
    job.signal(SignalKind.STOP_TRAIN)
    channel, call = plain(server)
    offer = pb.RecoverStrategyRequest(jobId="job", strategies=["recover"])
    assert call("ReportRecoverStrategy", offer).code == 0
    answers: list[int] = []
    second = threading.Thread(target=lambda: answers.append(call("ReportRecoverStrategy", offer).code))
    second.start()
    job.report(StopCompleted())
    job.signal(SignalKind.GLOBAL_FAULT)
    second.join(BOUND)
    assert answers == [0]
    channel.close()


def test_switching_links_and_stress_tests_over_the_wire(server: Server, job: Job) -> None:
    channel, call = plain(server)
    who = pb.ClientInfo(jobId="job", role="x")
    orders = call("SubscribeNotifySwitch", who, timeout=None)
    ops = pb.SwitchNics(jobID="job")
    ops.nicOps["0"].dev.append("1")
    assert call("SwitchNicTrack", ops).code == 413  # an operation is missing
    ops.nicOps["0"].op.append(True)
    assert call("SwitchNicTrack", ops).code == 0
    result = call("SubscribeSwitchNicSignal", pb.SwitchNicRequest(jobID="job"), timeout=None)
    job.signal(SignalKind.STOP_TRAIN)
    assert call("SwitchNicTrack", ops).code == 411
    job.report(StopCompleted())
    assert list(next(orders).rankID) == ["1"]
    assert call("ReplySwitchNicResult", pb.SwitchResult(jobId="job", result=True)).code == 0
    assert job.signal(SignalKind.CHANGE_STRATEGY).strategy is Strategy.CONTINUE
    job.report(StatusReported(0, Strategy.CONTINUE))
    assert next(result).msg == "switch nic finish"
    channel.close()


def test_a_port_in_use_is_one_line(server: Server) -> None:
    words = [sys.executable, "-m", "elastic_run", "server", "--listen", server.target]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stderr == f"elastic-run: --listen {server.target} cannot be listened on; is the port taken?\n"


def test_an_orderly_end(server: Server) -> None:
    assert server.end() == 0


def test_every_answer_to_a_call_is_told(job: Job) -> None:
    job.report(StopCompleted())
    assert job.next(CallFinished) == CallFinished(1, 0)


# -- a bad network


class Proxy:
    """Between client and server: `lag` seconds for each chunk; `cut()` ends all connections within a chunk."""

    def __init__(self, port: int) -> None:
        self._to, self.lag = port, 0.0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._links: list[socket.socket] = []
        self._pause = threading.Event()
        self._truncate = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listening.accept()
                try:
                    other = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    link.close()
                    continue
                self._links += [link, other]
                for one, two in ((link, other), (other, link)):
                    threading.Thread(target=self._pump, args=(one, two), daemon=True).start()

    def _pump(self, one: socket.socket, two: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(4096):
                self._pause.wait(self.lag)
                if self._truncate:
                    two.sendall(data[: len(data) // 2])
                    break
                two.sendall(data)
        with contextlib.suppress(OSError):
            two.shutdown(socket.SHUT_RDWR)
        one.close()  # the other pump closes the other one

    def cut(self) -> None:
        """What is on its way arrives in part; from then on connections are good again."""
        links, self._links, self._truncate = self._links, [], True
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RD)
        self._truncate = False

    def close(self) -> None:
        self._listening.close()
        self.cut()


def test_a_network_that_delays_and_truncates_costs_time_and_no_incident(server: Server) -> None:
    proxy = Proxy(server.port)
    job = Job(proxy.target).up()
    proxy.lag = 0.02
    job.recover()
    for _ in range(3):
        job.report(FaultReported((FaultRank(1),)))
        proxy.cut()
        if not job.next(LinkChanged).up:  # the report may have noticed it first, and the stream was got again at once
            job.up()
        while not job.facts.empty():
            job.facts.get()
        job.recover()
    job.client.close()
    proxy.close()


def test_a_report_that_arrives_twice_changes_nothing(server: Server, job: Job) -> None:
    channel, call = plain(server)
    fault = pb.ProcessFaultRequest(jobId="job", faultRanks=[pb.FaultRank(rankId="1", faultType="1")])
    assert [call("ReportProcessFault", fault).code for _ in range(3)] == [0, 0, 0]
    job.signal(SignalKind.STOP_TRAIN)
    job.report(StopCompleted())
    job.signal(SignalKind.GLOBAL_FAULT)
    channel.close()
