"""Recorded dialogues with the real ClusterD, played again to our controller under a virtual clock.

A trace is followed event by event: what the client sent is sent, and what the server answered must be answered, in the
same order and with the same content. Where ours is meant to differ stands in DEVIATIONS, with the reason.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from elastic_run.clusterd import convert
from elastic_run.clusterd.jobs import configured
from elastic_run.clusterd.machine import Answered, Ended, Out
from elastic_run.clusterd.pb import recover as pb
from elastic_run.clusterd.registry import Declared, Registry
from elastic_run.clusterd.terms import CLUSTERD, Terms
from elastic_run.core.dialogue import FaultRank, FaultType, SignalKind
from elastic_run.core.events import SignalReceived

TRACES = Path(__file__).parents[3] / "shared" / "traces"
TOLERANCE = 1.7
"""Seconds by which a signal may come earlier or later: the real fault centre looks once a second."""

KUBERNETES = "there is no Kubernetes here whose objects could be missing or refuse to be written"
TRANSPORT = "about connections, not about the dialogue; see test_server.py"
SKIPPED = {
    "f16f_reset_configmap_missing": KUBERNETES,
    "f17a_kube_patch_fails_at_register": KUBERNETES,
    "f17b_kube_get_fails_at_init": KUBERNETES,
    "f18a_keepalive_faster_than_3s": TRANSPORT,
    "f18b_keepalive_10s": TRANSPORT,
    "f18c_rate_limit": TRANSPORT,
}
DEVIATIONS = {
    "f06e_uce_client_report_retry_not_configured": (
        "a report of a fault that only a retry could cure, on a job that may not retry, is an ordinary fault; "
        "ClusterD answers 0 and never comes back to it",
        "more than was recorded",
    ),
    "f06f_uce_retry_configured_not_offered": (
        "a retry that is configured but not offered leaves recover possible, with ranks and nodes; "
        "ClusterD goes to dump and names nobody",
        "'changeStrategy': 'recover'.* instead of .*'changeStrategy': 'dump'",
    ),
    "f11a_duplicate_faults": (
        "ranks reported after the global fault are expanded to their nodes like all others",
        r"\('0', '1'\), \('1', '1'\), \('2', '1'\), \('3', '1'\), .* instead of .*\[\('1', '1'\), \('4', '1'\)",
    ),
    "f11c_blocked_report_released_by_reset": (
        "while the job trains a report that nobody waits for is answered and forgotten; "
        "ClusterD keeps the first for a later incident and blocks the second",
        "0 instead of .*'code': 599",
    ),
    "f16h_rank_out_of_range_and_garbage": ("ranks that are no numbers are left out", "nothing came for .*'abc'"),
    "f16i_unknown_fault_type": ("an unknown type of fault is an ordinary one, at once", r"at 0\.\d+: .*preExitProcess"),
}
"""The dialogue is another one: why, and the first difference. No client that keeps the protocol can notice."""
EARLIER = {
    "f16o_grace_exit_subhealth": (5.2, "the real device plugin took five seconds more to see it"),
    "f20_hardware_fault_of_another_job_delays_uce": (9.0, "one job's broken device does not hold up another's faults"),
}
"""The dialogue is the same, but comes sooner: by how many seconds, and why."""
IGNORED_LEVELS = ("NotHandleFault", "PreSeparateNPU")
CURABLE = {"80E01801": FaultType.MEMORY, "8C1F860B": FaultType.NETWORK}


def names() -> list[str]:
    return sorted(path.stem for path in TRACES.glob("f*.jsonl"))


@dataclass
class Play:
    """One trace against one registry."""

    events: list[dict[str, Any]]
    registry: Registry = field(default_factory=lambda: Registry("test"))
    now: float = 0.0
    shift: float = 0.0
    """How much later than recorded we are: our fault centre looked later than theirs."""
    job: str = ""
    subscriber: dict[str, str] = field(default_factory=dict)
    streams: dict[str, deque[tuple[float, dict[str, Any] | str]]] = field(default_factory=dict)
    answers: dict[int, tuple[int, str]] = field(default_factory=dict)
    asked: dict[tuple[str, str], deque[int]] = field(default_factory=dict)
    tickets: int = 0
    alarms: dict[str, dict[int, str]] = field(default_factory=dict)
    ailing: dict[str, set[int]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """Recorded incident id -> ours."""
    keep_alives: list[str] = field(default_factory=list)
    early: float = 0.0

    def run(self) -> None:
        for event in self.events:
            match event["kind"]:
                case "flow":
                    if event["instance"] == "scaled":
                        self.registry.timing = replace(CLUSTERD, report_wait=15.0)
                case "config":
                    self.declare(event)
                case "c->s":
                    self.advance(event["t"] + self.shift)
                    self.ask(event)
                case "s->c" if "rpc" in event:
                    self.answered(event)
                case "s->c" if event["msg"]["signalType"] != "keep-alive":
                    self.told(event)
                case "stream-end":
                    self.ended(event)
                case "inject":
                    self.advance(event["t"] + self.shift)
                    self.inject(event)
        self.advance(self.events[-1]["t"] + self.shift)
        assert [self.streams[c] for c in self.streams if self.streams[c]] == [], "more than was recorded"

    # -- what is given

    def declare(self, event: dict[str, Any]) -> None:
        labels, notes = event["pgLabels"], event["pgAnnotations"]
        health = labels.get("subHealthyStrategy", "")
        terms = Terms(
            configured(notes.get("recover-strategy", "").split(",")),
            event["nodes"],
            event["devPerNode"],
            event["framework"],
            grace_exit=health == "graceExit",
            hot_switch=health == "hotSwitch",
            scheduled=True,
            reschedule_wait=float(notes.get("wait-reschedule-timeout", 270)),
        )
        self.job = event["job"]
        self.registry.declare(self.job, Declared(terms, labels.get("process-recover-enable") == "on"))

    def ask(self, event: dict[str, Any]) -> None:
        self.tickets += 1
        client, rpc, job = event["client"], event["rpc"], event["msg"].get("jobId", "")
        self.asked.setdefault((client, rpc), deque()).append(self.tickets)
        if rpc == "Init":
            self.answers[self.tickets] = self.registry.init(job)
        elif rpc == "Register":
            self.answers[self.tickets] = self.registry.register(job, self.now)
        elif rpc == "HealthCheck":
            self.answers[self.tickets] = (0, "")
        elif rpc == "SubscribeProcessManageSignal":
            self.subscribe(client, job)
        else:
            request = json_format.ParseDict(event["msg"], pb.METHODS[rpc].request())
            self.take(job, self.registry.report(job, convert.report_of(request), self.now, self.tickets))

    def subscribe(self, client: str, job: str) -> None:
        old = self.subscriber.get(job)
        told = self.registry.subscribe(job, self.now)
        stream = self.streams.setdefault(client, deque())
        if told is None:
            stream.append((self.now, "StatusCode.UNKNOWN"))
            return
        if old is not None and old != client:
            self.streams[old].append((self.now, "OK"))
        self.subscriber[job] = client
        self.take(job, told)

    def inject(self, event: dict[str, Any]) -> None:
        what, job = event["what"], event.get("job", self.job)
        controller = self.registry.controllers.get(job)
        match what:
            case "pod rescheduled":
                assert controller is not None
                self.take(job, controller.node_back(event["pod"], self.now))
            case "device-info configmap fault" | "device-info configmap clear":
                self.devices(event)
            case "podgroup patch":
                phase = event["body"].get("status", {}).get("phase")
                if phase and controller is not None:
                    self.take(job, controller.runs(phase == "Running", self.now))
                label = event["body"].get("metadata", {}).get("labels", {}).get("process-recover-enable")
                if label:
                    declared = self.registry.declared[job]
                    self.registry.declare(job, replace(declared, recovery=label == "on"))
            case "job deleted":
                self.take(job, self.registry.delete(job))
            case "ClusterD killed (SIGKILL)":
                self.streams[self.subscriber.pop(job)].append((self.now, "StatusCode.UNAVAILABLE"))
                self.registry = Registry("again", declared=self.registry.declared)
            case "client closes its channel" | "client cancels its stream":
                self.gone(event.get("client") or self.subscriber[job])

    def devices(self, event: dict[str, Any]) -> None:
        rank, job = event["rank"], self.job_with_alarm(event)
        alarms, ailing = self.alarms.setdefault(job, {}), self.ailing.setdefault(job, set())
        if event["what"].endswith("clear"):
            alarms.pop(rank, None)
        elif event["level"] == "SubHealthFault":
            ailing.add(rank)
        elif event["level"] not in IGNORED_LEVELS:
            alarms[rank] = event["code"]
        shown = frozenset(FaultRank(r, CURABLE.get(code, FaultType.OTHER)) for r, code in alarms.items())
        self.take(job, self.registry.controllers[job].devices(shown, frozenset(ailing), self.now))

    def job_with_alarm(self, event: dict[str, Any]) -> str:
        return next(iter(self.registry.declared)) if len(self.registry.declared) > 1 else self.job

    # -- what comes of it

    def take(self, job: str, told: list[Out]) -> None:
        for out in told:
            match out:
                case Answered():
                    self.answers[out.ticket] = (out.code, out.info)
                case Ended():
                    self.streams[self.subscriber.pop(job)].append((self.now, "OK"))
                case SignalReceived(kind=SignalKind.KEEP_ALIVE):
                    self.keep_alives.append(job)
                case SignalReceived():
                    message = json_format.MessageToDict(convert.signal_message(job, out))
                    self.streams[self.subscriber[job]].append((self.now, message))
        if job in self.registry.controllers:
            self.registry.moved(job, [])

    def advance(self, until: float) -> None:
        while (due := self.registry.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            for job, told in self.registry.tick(self.now):
                self.take(job, told)
        self.now = max(self.now, until)

    def wait(self, client: str, event: dict[str, Any]) -> tuple[float, dict[str, Any] | str]:
        """The next thing on a stream, which may be late."""
        stream, by = self.streams.setdefault(client, deque()), event["t"] + self.shift
        self.advance(by)
        while not stream:
            due = self.registry.deadline()
            if due is None or due > by + TOLERANCE:
                raise AssertionError(f"nothing came for {event}")
            self.advance(due)
        self.shift = max(self.shift, self.now - event["t"])
        return stream.popleft()

    def gone(self, client: str) -> None:
        for job in [job for job, name in self.subscriber.items() if name == client]:
            del self.subscriber[job]
            self.take(job, self.registry.controllers[job].unsubscribe(self.now))

    # -- what was recorded

    def answered(self, event: dict[str, Any]) -> None:
        ticket = self.asked[event["client"], event["rpc"]].popleft()
        if "grpc" not in event["reply"]:  # else the server was down
            assert ticket in self.answers, f"no answer yet: {event}"
            code = self.answers[ticket][0]
            assert code == event["reply"].get("code", 0), f"{code} instead of {event}"

    def told(self, event: dict[str, Any]) -> None:
        at, ours = self.wait(event["client"], event)
        assert isinstance(ours, dict), f"{ours} instead of {event}"
        assert abs(at - event["t"] - self.shift) <= TOLERANCE + self.early, f"at {at}: {event}"
        theirs = dict(event["msg"])
        if theirs.get("uuid"):
            assert self.ids.setdefault(theirs["uuid"], ours["uuid"]) == ours["uuid"]
        assert bool(theirs.pop("uuid", "")) == bool(ours.pop("uuid", ""))
        for message in (theirs, ours):
            message["faultRanks"] = sorted((r["rankId"], r["faultType"]) for r in message.get("faultRanks", ()))
            message["nodeRankIds"] = sorted(message.get("nodeRankIds", ()))
        assert ours == theirs, f"{ours} instead of {theirs}"

    def ended(self, event: dict[str, Any]) -> None:
        status = event["status"].split(" ")[0]
        if status in ("OK", "StatusCode.UNKNOWN", "StatusCode.UNAVAILABLE"):
            _, how = self.wait(event["client"], event)
            assert how == status
        else:
            self.advance(event["t"] + self.shift)
            self.gone(event["client"])


def play(name: str) -> Play:
    events = [json.loads(line) for line in (TRACES / f"{name}.jsonl").read_text().splitlines()]
    return Play(events, early=EARLIER.get(name, (0.0, ""))[0])


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded dialogues are not beside this clone (../shared/traces)")
@pytest.mark.parametrize("name", names())
def test_the_controller_answers_as_the_real_one_did(name: str) -> None:
    if name in SKIPPED:
        pytest.skip(SKIPPED[name])
    if name in DEVIATIONS:
        with pytest.raises(AssertionError, match=DEVIATIONS[name][1]):
            play(name).run()
    else:
        play(name).run()
