"""One full loop of the recommender, by step, against the same model with one Python object per histogram.

    python benchmarks/recommender_loop.py [--full] [--size VPAS:CONTAINERS …] [--loops N]

The cluster is the embedded API server in the same process, so a loop reads and writes real objects. Each size runs in
a process of its own. Memory is measured in another one, whose writes are swallowed: resident size above that of the
filled API server before the recommender started.
Times are CPU seconds of the process. `I/O` is the part in which at least one request was under way (the server's work
included). The baseline is fed the same samples in the same process and does what the loop does between reading and
writing: add samples, merge, estimate, make checkpoints; recommendations are compared before any time is printed.
Every recommendation changes in every loop, because the upper bound shrinks as confidence grows; the last line shows
what is saved where nothing changes.
"""

import argparse
import asyncio
import gc
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from kubetide import crds
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.values.codec import convert, encode
from kubetide.api.values.quantity import Quantity, cpu_millis, memory_bytes
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import GC_THRESHOLDS
from kubetide.kube.client.transport import Response
from kubetide.kube.control.recorder import EventRecorder
from kubetide.stats.saved import Saved
from kubetide.telemetry import Telemetry
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.recommender.core.aggregate import CPU_BUCKETS, MEMORY_BUCKETS
from kubetide.vpa.recommender.core.checkpoint import Checkpoint, checkpoints, status_body
from kubetide.vpa.recommender.core.entities import Window
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import recommend
from kubetide.vpa.recommender.core.status import recommendation_body
from kubetide.vpa.recommender.core.usage.feeding import feed, gather
from kubetide.vpa.recommender.load import VPAS_PER_TURN
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import RecommenderSettings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from simulated.usage import PodUsageOnly

STEPS = (
    "LoadVPAs",
    "LoadPods",
    "LoadMetrics",
    "DeleteRemovedPods",
    "UpdateVPAs",
    "MaintainCheckpoints",
    "GarbageCollect",
    "total",
)
CONTAINERS = ("app", "proxy")
DAY_MICROS = 86_400_000_000
WARM_MINUTES = 20
"""Minutes of samples before anything is measured, so that histograms look like those of a living cluster."""
Raw = dict[str, Any]


class Usage(PodUsageOnly):
    """Serves the usage of all pods: numbers that depend on the pod and the minute alone."""

    def __init__(self, pods: list[tuple[str, str]]) -> None:
        self.pods = pods
        # An hour ago: minutes pass here faster than on the clock, and usage dated in the future is refused.
        self.now = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)

    def amounts(self, number: int, container: int) -> tuple[int, int]:
        """Return nanocores and KiB."""
        minute = int(self.now.timestamp()) // 60
        mixed = (number * 7919 + container * 104_729 + minute * 31) % 1_000_003
        return mixed * 700, 40_000 + mixed % 400_000

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        stamp = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        items = []
        for number, (space, pod) in enumerate(self.pods):
            containers = []
            for index, container in enumerate(CONTAINERS):
                cpu, memory = self.amounts(number, index)
                containers.append({"name": container, "usage": {"cpu": f"{cpu}n", "memory": f"{memory}Ki"}})
            items.append(
                {
                    "metadata": {"namespace": space, "name": pod},
                    "timestamp": stamp,
                    "window": "30s",
                    "containers": containers,
                }
            )
        return items


class CpuClock(SystemClock):
    """Counts CPU seconds of the process, so that steps do not depend on what else the machine does."""

    def monotonic(self) -> float:
        return time.process_time()


class MeasuredTransport:
    """Counts requests and the time in which at least one is under way; may swallow writes."""

    def __init__(self, inner: InProcessTransport, *, swallow: bool) -> None:
        self._inner = inner
        self._swallow = swallow
        self._under_way = 0
        self._since = 0.0
        self.seconds = 0.0
        self.requests = 0

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        if self._under_way == 0:
            self._since = time.process_time()
        self._under_way += 1
        self.requests += 1
        try:
            if self._swallow and method != "GET":
                await asyncio.sleep(0)
                return Response(200, {}, b"{}")
            return await self._inner.request(method, path, **parts)
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self.seconds += time.process_time() - self._since

    def watch(self, path: str, *, query: Mapping[str, str]) -> Any:
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        await self._inner.close()


async def _follow(*caches: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for cache in caches:
            group.create_task(cache)


def fill(api: ApiServer, vpas: int, containers: int) -> list[tuple[str, str]]:
    """Store deployments, VPAs and pods; return the pods."""
    for crd in crds.load_all():
        api.insert(crd)
    pods = []
    per_vpa = max(1, containers // len(CONTAINERS) // vpas)
    spec = {"containers": [{"name": name, "image": "x"} for name in CONTAINERS]}
    for number in range(vpas):
        space, name = f"team-{number // 100}", f"app-{number}"
        if number % 100 == 0:
            api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        labels = {"app": name}
        api.insert(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": space},
                "spec": {
                    "replicas": per_vpa,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            }
        )
        api.insert(
            {
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscaler",
                "metadata": {"name": name, "namespace": space},
                "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
            }
        )
        for index in range(per_vpa):
            pod = f"{name}-{index}"
            pods.append((space, pod))
            api.insert(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": pod, "namespace": space, "labels": {**labels, "pod-template-hash": "abc"}},
                    "spec": {**spec, "nodeName": "node-1"},
                    "status": {"phase": "Running"},
                }
            )
    return pods


def resident() -> float:
    """Return resident memory in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@asynccontextmanager
async def running(made: Recommender) -> AsyncIterator[None]:
    """Keep the informers of a recommender going, without its own loop."""
    task = asyncio.get_running_loop().create_task(_follow(made._vpas.run(), made._observer.run()))
    try:
        await made.wait_synced()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(vpas: int, containers: int, loops: int, *, memory: bool = False) -> Raw:
    """Run loops over a cluster of that size and return what they cost.

    For memory, writes are swallowed: what they would leave in the API server is not the recommender's.
    """
    clock = CpuClock()
    api = ApiServer(clock=clock)
    pods = fill(api, vpas, containers)
    usage = Usage(pods)
    api.metrics_provider = usage
    # As a running kubetide does; it also keeps the collector from walking the API server's objects on our account.
    gc.collect()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    before = resident()
    transport = MeasuredTransport(InProcessTransport(api, user=ADMIN), swallow=memory)
    client = Client(transport, clock=clock)
    telemetry = Telemetry()
    long = timedelta(minutes=10)
    settings = RecommenderSettings(step_timeout=long, checkpoints_timeout=long, leader_elect=False)
    recorder = EventRecorder(client, clock=clock, component="bench")
    made = Recommender(client, clock, settings, telemetry, recorder, Random(0))
    if memory:
        async with running(made):
            for _ in range(loops):
                usage.now += timedelta(minutes=1)
                await made.run_once()
            gc.collect()
            return {"growth": resident() - before}
    baseline = Baseline(made.model)
    rounds = []
    async with running(made):
        await made.run_once()
        baseline.loop(usage, decoded(usage))
        for _ in range(WARM_MINUTES):
            usage.now += timedelta(minutes=1)
            metrics = decoded(usage)
            feed(made.model, gather(made.model, metrics, now=usage.now, init={}))
            baseline.learn(usage, metrics)
        for _ in range(loops):
            usage.now += timedelta(minutes=1)
            io, requests, seen = transport.seconds, transport.requests, steps(telemetry)
            started = time.process_time()
            await made.run_once()
            spent = time.process_time() - started
            now = steps(telemetry)
            rounds.append(
                {
                    "seconds": spent,
                    "io": transport.seconds - io,
                    "requests": transport.requests - requests,
                    "steps": {name: now[name] - seen.get(name, 0.0) for name in STEPS},
                    "baseline": baseline.loop(usage, decoded(usage)),
                }
            )
            await asyncio.sleep(0)
        baseline.compare(made)
        seen = steps(telemetry)
        await made.run_once()
        quiet = steps(telemetry)["UpdateVPAs"] - seen["UpdateVPAs"]
        usage.now += timedelta(minutes=1)
        deciding = decide(made, usage, every=1)
        same = baseline.loop(usage, decoded(usage))
        usage.now += timedelta(minutes=1)
        # In a loop of a minute the checkpoints of as many VPAs are due.
        steady = decide(made, usage, every=int(settings.checkpoint_interval / timedelta(minutes=1)))
    gc.collect()
    return {
        "vpas": vpas,
        "containers": len(pods) * len(CONTAINERS),
        "aggregates": made.model.aggregate_count(),
        "rounds": rounds,
        "deciding": deciding,
        "steady": steady,
        "quiet": quiet,
        "baseline": same,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def decoded(usage: Usage) -> list[PodMetrics]:
    """Return the usage as the client decodes it."""
    return [convert(item, PodMetrics) for item in usage.pod_metrics()]


def decide(made: Recommender, usage: Usage, *, every: int) -> float:
    """Do what lies between reading and writing again, with the checkpoints of every n-th VPA; return its seconds."""
    metrics = decoded(usage)
    model, vpas = made.model, list(made.model.vpas.values())
    gc.collect()
    started = time.process_time()
    feed(model, gather(model, metrics, now=usage.now, init={}))
    for start in range(0, len(vpas), VPAS_PER_TURN):
        part = vpas[start : start + VPAS_PER_TURN]
        for found in recommend(model, part, made.options).values():
            encode(recommendation_body(found))
    for start in range(0, len(vpas) // every, VPAS_PER_TURN):
        part = vpas[start : min(start + VPAS_PER_TURN, len(vpas) // every)]
        for contents in checkpoints(model, part, now=usage.now).values():
            for one in contents:
                encode(status_body(one, now=usage.now))
    return time.process_time() - started


def steps(telemetry: Telemetry) -> dict[str, float]:
    """Return the seconds spent in each step so far."""
    found = {}
    for family in telemetry.registry.collect():
        for sample in family.samples:
            if sample.name == "vpa_recommender_execution_latency_seconds_sum":
                found[sample.labels["step"]] = sample.value
    return found


class ObjectHistogram:
    """A histogram as one object: a list of weights and a few numbers."""

    __slots__ = ("first", "high", "low", "reference", "starts", "total", "weights")

    def __init__(self, starts: list[float], first: float) -> None:
        self.starts, self.first = starts, first
        self.weights = [0.0] * len(starts)
        self.total, self.reference = 0.0, 0
        self.low, self.high = len(starts) - 1, 0

    def add(self, value: float, weight: float, at: int) -> None:
        if not self.reference:
            self.reference = (at + DAY_MICROS // 2) // DAY_MICROS * DAY_MICROS
        bucket = self._bucket(value)
        stored = weight * math.exp2((at - self.reference) / DAY_MICROS)
        self.weights[bucket] += stored
        self.total += stored
        if self.weights[bucket] >= 0.0001:
            self.low, self.high = min(self.low, bucket), max(self.high, bucket)

    def subtract(self, value: float, weight: float, at: int) -> None:
        bucket = self._bucket(value)
        stored = weight * math.exp2((at - self.reference) / DAY_MICROS)
        self.total = self.total - stored if self.total - stored >= 0.0001 else 0.0
        left = self.weights[bucket] - stored
        self.weights[bucket] = left if left >= 0.0001 else 0.0
        while self.low < len(self.weights) - 1 and self.weights[self.low] < 0.0001:
            self.low += 1
        while self.high > 0 and self.weights[self.high] < 0.0001:
            self.high -= 1

    def _bucket(self, value: float) -> int:
        if value < self.first:
            return 0
        return min(int(math.log(value * 0.050000000000000044 / self.first + 1.0) / math.log(1.05)), 175)

    def merge(self, other: "ObjectHistogram") -> None:
        self.reference = max(self.reference, other.reference)
        for bucket in range(other.low, other.high + 1):
            self.weights[bucket] += other.weights[bucket]
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def percentile(self, p: float) -> float:
        if self.weights[self.low] < 0.0001:
            return 0.0
        threshold, running_sum, bucket = p * self.total, 0.0, self.low
        while bucket < self.high:
            running_sum += self.weights[bucket]
            if running_sum >= threshold:
                break
            bucket += 1
        return self.starts[min(bucket + 1, len(self.starts) - 1)]

    def save(self) -> dict[int, int]:
        heaviest = max(self.weights[self.low : self.high + 1], default=0.0)
        if not heaviest:
            return {}
        found = {}
        for bucket in range(self.low, self.high + 1):
            weight = int(self.weights[bucket] * 10000 / heaviest + 0.5)
            if weight:
                found[bucket] = weight
        return found


class Baseline:
    """The same model with one object per histogram and per container."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.aggregates: dict[tuple[str, str, str], list[Any]] = {}
        self.containers: dict[tuple[str, str, str], list[Any]] = {}
        self.targets: dict[tuple[str, str], tuple[int, int]] = {}
        self._cpu, self._memory = CPU_BUCKETS.starts.tolist(), MEMORY_BUCKETS.starts.tolist()

    def loop(self, usage: Usage, metrics: Sequence[PodMetrics]) -> float:
        """Do one loop; return its seconds."""
        vpas = self._groups(usage)
        now = int(usage.now.timestamp()) * 1_000_000
        gc.collect()
        started = time.process_time()
        self.learn(usage, metrics)
        for key, members in vpas.items():
            self._recommend(key, members, now)
        return time.process_time() - started

    def learn(self, usage: Usage, metrics: Sequence[PodMetrics]) -> None:
        """Add the samples of one minute."""
        now = int(usage.now.timestamp()) * 1_000_000
        for pod in metrics:
            space, name = pod.metadata.namespace, pod.metadata.name
            for container in pod.containers or ():
                used = container.usage or {}
                self._sample(space, name, container.name, now, cpu_millis(used["cpu"]), memory_bytes(used["memory"]))

    def _groups(self, usage: Usage) -> dict[tuple[str, str], list[tuple[str, str]]]:
        vpas: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for space, pod in usage.pods:
            vpas.setdefault((space, pod.rpartition("-")[0]), []).append((space, pod))
        return vpas

    def _sample(self, space: str, pod: str, name: str, now: int, millis: int, memory: int) -> None:
        app = pod.rpartition("-")[0]
        aggregate = self.aggregates.get((space, app, name))
        if aggregate is None:
            aggregate = [ObjectHistogram(self._cpu, 0.01), ObjectHistogram(self._memory, 1e7), now, now, 0]
            self.aggregates[space, app, name] = aggregate
        container = self.containers.get((space, pod, name))
        if container is None:
            container = [0, 0, 0, 0.0]
            self.containers[space, pod, name] = container
        if now > container[0]:
            container[0] = now
            aggregate[0].add(millis / 1000.0, 0.1, now)
            aggregate[3] = max(aggregate[3], now)
            aggregate[4] += 1
        if now >= container[1]:
            container[1] = now
            container[2] = container[2] or now
            if now < container[2]:
                if container[3] and memory > container[3]:
                    aggregate[1].subtract(container[3], 1.0, container[2])
                    aggregate[1].add(memory, 1.0, container[2])
                    container[3] = memory
            else:
                container[2] += (now - container[2]) // DAY_MICROS * DAY_MICROS + DAY_MICROS
                aggregate[1].add(memory, 1.0, container[2])
                container[3] = memory

    def _recommend(self, key: tuple[str, str], members: list[tuple[str, str]], now: int) -> None:
        found, stored = [], []
        for name in CONTAINERS:
            cpu, memory = ObjectHistogram(self._cpu, 0.01), ObjectHistogram(self._memory, 1e7)
            aggregate = self.aggregates[key[0], key[1], name]
            cpu.merge(aggregate[0])
            memory.merge(aggregate[1])
            trust = min((aggregate[3] - aggregate[2]) / DAY_MICROS, aggregate[4] / 1440)
            bounds = {}
            for p, kind in ((0.9, "target"), (0.5, "lower"), (0.95, "upper")):
                pair = []
                for amount, floor in ((int(cpu.percentile(p) * 1000), 12), (int(memory.percentile(p)), 131072000)):
                    raised = amount + int(amount * 0.15)
                    if kind == "upper":
                        raised = int(min(1e14, raised * (1 + 1 / trust))) if trust else 10**14
                    elif kind == "lower":
                        raised = int(raised * (1 + 0.001 / trust) ** -2) if trust else 0
                    pair.append(max(raised, floor))
                bounds[kind] = {"cpu": Quantity.of_milli(pair[0]), "memory": Quantity.of(pair[1], binary=True)}
            found.append(Recommended(container=name, uncapped=dict(bounds["target"]), **bounds))
            self.targets[key[1], name] = (bounds["target"]["cpu"].milli, bounds["target"]["memory"].value)
            windows = []
            for space, pod in members:
                container = self.containers[space, pod, name]
                if container[2] > now and container[3]:
                    memory.subtract(container[3], 1.0, container[2])
                    windows.append(Window(pod, "", container[2], container[3], 0.0, container[1], container[0]))
            stored.append(
                Checkpoint(
                    container=name,
                    cpu=Saved(cpu.reference, cpu.save(), cpu.total),
                    memory=Saved(memory.reference, memory.save(), memory.total),
                    first=aggregate[2],
                    last=aggregate[3],
                    count=aggregate[4],
                    windows=tuple(windows),
                )
            )
        encode(recommendation_body(found))
        at = datetime.fromtimestamp(now / 1e6, UTC)
        for one in stored:
            encode(status_body(one, now=at))

    def compare(self, made: Recommender) -> None:
        """Fail unless both sides recommend the same."""
        for key, vpa in made.model.vpas.items():
            for one in vpa.recommendation or ():
                got = (one.target["cpu"].milli, one.target["memory"].value)
                want = self.targets[key.name, one.container]
                assert all(abs(a - b) <= 1 for a, b in zip(got, want, strict=True)), (key, one.container, got, want)


def report(result: Raw) -> None:
    """Print one size."""
    rounds = result["rounds"]
    last = rounds[-1]
    print(f"\n{result['vpas']} VPAs, {result['containers']} containers, {result['aggregates']} aggregates")
    print(f"{'step':22}{'first loop':>12}{'last loop':>12}")
    for name in STEPS:
        print(f"{name:22}{rounds[0]['steps'][name]:11.2f}s{last['steps'][name]:11.2f}s")
    print(f"I/O: {last['io'] / last['seconds']:.0%} of the last loop, {last['requests']} requests")
    print(
        f"between reading and writing {result['steady']:.2f}s with the checkpoints that are due in a loop, "
        f"{result['deciding']:.2f}s with all; with one object per histogram "
        f"{result['baseline']:.2f}s: {result['baseline'] / result['deciding']:.1f}×"
    )
    print(f"UpdateVPAs in a loop without new usage: {result['quiet']:.2f}s")
    each = result["growth"] * 1e6 / result["containers"]
    print(f"memory: the recommender added {result['growth']:.0f} MB, {each:.0f} B a container")
    print(f"peak of the process, API server and baseline included: {result['peak']:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", default=[], help="VPAS:CONTAINERS")
    parser.add_argument("--full", action="store_true", help="also 10,000 VPAs and 100,000 containers")
    parser.add_argument("--loops", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = given.size or ["1000:10000", *(["10000:100000"] if given.full else [])]
    if given.child:
        vpas, containers = map(int, sizes[0].split(":"))
        print(json.dumps(asyncio.run(measure(vpas, containers, given.loops, memory=given.memory))))
        return
    command = [sys.executable, __file__, "--child", "--loops", str(given.loops)]
    for size in sizes:
        result = json.loads(subprocess.check_output([*command, "--size", size]))
        report({**result, **json.loads(subprocess.check_output([*command, "--memory", "--size", size]))})


if __name__ == "__main__":
    main()
