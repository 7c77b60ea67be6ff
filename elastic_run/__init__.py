"""elastic-run: the launcher of training jobs that survives faults. Importing this imports nothing else."""

from typing import Any

__version__ = "0.1.0"


def launch(target: Any, *args: Any, kwargs: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    """Run a function or a script in several ranks; see `elastic_run.python.launch`."""
    from elastic_run import python

    return python.launch(target, *args, kwargs=kwargs, **options)
