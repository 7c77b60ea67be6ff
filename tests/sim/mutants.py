"""Bugs planted one at a time in a copy of the package, and the hunt for the first seed that notices one.

`python -m sim.mutants [COUNT]` prints for each mutant the first of COUNT seeds that catches it (tests/ on the path).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent.parent
PACKAGE = TESTS.parent / "elastic_run"
NEEDED = ("__init__.py", "errors.py", "core", "clusterd")
SECONDS_PER_SEED = 0.05


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    world: str = "sim.world"


MUTANTS = (
    Mutant(
        "no incarnation check",
        "core/node.py",
        "worker.incarnation == incarnation and worker.life is not Life.EXITED",
        "worker.life is not Life.EXITED",
    ),
    Mutant(
        "an exit told twice counts twice",
        "core/node.py",
        "worker.incarnation == incarnation and worker.life is not Life.EXITED",
        "worker.incarnation == incarnation",
    ),
    Mutant(
        "a start told twice counts twice",
        "core/node.py",
        "if worker is None or worker.pid is not None:",
        "if worker is None:",
    ),
    Mutant(
        "the stop owed to a starting worker is forgotten",
        "core/node.py",
        "if worker.stop_signal is not None:\n            self.out",
        "if False:\n            self.out",
    ),
    Mutant(
        "an owed stop is sent as SIGTERM for ever",
        "core/node.py",
        "Kill(worker.rank, worker.incarnation, worker.stop_signal)",
        "Kill(worker.rank, worker.incarnation, SIGTERM)",
    ),
    Mutant("no escalation to SIGKILL", "core/node.py", "self._send(worker, SIGKILL)", "pass"),
    Mutant(
        "SIGKILL at once",
        "core/node.py",
        "worker.hard_at = at + self.policy.stop_grace",
        "worker.hard_at = at + 0.1 * self.policy.stop_grace",
    ),
    Mutant(
        "asked to stop each time",
        "core/node.py",
        "            if worker.life is not Life.DYING:\n                self._end(worker, signum, at)",
        "            if worker.stuck_at is None:\n                worker.life = Life.RUNNING\n"
        "                self._end(worker, signum, at)",
    ),
    Mutant(
        "a culprit is not waited for",
        "core/job.py",
        "        if incident.stop_told and incident.culprit_by is None:",
        "        if incident.stop_told:",
    ),
    Mutant(
        "a culprit is waited for although there is one",
        "core/job.py",
        "            if fault.blame is Blame.CULPRIT:\n                self.incident.culprit_by = None",
        "            pass",
    ),
    Mutant(
        "a lost store costs a restart",
        "core/job.py",
        "        if incident.culprit.kind is FaultKind.STORE_LOST:",
        "        if False:",
    ),
    Mutant(
        "a store of an old round is missed",
        "core/job.py",
        "        if fact.round == self.round and self.assignment is not None:",
        "        if self.assignment is not None:",
    ),
    Mutant("stores may be lost for ever", "core/budget.py", "if self.forgiven >= MOST_FORGIVEN:", "if False:"),
    Mutant(
        "a lost store says something about progress",
        "core/job.py",
        "        if fault.kind in NOBODYS:\n            pass",
        "        if False:\n            pass",
    ),
    Mutant(
        "a hang is noticed again and again",
        "core/node.py",
        "if w.pid == fact.pid and w.life is not Life.DYING), None)",
        "if w.pid == fact.pid), None)",
    ),
    Mutant(
        "who hangs gets the grace",
        "core/node.py",
        "        if signum == SIGKILL:\n            worker.hard_at = at\n        else:",
        "        if True:",
    ),
    Mutant(
        "the kill grace starts before the kill",
        "core/node.py",
        "                worker.stuck_at = at + self.policy.kill_grace\n        else:",
        "                pass\n        else:",
    ),
    Mutant(
        "leftovers are judged by old news",
        "core/node.py",
        "sweep.next_at is not None and sweep.asked_at >= sweep.stuck_at",
        "at >= sweep.stuck_at",
    ),
    Mutant(
        "a search that is not answered is due",
        "core/node.py",
        "gentle = sweep.next_at is not None and sweep.signum != SIGKILL",
        "gentle = sweep.signum != SIGKILL",
    ),
    Mutant(
        "a failed start has no logs",
        "core/node.py",
        "worker.status, worker.pid)\n        return replace(fault, restarts=worker.restarts)",
        "worker.status, worker.pid)\n        return fault",
    ),
    Mutant(
        "a missing progress file is progress",
        "core/budget.py",
        'progress: str | None = ""',
        "progress: str | None = None",
    ),
    Mutant("never stuck", "core/node.py", "if worker.stuck_at is not None and at >= worker.stuck_at:", "if False:"),
    Mutant(
        "Swept of an old search accepted",
        "core/node.py",
        "fact.seq != sweep.seq or sweep.next_at is not None",
        "sweep.next_at is not None",
    ),
    Mutant(
        "leftovers are not killed",
        "core/node.py",
        "escalate = sweep.signum != SIGKILL and at >= sweep.hard_at",
        "escalate = False",
    ),
    Mutant(
        "leftovers get no grace at the end", "core/node.py", "signum=SIGTERM if gently else SIGKILL", "signum=SIGKILL"
    ),
    Mutant(
        "the grace of leftovers starts anew",
        "core/node.py",
        "began = at if self.stop_began is None else self.stop_began",
        "began = at + 0 * self.policy.stop_grace if True else 0",
    ),
    Mutant(
        "one search is enough",
        "core/node.py",
        "return self.sweeping is not None and self.sweeping.left == 0",
        "return self.sweeping is not None and self.sweeping.left is not None",
    ),
    Mutant(
        "second quit ignored by workers",
        "core/job.py",
        'killing all workers now")\n            self.crew.kill(at)',
        'killing all workers now")',
    ),
    Mutant("second quit spares leftovers", "core/node.py", '        self.stop_began = float("-inf")\n', ""),
    Mutant(
        "a waking launcher spares workers",
        "core/job.py",
        "        self.crew.kill(at)\n        self.node.wait_again(at)",
        "        self.node.wait_again(at)",
    ),
    Mutant(
        "time lost in suspension counts",
        "core/job.py",
        "        self.crew.kill(at)\n        self.node.wait_again(at)",
        "        self.crew.kill(at)",
    ),
    Mutant(
        "time lost in suspension counts while leaving",
        "core/job.py",
        "            self.until = at + 2 * self._stop_bound()\n",
        "            pass\n",
    ),
    Mutant("a snapshot forgets the budget", "core/agent.py", "list(past.spent)", "[]"),
    Mutant("a snapshot forgets the searches", "core/agent.py", "past.workers}, past.sweeps", "past.workers}, 0"),
    Mutant("no uuid fence", "core/hearing.py", ' and fact.uuid == incident.uuid != ""', ""),
    Mutant(
        "a dead incident's stop names the new one",
        "core/hearing.py",
        "if fact.uuid in job.uuids or not fact.uuid:",
        "if not fact.uuid:",
    ),
    Mutant(
        "a strategy is taken whenever it comes",
        "core/hearing.py",
        "elif job.phase is Phase.DIAGNOSED and incident.offer",
        "elif incident.offer",
    ),
    Mutant("no round fence", "core/forming.py", "if fact.round != job.round or job.phase", "if job.phase"),
    Mutant(
        "sweep skipped before restart",
        "core/job.py",
        "if self.crew.swept and self.incident.progress_by is None:",
        "if self.incident.progress_by is None:",
    ),
    Mutant(
        "sweep skipped in recovery",
        "core/forming.py",
        "        if not crew.swept:\n            return",
        "        pass",
    ),
    Mutant(
        "restart while the old ones die",
        "core/forming.py",
        "        if not crew.quiet:\n            return\n        crew.sweep",
        "        crew.sweep",
    ),
    Mutant("leftovers not killed at the end", "core/job.py", "if self.crew.swept or not self.crew.ranks:", "if True:"),
    Mutant(
        "exit before the workers",
        "core/job.py",
        "        assert self.ending is not None\n        if not self.crew.quiet:\n            return",
        "        assert self.ending is not None",
    ),
    Mutant(
        "progress look never bounded",
        "core/job.py",
        "if incident and incident.progress_by is not None and at >= incident.progress_by:",
        "if False:",
    ),
    Mutant("progress look of another incident", "core/job.py", "and fact.seq == incident.progress_seq", ""),
    Mutant(
        "no bound on a phase",
        "core/job.py",
        "elif self.until is not None and at >= self.until:",
        "elif self.until is not None and at >= self.until and self.phase is not Phase.STOPPED:",
    ),
    Mutant(
        "a second recovery has the time of the first",
        "core/job.py",
        "            self.until = at + bound",
        "            pass",
    ),
    Mutant("budget not counted", "core/budget.py", "            self.spent.append(at)", "            pass"),
    Mutant(
        "a restart in a recovery is free",
        "core/job.py",
        "observe(None, 0.0)\n        self.incident.verdict = self._verdict(self.incident, at, spend=True)",
        "observe(None, 0.0)\n        self.incident.verdict = self._verdict(self.incident, at, spend=False)",
    ),
    Mutant(
        "window ignored", "core/budget.py", "return self.spent if window is None else", "return self.spent if True else"
    ),
    Mutant("one restart too many", "core/budget.py", "if used >= limit:", "if used > limit:"),
    Mutant("crash-loop guard off", "core/budget.py", "if self.futile >= self.policy.max_no_progress:", "if False:"),
    Mutant(
        "crash-loop guard on everywhere",
        "core/budget.py",
        "            advanced = True",
        "            advanced = uptime >= self.policy.short_life",
    ),
    Mutant(
        "progress counts for ever",
        "core/budget.py",
        "advanced, self.progress = token != self.progress, token",
        "advanced = token != self.progress",
    ),
    Mutant("a failed recovery is progress", "core/job.py", "        self.budget.observe(None, 0.0)\n", ""),
    Mutant(
        "culprit chosen as last",
        "core/faults.py",
        "    return min(faults, key=order)",
        "    return max(faults, key=order)",
    ),
    Mutant("exit code of a victim", "core/faults.py", "return (fault.blame.value, fault.at,", "return (0, fault.at,"),
    Mutant(
        "our own victims are culprits",
        "core/faults.py",
        "    if stopped:\n        failing",
        "    if False:\n        failing",
    ),
    Mutant(
        "the last words of a stopped rank do not count",
        "core/faults.py",
        "failing = (FAILING in exited.tail or exited.error is not None) and not _peer_gone(exited)",
        "failing = False",
    ),
    Mutant(
        "error files do not order deaths",
        "core/faults.py",
        "fault.status.signal is None, wall, fault.rank)",
        "fault.status.signal is None, 0.0, fault.rank)",
    ),
    Mutant(
        "signals do not come first",
        "core/faults.py",
        "fault.at, fault.status.signal is None, wall",
        "fault.at, True, wall",
    ),
    Mutant(
        "the culprit's logs are the newest",
        "core/job.py",
        "Explain(fault, fault.restarts, decision",
        "Explain(fault, self.restarts, decision",
    ),
    Mutant(
        "a second fault is not reported", "core/rule.py", "incident.reported != incident.dead", "not incident.reported"
    ),
    Mutant(
        "no seq fence", "core/outbox.py", "if not self.in_flight or fact.seq != self.seq:", "if not self.in_flight:"
    ),
    Mutant(
        "calls do not wait for each other",
        "core/outbox.py",
        "if self.waiting and not self.in_flight:",
        "if self.waiting and self.seq < 99:",
    ),
    Mutant(
        "success forgets the status",
        "core/forming.py",
        "job.report(StatusReported(0, job.way(incident)))",
        "pass",
    ),
    Mutant(
        "success of one is success of all",
        "core/node.py",
        "return bool(self.workers) and all(w.status is not None and w.status.ok for w in self.workers.values())",
        "return any(w.status is not None and w.status.ok for w in self.workers.values())",
    ),
    Mutant("a saved job was not saved", "core/ending.py", "saved = job.crew.succeeded", "saved = False"),
    Mutant("requeue forgotten", "core/ending.py", "        if job.policy.requeue_on_stop:", "        if False:"),
    Mutant(
        "the quit's signal is always SIGTERM",
        "core/job.py",
        "self.crew.stop(self.ending.signum, at)",
        "self.crew.stop(SIGTERM, at)",
    ),
    Mutant(
        "orders after Exit",
        "core/agent.py",
        "            if self.job.phase is Phase.DONE:\n                break  # Exit is the last order\n",
        "",
    ),
    Mutant("settled once", "core/agent.py", "if (self.job.phase, len(self.out)) == before:", "if True:"),
    Mutant(
        "controller forgets to stop",
        "clusterd/recovery.py",
        "    m.tell(SignalKind.STOP_TRAIN, Action.STOP_TRAIN, ranks=m.case.reported)\n",
        "",
    ),
    Mutant("controller is in a hurry", "clusterd/machine.py", "at + getattr(self.timing, wait.bound)", "at"),
    Mutant(
        "controller keeps an incident's reports", "clusterd/machine.py", "if self.state is not State.INIT:", "if True:"
    ),
    Mutant(
        "controller never ends an incident", "clusterd/recovery.py", "if good:\n            m.finish()\n", "if good:\n"
    ),
    Mutant("controller reuses a name", "clusterd/machine.py", "self.incident += 1\n", "self.incident = 1\n"),
    Mutant(
        "controller never recovers", "clusterd/choice.py", "LADDER = (S.RECOVER_IN_PLACE, S.RECOVER, ", "LADDER = ("
    ),
    Mutant(
        "controller restarts after a failure",
        "clusterd/choice.py",
        "    S.RECOVER: (S.DUMP,),\n",
        "    S.RECOVER: LADDER,\n",
    ),
    Mutant(
        "an incident that was forgotten is not told again",
        "core/rule.py",
        '    incident.uuid, incident.reported, incident.choice, incident.offer = "", (), None, None\n',
        '    incident.uuid, incident.choice, incident.offer = "", None, None\n',
        "sim.link",
    ),
    Mutant(
        "nobody takes over",
        "core/rule.py",
        "    job.incident.ruler = Ruler.EMBEDDED\n",
        "",
        "sim.link",
    ),
    Mutant(
        "told although nobody listens",
        "core/rule.py",
        "    listens = job.link_up or incident.ruler is Ruler.EMBEDDED\n",
        "    listens = True\n",
        "sim.link",
    ),
    Mutant(
        "a lost link is not noticed in an incident",
        "core/rule.py",
        "    elif job.forgone:\n        take_over(job, at)\n    else:\n        begin_again(job, at)\n",
        "    elif job.forgone:\n        take_over(job, at)\n",
        "sim.link",
    ),
    Mutant(
        "a status nobody waits for",
        "core/rule.py",
        "        incident.forgotten = True\n",
        "        pass\n",
        "sim.link",
    ),
    Mutant(
        "old reports are sent",
        "core/rule.py",
        "    job.outbox.drop()\n",
        "",
        "sim.link",
    ),
    Mutant(
        "ClusterD is left with an incident of its own",
        "core/hearing.py",
        "        job.renew = True\n",
        "",
        "sim.link",
    ),
    Mutant(
        "signals of any ruler are obeyed",
        "core/hearing.py",
        "elif job.incident is not None and job.incident.ruler is not fact.source:",
        "elif fact.source is Ruler.EMBEDDED and job.incident and job.incident.ruler is not fact.source:",
        "sim.link",
    ),
    Mutant(
        "a second stop begins nothing",
        "core/hearing.py",
        "        begin_again(job, at)\n        job.incident.reported",
        "        return\n        job.incident.reported",
        "sim.link",
    ),
    Mutant(
        "broken devices are left alone",
        "core/hearing.py",
        "        job.fault(fault, at)\n",
        "        pass\n",
        "sim.link",
    ),
    Mutant(
        "a pause is never over",
        "core/hearing.py",
        "fact.strategy is Strategy.CONTINUE and incident.pause",
        "False",
        "sim.link",
    ),
    Mutant(
        "a job that must exit does not",
        "core/hearing.py",
        '        give_up(job, incident, f"{fact.source.value} ends the recovery", at)\n',
        "        pass\n",
        "sim.link",
    ),
    Mutant(
        "a refused strategy is not told",
        "core/hearing.py",
        "            job.report_failure(fact.strategy)\n",
        "            pass\n",
        "sim.link",
    ),
    Mutant(
        "a job that saves says stopped",
        "core/job.py",
        "            if self.incident.save:\n",
        "            if False:\n",
        "sim.link",
    ),
)


def plant(mutant: Mutant, place: Path) -> None:
    """Put a copy of the package with this bug into `place`; ValueError if the text is not there exactly once."""
    for name in NEEDED:
        source, copy = PACKAGE / name, place / "elastic_run" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    changed = place / "elastic_run" / mutant.file
    text = changed.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {text.count(mutant.old)} times in {mutant.file}: {mutant.old!r}")
    changed.write_text(text.replace(mutant.old, mutant.new))


def caught(mutant: Mutant, place: Path, count: int, first: int = 0) -> str | None:
    """`SEED what broke` of the first of `count` seeds that notices the bug."""
    plant(mutant, place)
    path = os.pathsep.join((str(place), str(TESTS)))
    command = [sys.executable, "-B", "-m", mutant.world, str(first), str(count)]
    try:
        told = subprocess.run(
            command,
            cwd=place,
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=10 + count * SECONDS_PER_SEED,
        )
    except subprocess.TimeoutExpired:
        return "? it never ends"
    if told.returncode not in (0, 1) or told.stderr:
        raise RuntimeError(f"{mutant.name}: {told.stderr}")
    return told.stdout.strip() or None


def main(count: int) -> int:
    survivors = 0
    for mutant in MUTANTS:
        with tempfile.TemporaryDirectory() as place:
            told = caught(mutant, Path(place), count)
        survivors += told is None
        print(f"{mutant.name:50} {told or 'SURVIVES'}", flush=True)
    return survivors


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
