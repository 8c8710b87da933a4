"""Pods that come and go under a whole recommender: informers, usage, checkpoints and writes, in virtual time.

A hundred pods are replaced every 30 seconds, each with two containers: pods of Deployments, which are rolled out every
six hours; pods of StatefulSets, whose names come again; pods of Jobs, whose labels never do. The API server runs in
the same process with a short memory of changes, so that it hides no leak of the recommender.

What may grow is what a VPA learns (a label set for each rollout, until it expires), not what has been.
"""

import asyncio
import gc
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any
from zlib import crc32

from kubetide import crds
from kubetide.clock import Clock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN, User
from kubetide.embedded.apiserver.server import ApiServer, Audit
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.usage import PodUsageOnly
from soak.memory import heap_mib, resident_mib

Raw = dict[str, Any]

STEP = timedelta(seconds=30)
REPLACED = 100
ALIVE = 300
APPS = 24
ROLLOUT = timedelta(hours=6)
NAMESPACE = "churn"
CONTAINERS = ("app", "proxy")
PODS = ResourceKey("", "pods")
WATCH_WINDOW = 2 * REPLACED + 50
"""Changes of each kind that the embedded API server keeps: those of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What the recommender holds at one moment."""

    hours: float
    pods_seen: int
    heap_mib: float
    """The size of all objects that are alive, to whomever they belong."""
    resident_mib: float
    memory_blocks: int
    """Blocks of memory that the interpreter has given out, to whomever."""
    objects: int
    """Live objects of the recommender's own types."""
    aggregates: int
    pods: int
    containers: int
    samples: int
    """CPU samples in all checkpoints."""


class Churn(PodUsageOnly):
    """The pods, and what they use."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.alive: deque[tuple[str, str]] = deque()
        self.seen = 0
        self._start = api.clock.now()

    def fill(self) -> None:
        """Store the workloads and their VPAs."""
        for definition in crds.load_all():
            self.api.insert(definition)
        self.api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for number in range(APPS):
            name, (version, kind) = f"app-{number}", _kind(number)
            template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app"}]}}
            spec: Raw = {"selector": {"matchLabels": {"app": name}}, "template": template}
            if kind == "CronJob":
                spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
            meta = {"name": name, "namespace": NAMESPACE}
            target = {"apiVersion": version, "kind": kind, "name": name}
            self.api.insert({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})
            self.api.insert(
                {
                    "apiVersion": "autoscaling.k8s.io/v1",
                    "kind": "VerticalPodAutoscaler",
                    "metadata": meta,
                    "spec": {"targetRef": target},
                }
            )

    def replace(self, count: int) -> None:
        """Remove the oldest pods, if there are enough, and add as many."""
        for _ in range(count):
            if len(self.alive) >= ALIVE:
                self.api.store.delete(PODS, StoreKey(NAMESPACE, self.alive.popleft()[0]))
            self._add(self.seen)
            self.seen += 1

    def _add(self, serial: int) -> None:
        number = serial % APPS
        app, (_, kind) = f"app-{number}", _kind(number)
        labels, name = {"app": app}, f"{app}-{serial}"
        if kind == "Deployment":
            labels["pod-template-hash"] = str((self.api.clock.now() - self._start) // ROLLOUT)
        elif kind == "StatefulSet":
            member = serial // APPS % (ALIVE // APPS + 1)
            name = f"{app}-{member}"
            labels |= {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(member)}
        else:
            labels |= {"job-name": name, "controller-uid": f"uid-{serial}"}
            labels |= {f"batch.kubernetes.io/{key}": labels[key] for key in ("job-name", "controller-uid")}
        spec = {"nodeName": "node-1", "containers": [{"name": each, "image": "x"} for each in CONTAINERS]}
        self.api.insert(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
                "spec": spec,
                "status": {"phase": "Running"},
            }
        )
        self.alive.append((name, app))

    # The metrics API.

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        stamp = f"{self.api.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        minute = int(self.api.clock.now().timestamp()) // 60
        items = []
        for pod, app in self.alive:
            mixed = (crc32(f"{pod}/{minute}".encode()) & 0xFFFF) + 1
            containers = [
                {"name": each, "usage": {"cpu": f"{mixed * 20_000}n", "memory": f"{50_000 + mixed * 4}Ki"}}
                for each in CONTAINERS
            ]
            meta = {"namespace": NAMESPACE, "name": pod, "labels": {"app": app}}
            items.append({"metadata": meta, "timestamp": stamp, "window": "30s", "containers": containers})
        return items


def _kind(number: int) -> tuple[str, str]:
    return (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "CronJob"))[number % 3]


def own_objects() -> int:
    """Return how many objects of the recommender's own types are alive; the API server is not counted."""
    owners = ("kubetide.vpa", "kubetide.stats", "prometheus_client")
    return sum(str(type(one).__module__).startswith(owners) for one in gc.get_objects())


def soak(
    duration: timedelta,
    *,
    every: timedelta,
    show: Callable[[Measure], None] | None = None,
    audit: Callable[[Clock], Audit] | None = None,
) -> list[Measure]:
    """Run the churn and return a measure at every step of `every`."""
    measures: list[Measure] = []

    async def main() -> None:
        clock = virtual_clock()
        api = ApiServer(clock=clock, window=WATCH_WINDOW, audit=audit(clock) if audit is not None else None)
        churn = Churn(api)
        churn.fill()
        api.metrics_provider = churn
        user = User("kubetide-recommender-1", ADMIN.groups)
        client = Client(InProcessTransport(api, user=user), clock=clock, rng=Random(1))
        recorder = EventRecorder(client, clock=clock, component="vpa-recommender")
        settings = RecommenderSettings(leader_elect=False)
        made = Recommender(client, clock, settings, Telemetry(), recorder, Random(2))
        checkpoints = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalercheckpoints")

        def measure(hours: float) -> Measure:
            held = heap_mib()
            stored = [entry.obj["status"] for entry in api.store.collection(checkpoints).entries()]
            return Measure(
                hours=hours,
                pods_seen=churn.seen,
                heap_mib=held,
                resident_mib=resident_mib(),
                memory_blocks=sys.getallocatedblocks(),
                objects=own_objects(),
                aggregates=made.model.aggregate_count(),
                pods=len(made.model.pods),
                containers=len(made.model.containers),
                samples=sum(int(status["totalSamplesCount"]) for status in stored),
            )

        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(made.run()), loop.create_task(recorder.run())]
        try:
            churn.replace(ALIVE)
            between = int(every / STEP)
            for step in range(1, int(duration / STEP) + 1):
                await asyncio.sleep(STEP.total_seconds())
                churn.replace(REPLACED)
                if step % between == 0:
                    # Not in the same moment as a loop, and after what was just replaced has been heard of.
                    await asyncio.sleep(1)
                    measures.append(measure(step * STEP / timedelta(hours=1)))
                    if show is not None:
                        show(measures[-1])
                    await asyncio.sleep(-1 % STEP.total_seconds())
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()
            for result in results:
                if isinstance(result, Exception):
                    raise result

    run_virtual(main(), start=DEFAULT_START, limit=2 * duration + timedelta(hours=1))
    return measures
