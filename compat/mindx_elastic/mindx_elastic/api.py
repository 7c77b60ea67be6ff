"""Importing this makes torchrun hand its jobs to elastic-run."""

from elastic_run.api import patch_torch_methods

__all__ = ["patch_torch_methods"]
