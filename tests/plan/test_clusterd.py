"""Which ClusterD a job belongs to."""

from __future__ import annotations

import pytest

from elastic_run.errors import ConfigError
from elastic_run.plan.clusterd import Clusterd, clusterd

NOTHING = {
    "clusterd": None, "clusterd_job": None, "clusterd_ca": None, "clusterd_cert": None, "clusterd_key": None,
    "require_clusterd": False, "rdzv_id": None,
}  # fmt: skip
POD = {"MINDX_TASK_ID": "pod", "MINDX_SERVER_IP": "10.0.0.1"}


def found(environ: dict[str, str] | None = None, **given: object) -> Clusterd | None:
    return clusterd({**NOTHING, **given}, environ or {})


@pytest.mark.parametrize(
    ("text", "target", "tls"),
    [
        ("grpc://host:1", "host:1", False),
        ("grpcs://host:1", "host:1", True),
        ("host:1", "host:1", False),
        ("host", "host:8899", False),
        ("grpcs://host", "host:8899", True),
        ("[::1]:1", "[::1]:1", False),
        ("[::1]", "[::1]:8899", False),
        ("fe80::1", "[fe80::1]:8899", False),
    ],
)
def test_an_address(text: str, target: str, tls: bool) -> None:
    assert found(clusterd=text, clusterd_job="j") == Clusterd(target, "j", tls)


@pytest.mark.parametrize("text", ["http://h:1", "h:", "h:0", "h:70000", "h:x", "://h:1", "grpc://", ":1", "h:1/x"])
def test_an_address_that_makes_no_sense(text: str) -> None:
    with pytest.raises(ConfigError, match="--clusterd"):
        found(clusterd=text, clusterd_job="j")


def test_a_pod_names_its_own() -> None:
    told = found(POD)
    assert told is not None
    assert (told.target, told.job, told.tls) == ("10.0.0.1:8899", "pod", False)
    assert "in the clear" in told.note
    assert found({**POD, "LOCAL_PROXY_ENABLE": "on"}) == Clusterd("127.0.0.1:8899", "pod")
    assert found({"MINDX_SERVER_IP": "10.0.0.1"}) is None
    assert found(POD, clusterd="off") is None
    assert found(POD, clusterd="other:1", clusterd_job="j") == Clusterd("other:1", "j")


def test_the_jobs_id() -> None:
    assert found(POD, clusterd="h:1", rdzv_id="r") == Clusterd("h:1", "pod")
    assert found(clusterd="h:1", rdzv_id="r") == Clusterd("h:1", "r")
    with pytest.raises(ConfigError, match="needs the job's id"):
        found(clusterd="h:1")


def test_what_belongs_to_an_address_needs_one() -> None:
    for name in ("clusterd_job", "clusterd_ca", "clusterd_cert", "clusterd_key", "require_clusterd"):
        with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} needs --clusterd"):
            found(**{name: "x"})
    with pytest.raises(ConfigError, match="needs no certificates; write grpcs://h:1"):
        found(clusterd="h:1", clusterd_job="j", clusterd_ca="x")
