"""`elastic-run server` at scale: 10,000 jobs registered, 1,000 subscribed, calls at a rate; on one core, we on another.

Prints CPU and memory of the server at rest, and how long it takes from a reported fault to its signal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

TOP = Path(__file__).parent.parent
sys.path.insert(0, str(TOP))

from elastic_run.clusterd.pb import recover as pb  # noqa: E402 - found through the line above

REGISTERED, SUBSCRIBED = 10_000, 1_000
STREAMS = 50
"""Of one connection; the server allows 64."""
RATES = (900, 3000)
REST, LOADED = 20.0, 8.0
MEASURED = 0.1
"""Of all calls: faults of jobs that have none yet."""


class Load:
    def __init__(self, target: str) -> None:
        count = SUBSCRIBED // STREAMS
        option = [("grpc.use_local_subchannel_pool", 1)]
        self.channels = [grpc.aio.insecure_channel(target, options=option) for _ in range(count)]
        self.arrived: dict[str, float] = {}
        self.streams: list[asyncio.Task[None]] = []

    def call(self, name: str, number: int) -> Any:
        method, channel = pb.METHODS[name], self.channels[number % len(self.channels)]
        make = channel.unary_stream if method.streams else channel.unary_unary
        return make(method.path, method.request.SerializeToString, method.answer.FromString)

    async def register(self) -> None:
        async def one(number: int) -> None:
            info = pb.ClientInfo(jobId=f"job-{number}", role="bench")
            for name in ("Init", "Register"):
                assert (await self.call(name, number)(info)).code == 0

        for first in range(0, REGISTERED, 500):
            await asyncio.gather(*(one(number) for number in range(first, first + 500)))

    async def subscribe(self) -> None:
        async def follow(number: int) -> None:
            stream = self.call("SubscribeProcessManageSignal", number)(pb.ClientInfo(jobId=f"job-{number}"))
            async for message in stream:
                if message.signalType == "stopTrain":
                    self.arrived[message.jobId] = time.perf_counter()

        self.streams = [asyncio.create_task(follow(number)) for number in range(SUBSCRIBED)]
        await asyncio.sleep(6.0)  # until each has had a sign of life

    async def at_rate(self, rate: int, first: int) -> tuple[list[float], int]:
        """Milliseconds from fault to signal; how many jobs were used."""
        sent: dict[str, float] = {}
        pending: set[asyncio.Task[Any]] = set()
        began, nth, number = time.perf_counter(), 0, first
        while (now := time.perf_counter()) < began + LOADED and number < SUBSCRIBED:
            while nth < (now - began) * rate and number < SUBSCRIBED:
                nth += 1
                if nth % round(1 / MEASURED) == 0:
                    job = f"job-{number}"
                    request = pb.ProcessFaultRequest(jobId=job, faultRanks=[pb.FaultRank(rankId="0", faultType="1")])
                    sent[job] = time.perf_counter()
                    task = asyncio.ensure_future(self.call("ReportProcessFault", number)(request))
                    number += 1
                else:
                    info = pb.ClientInfo(jobId=f"job-{nth % REGISTERED}")
                    task = asyncio.ensure_future(self.call("Init", nth)(info))
                pending.add(task)
                task.add_done_callback(pending.discard)
            await asyncio.sleep(0.001)
        await asyncio.gather(*pending)
        await asyncio.sleep(1.0)
        return [(self.arrived[job] - at) * 1e3 for job, at in sent.items() if job in self.arrived], number


def used(pid: int) -> float:
    """CPU seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """MiB resident."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) >> 10  # type: ignore[index]


async def measure(pid: int, target: str) -> dict[str, Any]:
    load, found = Load(target), {}
    began = time.perf_counter()
    await load.register()
    found["seconds to register 10,000 jobs"] = round(time.perf_counter() - began, 2)
    await load.subscribe()
    before = used(pid)
    await asyncio.sleep(REST)
    found["CPU at rest, % of a core"] = round(100 * (used(pid) - before) / REST, 1)
    found["memory, MiB"] = memory(pid)
    first = 0
    for rate in RATES:
        before, began = used(pid), time.perf_counter()
        times, first = await load.at_rate(rate, first)
        busy = 100 * (used(pid) - before) / (time.perf_counter() - began)
        cuts = statistics.quantiles(times, n=100)
        found[f"{rate} calls/s: fault -> signal, ms"] = {
            "p50": round(statistics.median(times), 2), "p99": round(cuts[98], 2), "most": round(max(times), 2),
            "faults": len(times), "CPU %": round(busy, 1),
        }  # fmt: skip
    for task in load.streams:
        task.cancel()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=str(TOP / "build/scale.json"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        jobs = Path(place, "jobs.json")
        jobs.write_text(json.dumps({"job": [{"id": f"job-{n}", "strategies": ["recover"]} for n in range(REGISTERED)]}))
        words = ["server", "--listen", "127.0.0.1:0", "--jobs", str(jobs), "--limit", "100000", "--timing", "clusterd"]
        command = [sys.executable, "-m", "elastic_run", *words]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TOP)
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip().rpartition(":")[2]
            os.sched_setaffinity(server.pid, {0})
            os.sched_setaffinity(0, {1})
            found = asyncio.run(measure(server.pid, f"127.0.0.1:{port}"))
        finally:
            server.terminate()
            server.wait()
    print(json.dumps(found, indent=1))
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    Path(given.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
