"""The names of Elastic Agent, on top of elastic-run, for images that still import them."""

from elastic_run import __version__

__all__ = ["__version__"]
