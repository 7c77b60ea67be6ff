"""ClusterD for training frameworks, under the names that users of Elastic Agent know.

A framework that runs outside of `elastic-run` registers its job here, hears the signals, and reports:

    manager = DLRecoverManager(pb.ClientInfo(jobId=job, role="master agent"), "10.0.0.1:8899", secure_conn=False)
    manager.on("stopTrain", stop)
    manager.init_clusterd()
    manager.register(manager.info)
    manager.start_subscribe()

Source of names and codes: Elastic Agent's public interface and ClusterD's protocol (docs/clusterd.md).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from pathlib import Path

import grpc

from elastic_run.clusterd.channel import Certificates, cause, open_channel, rpc
from elastic_run.clusterd.subscription import ENTER_WAIT, NotServed, Refused, Subscription, enter
from elastic_run.errors import ConfigError, PlatformError
from elastic_run.recover_manager import pb

__all__ = [
    "DLRecoverManager",
    "ReturnCode",
    "TransportError",
    "pb",
    "report_process_fault",
    "report_recover_status",
    "report_recover_strategy",
    "report_stop_complete",
]

FaultRanks = Mapping[int, int] | Iterable[int]
"""Global ranks, with their fault type: 0 on-chip memory, 1 other (also where none is given), 2 network."""
Hook = Callable[[pb.ProcessManageSignal], None]
_log = logging.getLogger(__name__)
INSIDE = "ELASTIC_RUN_JOB"
INIT_WAIT, INIT_PAUSE = 300.0, 5.0
REPORT_WAIT = 60.0


class ReturnCode(IntEnum):
    """Codes of ClusterD's answers, and those that a job reports."""

    OK = 0
    """Done; a report is queued, which does not mean that it is acted upon."""
    UNREGISTERED = 400
    """The job is not registered, or ClusterD was started anew: Init and Register come first."""
    ORDER_MIX = 401
    """Within ClusterD only: an event came in a state that does not know it."""
    JOB_NOT_EXIST = 402
    """Register: ClusterD does not know the job's pod group."""
    PROCESS_RECOVER_ENABLE_OFF = 403
    """Init: recovery is switched off for this job."""
    PROCESS_NOT_READY = 404
    """Reported with stop complete: the job cannot take part, it is ended."""
    RECOVERABLE_RETRY_ERROR = 405
    """Reported: the retry failed, processes may be recovered."""
    UNRECOVERABLE_RETRY_ERROR = 406
    """Reported: the retry failed for good; only dump and exit are left."""
    DUMP_ERROR = 407
    """Reported: last words could not be saved."""
    UN_INIT = 408
    """Register before Init."""
    CLIENT_ERROR = 499
    """Reported: pause, continue or retry failed, and nothing can be saved."""
    OUT_OF_MAX_SERVE_JOBS = 500
    """Register: ClusterD serves as many jobs as it can."""
    OPERATE_CONFIG_MAP_ERROR = 501
    """Within ClusterD: a config map could not be read or written."""
    OPERATE_POD_GROUP_ERROR = 502
    """Init, Register: the job is not known, or its pod group could not be read or written."""
    SCHEDULE_TIMEOUT = 503
    """Within ClusterD: pods did not come back in time."""
    SIGNAL_QUEUE_BUSY = 504
    """Within ClusterD: the last signal was not taken."""
    EVENT_QUEUE_BUSY = 505
    """Not used."""
    CONTROLLER_EVENT_CANCEL = 506
    """Within ClusterD: a wait was cut short."""
    WAIT_REPORT_TIMEOUT = 507
    """Within ClusterD: the job did not report in 15 minutes."""
    WAIT_PLAT_STRATEGY_TIMEOUT = 508
    """Within ClusterD: a platform did not choose in time."""
    WRITE_CONFIRM_FAULT_OR_WAIT_PLAT_RESULT_FAULT = 509
    """Within ClusterD: the exchange with a platform failed."""
    SERVER_INNER_ERROR = 599
    """A report waited for its turn when the incident was forgotten."""


class TransportError(PlatformError):
    """ClusterD was not reached, or did not answer in time."""


class DLRecoverManager:
    """A job's connection to ClusterD. One for a process; the module's functions use the newest.

    Args:
        info: `jobId` and `role` of the job.
        server_addr: HOST:PORT of ClusterD.
        secure_conn: TLS; without it everything goes in the clear.
        cert_path: PEM file of who signed ClusterD's certificate; empty for the system's list. A directory holds that as
            `ca.pem`, and for mutual TLS our own as `client.pem` with `client.key`.

    Raises:
        ConfigError: a certificate cannot be used.
        PlatformError: this is a process of an `elastic-run` job, whose launcher holds the job's one subscription.
    """

    def __init__(self, info: pb.ClientInfo, server_addr: str, secure_conn: bool = True, cert_path: str = "") -> None:
        if INSIDE in os.environ:
            what = "the launcher of this job speaks with ClusterD, and a second subscriber would end its recovery"
            raise PlatformError(f"{what}; use DLRecoverManager outside of elastic-run")
        if not info.jobId:
            raise ConfigError("info.jobId is empty; give the job's id (in a pod: the variable MINDX_TASK_ID)")
        self.info, self._target = info, server_addr
        self._channel = open_channel(server_addr, _certificates(cert_path) if secure_conn else None)
        self._calls = {name: rpc(self._channel, name) for name in _METHODS}
        self._hooks: dict[str, list[Hook]] = {}
        self._subscription: Subscription | None = None
        self._lock = threading.Lock()
        _newest.append(self)
        del _newest[:-1]

    def init_clusterd(self) -> int:
        """Say Init until ClusterD takes it, 300 s at most.

        Returns:
            0; 403 if recovery is switched off for this job, when there is nothing to subscribe to; or the last code.

        Raises:
            TransportError: ClusterD was not reached in that time.
        """
        ends, code, because = time.monotonic() + INIT_WAIT, -1, ""
        while time.monotonic() < ends:
            try:
                code = self._call("Init", self.info, ENTER_WAIT).code
                if code in (ReturnCode.OK, ReturnCode.PROCESS_RECOVER_ENABLE_OFF):
                    return int(code)
            except TransportError as error:
                because = str(error)
            time.sleep(INIT_PAUSE)
        if code < 0:
            raise TransportError(because)
        return int(code)

    def register(self, request: pb.ClientInfo) -> pb.Status:
        """Register the job; Init comes first.

        Returns:
            A status whose code is 0, 402, 408, 500 or 502 (ReturnCode).

        Raises:
            TransportError: ClusterD did not answer.
        """
        return self._call("Register", request, ENTER_WAIT)

    def on(self, signal_type: str, hook: Hook) -> None:
        """Call `hook` with each signal of a type ("stopTrain", …; "" for all), in the order of registration.

        Hooks run in the thread of the subscription: one that takes long holds up the next signal. What a hook raises
        ends only that hook.
        """
        self._hooks.setdefault(signal_type, []).append(hook)

    def start_subscribe(self) -> None:
        """Hear signals in a thread of its own until `close`; a stream that ends is got again."""
        with self._lock:
            if self._subscription is None:
                self._subscription = Subscription(self._channel, self._target, self.info, _Ears(self._hooks))
                self._subscription.start()

    def close(self) -> None:
        with self._lock:
            if self._subscription is not None:
                self._subscription.close()
            self._channel.close()

    def report_stop_complete(self, code: int, msg: str, fault_ranks: FaultRanks) -> int:
        """As the module's function."""
        status = pb.Status(code=code, info=msg)
        ranks = _ranks(fault_ranks)
        return self._report("ReportStopComplete", pb.StopCompleteRequest(status=status, faultRanks=ranks))

    def report_recover_strategy(self, fault_ranks: FaultRanks, strategy_list: Iterable[str]) -> int:
        """As the module's function."""
        request = pb.RecoverStrategyRequest(faultRanks=_ranks(fault_ranks), strategies=list(strategy_list))
        return self._report("ReportRecoverStrategy", request)

    def report_recover_status(self, code: int, msg: str, fault_ranks: FaultRanks, strategy: str) -> int:
        """As the module's function."""
        isolate = [rank.rankId for rank in _ranks(fault_ranks)]
        status = pb.Status(code=code, info=msg)
        request = pb.RecoverStatusRequest(status=status, strategy=strategy, isolateRankIds=isolate)
        return self._report("ReportRecoverStatus", request)

    def report_process_fault(self, fault_ranks: FaultRanks) -> int:
        """As the module's function."""
        return self._report("ReportProcessFault", pb.ProcessFaultRequest(faultRanks=_ranks(fault_ranks)))

    def _report(self, name: str, request: object) -> int:
        request.jobId = self.info.jobId  # type: ignore[attr-defined]
        code = self._call(name, request, REPORT_WAIT).code
        if code != ReturnCode.OK:
            try:
                enter(self._calls, self.info, self._target)
            except (Refused, NotServed):
                return int(code)
            except grpc.RpcError as error:
                raise TransportError(f"{self._target}: {cause(error)}") from error
            code = self._call(name, request, REPORT_WAIT).code
        return int(code)

    def _call(self, name: str, request: object, wait: float) -> pb.Status:
        try:
            status: pb.Status = self._calls[name](request, timeout=wait)
        except grpc.RpcError as error:
            raise TransportError(f"{self._target} does not answer {name}: {cause(error)}") from error
        return status


_METHODS = ("Init", "Register", "ReportStopComplete", "ReportRecoverStrategy", "ReportRecoverStatus",
            "ReportProcessFault")  # fmt: skip
_newest: list[DLRecoverManager] = []


def report_stop_complete(code: int, msg: str, fault_ranks: FaultRanks) -> int:
    """Report that training has stopped.

    Args:
        code: 0; 404 if the job cannot take part, which ends it. ClusterD takes every other code for 0.
        msg: For ClusterD's log.
        fault_ranks: Global ranks and their fault types.

    Returns:
        0 if the report is queued, else a ReturnCode. A code other than 0 leads to one Init, Register and one more try.

    Raises:
        TransportError: ClusterD did not answer.
        ConfigError: there is no DLRecoverManager in this process.
    """
    return _the_newest().report_stop_complete(code, msg, fault_ranks)


def report_recover_strategy(fault_ranks: FaultRanks, strategy_list: Iterable[str]) -> int:
    """Report what the job can do: of exit, dump, retry, recover, downgrade, upgrade, migration.

    `retry` belongs in it whenever it is configured. Returns and raises as report_stop_complete.
    """
    return _the_newest().report_recover_strategy(fault_ranks, strategy_list)


def report_recover_status(code: int, msg: str, fault_ranks: FaultRanks, strategy: str) -> int:
    """Report how a strategy went.

    Args:
        code: 0; 405, 406 or 499 for a retry that failed (ReturnCode), any other for the rest; 201 with downgrade names
            in `fault_ranks` who is left out.
        msg: For ClusterD's log.
        fault_ranks: Global ranks.
        strategy: The one that was told; "recover" also for a recovery in place.

    Returns and raises as report_stop_complete.
    """
    return _the_newest().report_recover_status(code, msg, fault_ranks, strategy)


def report_process_fault(fault_ranks: FaultRanks) -> int:
    """Report processes that died, all of one fault in one call. Returns and raises as report_stop_complete."""
    return _the_newest().report_process_fault(fault_ranks)


def _the_newest() -> DLRecoverManager:
    if not _newest:
        raise ConfigError("there is no DLRecoverManager in this process; make one first")
    return _newest[-1]


def _ranks(ranks: FaultRanks) -> list[pb.FaultRank]:
    pairs = ranks.items() if isinstance(ranks, Mapping) else ((rank, 1) for rank in ranks)
    return [pb.FaultRank(rankId=str(int(rank)), faultType=str(int(kind))) for rank, kind in pairs]


def _certificates(path: str) -> Certificates:
    if not path or not Path(path).is_dir():
        return Certificates(path or None)
    own = [str(file) if (file := Path(path, name)).exists() else None for name in ("client.pem", "client.key")]
    return Certificates(str(Path(path, "ca.pem")), *own)


class _Ears:
    """Hands signals to hooks."""

    def __init__(self, hooks: Mapping[str, list[Hook]]) -> None:
        self._hooks = hooks

    def up(self, because: str) -> None:
        pass  # a framework learns it from the first signal

    def lost(self, because: str) -> None:
        self.say(f"ClusterD is lost: {because}")

    def refused(self, because: str) -> None:
        self.say(f"without ClusterD: {because}")

    def message(self, message: pb.ProcessManageSignal) -> None:
        for hook in (*self._hooks.get(message.signalType, ()), *self._hooks.get("", ())):
            try:
                hook(message)
            except Exception:
                _log.exception("a hook of %s failed", message.signalType)

    def say(self, text: str) -> None:
        _log.warning("%s", text)
