"""The one option of the test suite; hypothesis draws the same examples in each run."""

import pytest
from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None, database=None)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the traces of tests/scenarios anew; review the diff")
