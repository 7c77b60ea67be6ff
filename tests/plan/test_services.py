"""What torch's variables ask for."""

from __future__ import annotations

import pytest

from elastic_run.errors import ConfigError
from elastic_run.plan.services import Services, services


def test_nothing_is_asked_for_by_empty_variables() -> None:
    empty = dict.fromkeys(
        ("TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE", "TORCHELASTIC_HEALTH_CHECK_PORT"), ""
    )
    assert services({}) == services(empty) == Services()
    assert services({"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "-1"}) == Services()


def test_each_is_read() -> None:
    asked = {
        "TORCHELASTIC_ENABLE_FILE_TIMER": "1",
        "TORCHELASTIC_TIMER_FILE": "/x",
        "TORCHELASTIC_HEALTH_CHECK_PORT": "8080",
        "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "2.5",
    }
    assert services(asked) == Services(True, "/x", 8080, 2.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCHELASTIC_HEALTH_CHECK_PORT", "99999"),
        ("TORCHELASTIC_HEALTH_CHECK_PORT", "http"),
        ("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "soon"),
        ("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "nan"),
    ],
)
def test_nonsense_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        services({name: value})
