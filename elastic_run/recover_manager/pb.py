"""Messages of ClusterD's service Recover: ClientInfo, Status, FaultRank, ProcessManageSignal and the requests."""

from elastic_run.clusterd.pb.recover import (
    ClientInfo,
    FaultRank,
    ProcessFaultRequest,
    ProcessManageSignal,
    RecoverStatusRequest,
    RecoverStrategyRequest,
    Status,
    StopCompleteRequest,
)

__all__ = [
    "ClientInfo",
    "FaultRank",
    "ProcessFaultRequest",
    "ProcessManageSignal",
    "RecoverStatusRequest",
    "RecoverStrategyRequest",
    "Status",
    "StopCompleteRequest",
]
