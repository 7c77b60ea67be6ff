"""For training scripts: stdlib only, quick to import, and without effect outside elastic-run."""

from elastic_run.worker.record import record

__all__ = ["record"]
