"""elastic-run: the launcher of training jobs that survives faults. Importing this imports nothing else."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`elastic_run.launch`, loaded when it is first asked for; see `elastic_run.python.launch`."""
    if name == "launch":
        from elastic_run.python import launch

        return launch
    raise AttributeError(f"module 'elastic_run' has no attribute {name!r}")
