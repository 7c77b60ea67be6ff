"""ClusterD for training frameworks; see elastic_run.recover_manager."""

from elastic_run.recover_manager import (
    DLRecoverManager,
    ReturnCode,
    TransportError,
    pb,
    report_process_fault,
    report_recover_status,
    report_recover_strategy,
    report_stop_complete,
)

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
