"""elastic-run: the launcher of training jobs that survives faults. Importing this imports nothing else."""

__version__ = "0.1.0"
