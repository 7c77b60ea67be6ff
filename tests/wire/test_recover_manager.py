"""The interface for training frameworks against a real server; our messages beside those of other modules."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from elastic_run import recover_manager
from elastic_run.errors import ConfigError, PlatformError
from elastic_run.recover_manager import DLRecoverManager, ReturnCode, TransportError, pb
from tests.wire.serving import BOUND, TOP, Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        one.tell("declare", "job", "--ranks-per-node", "2")
        yield one


@pytest.fixture
def manager(server: Server) -> Iterator[DLRecoverManager]:
    one = DLRecoverManager(pb.ClientInfo(jobId="job", role="master agent"), server.target, secure_conn=False)
    yield one
    one.close()


def test_an_incident_from_the_first_call_to_the_last(manager: DLRecoverManager) -> None:
    heard: SimpleQueue[pb.ProcessManageSignal] = SimpleQueue()
    for kind in ("stopTrain", "globalFault", "changeStrategy"):
        manager.on(kind, heard.put)
    assert manager.init_clusterd() == 0
    assert manager.register(manager.info).code == ReturnCode.OK
    manager.start_subscribe()
    manager.start_subscribe()  # once is enough
    while True:
        assert recover_manager.report_process_fault({1: 1}) == 0
        try:
            stop = heard.get(timeout=1.0)
            break
        except Empty:  # it came before the subscription, and is lost; said again, as one must
            continue
    assert [(rank.rankId, rank.faultType) for rank in stop.faultRanks] == [("1", "1")]
    assert recover_manager.report_stop_complete(0, "ok", {1: 1}) == 0
    assert heard.get(timeout=BOUND).signalType == "globalFault"
    assert recover_manager.report_recover_strategy([1], ["recover", "exit"]) == 0
    assert heard.get(timeout=BOUND).changeStrategy == "recover"
    assert recover_manager.report_recover_status(0, "ok", [1], "recover") == 0


def test_a_code_leads_to_one_registration_and_one_more_try(manager: DLRecoverManager, server: Server) -> None:
    assert manager.report_process_fault([1]) == 0  # nobody had registered the job
    server.tell("stop", "job")
    assert manager.report_process_fault([1]) == ReturnCode.UNREGISTERED


def test_a_hook_that_fails_ends_only_itself(
    manager: DLRecoverManager, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    manager.on("keep-alive", lambda message: 1 / 0)
    manager.on("", lambda message: heard.put(message.signalType))
    with caplog.at_level(logging.ERROR):
        manager.start_subscribe()
        assert heard.get(timeout=BOUND) == "keep-alive"
    assert "a hook of keep-alive failed" in caplog.text


def test_a_server_that_is_gone_is_an_error_of_its_own(manager: DLRecoverManager, server: Server) -> None:
    server.end(signal.SIGKILL)
    with pytest.raises(TransportError, match="does not answer Register"):
        manager.register(manager.info)
    with pytest.raises(PlatformError):
        recover_manager.report_stop_complete(0, "", {})


def test_a_job_whose_recovery_is_off() -> None:
    with serving() as server:
        server.tell("declare", "job", "--term", "recovery=false")
        manager = DLRecoverManager(pb.ClientInfo(jobId="job"), server.target, secure_conn=False)
        assert manager.init_clusterd() == ReturnCode.PROCESS_RECOVER_ENABLE_OFF
        manager.close()


def test_within_a_job_of_ours_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUN_JOB", "x")
    with pytest.raises(PlatformError, match="the launcher of this job speaks with ClusterD"):
        DLRecoverManager(pb.ClientInfo(jobId="job"), "127.0.0.1:1", secure_conn=False)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    with pytest.raises(ConfigError, match=r"info\.jobId is empty"):
        DLRecoverManager(pb.ClientInfo(), "127.0.0.1:1")
    with pytest.raises(ConfigError, match="cannot be read"):
        DLRecoverManager(pb.ClientInfo(jobId="job"), "127.0.0.1:1", cert_path=f"{tmp_path}/ca.pem")
    with pytest.raises(ConfigError, match="cannot be read"):
        DLRecoverManager(pb.ClientInfo(jobId="job"), "127.0.0.1:1", cert_path=f"{tmp_path}")
    monkeypatch.setattr(recover_manager, "_newest", [])
    with pytest.raises(ConfigError, match="no DLRecoverManager"):
        recover_manager.report_process_fault([1])


FOREIGN = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
def foreign():
    "recover.proto as others generate it: in the default pool, under its own name"
    file = descriptor_pb2.FileDescriptorProto(name="recover.proto", syntax="proto3")
    for name in ("Status", "ClientInfo", "FaultRank"):
        message = file.message_type.add(name=name)
        message.field.add(name="other", number=1, type=9, label=1)
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    pool = descriptor_pool.Default()
    make = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return make(pool.FindMessageTypeByName("Status"))
"""


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_foreign_module_with_the_same_messages_does_no_harm(order: str) -> None:
    ours = "from elastic_run.recover_manager import pb\n"
    theirs = "Status = foreign()\n"
    text = FOREIGN + (theirs + ours if order == "first" else ours + theirs)
    text += "assert Status(other='x').SerializeToString() and pb.Status(code=3).code == 3\n"
    text += "assert pb.Status.DESCRIPTOR.file.pool is not descriptor_pool.Default()\n"
    subprocess.run([sys.executable, "-c", text], cwd=TOP, check=True)


def test_a_training_process_that_subscribes_may_fork_data_loaders(server: Server) -> None:
    pytest.importorskip("torch")
    text = f"""
import torch
from elastic_run.recover_manager import DLRecoverManager, pb
manager = DLRecoverManager(pb.ClientInfo(jobId="job"), "{server.target}", secure_conn=False)
assert manager.init_clusterd() == 0 and manager.register(manager.info).code == 0
manager.start_subscribe()
data = torch.utils.data.TensorDataset(torch.arange(64))
for turn in range(3):
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
    assert sum(int(batch.sum()) for batch, in loader) == sum(range(64))
    assert manager.report_process_fault([]) == 0
manager.close()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", text], cwd=TOP, capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == 0
