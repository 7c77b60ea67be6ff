"""elastic-run: the launcher of training jobs that survives faults. Importing this imports nothing else."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`launch` and `WorkersFailed`, loaded when they are first asked for; see `elastic_run.python.launch`."""
    if name in ("launch", "WorkersFailed"):
        from elastic_run import python

        return getattr(python, name)
    raise AttributeError(f"module 'elastic_run' has no attribute {name!r}")
