"""A large cluster at rest, at once: one workload is settled by the real components, and the rest are copies of it.

Creating 100,000 workloads by requests, and writing the first status of each, takes longer than what is to be measured.
So one workload with its pod, autoscaler and perhaps VPA lives for some virtual minutes; what the API server then
stores is copied under other names, statuses and checkpoints included, as after a restart of all controllers.
"""

import asyncio
from datetime import datetime, timedelta
from random import Random
from typing import Any

from benchmarks.hpa_round import STARTED, Silent

from kubetide import crds
from kubetide.api.values.codec import decode_raw, encode
from kubetide.clock import Clock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa, make_pod, make_vpa
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import HpaConflicts, RecommenderSettings
from simulated.usage import PodUsageOnly

Raw = dict[str, Any]
Models = dict[ResourceKey, bytes]
NAMESPACES = 1000
APP, NAMESPACE = "model-app", "model-ns"
CPU, LEAST, MOST = "50000000n", 46_000_000, 54_000_000
"""Usage at rest, and between what it moves: more than a tenth, which is written at once, and within the tolerance."""
SETTLING, LEARNING = timedelta(minutes=3), timedelta(hours=8)
"""How long the workload lives before it is copied: until statuses are written, or until sizes move little."""
VPAS = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalers")
NAMED = (
    ResourceKey("apps", "deployments"),
    ResourceKey("", "pods"),
    ResourceKey("autoscaling", "horizontalpodautoscalers"),
    VPAS,
    ResourceKey("autoscaling.k8s.io", "verticalpodautoscalercheckpoints"),
)


def namespace_of(number: int) -> str:
    """Return the namespace of a workload."""
    return f"{number % NAMESPACES}-ns"


class Usage(PodUsageOnly):
    """Usage of one pod per workload; a share of them moves whenever all are read."""

    def __init__(self, clock: Clock, apps: list[tuple[str, str]], *, changing: float = 0.0) -> None:
        self._clock = clock
        self._changing = changing
        self._rng = Random(2)
        self._items: list[Raw] = [
            {
                "metadata": {"name": f"{app}-0", "namespace": namespace, "labels": {"app": app}},
                "timestamp": "",
                "window": "15s",
                "containers": [{"name": "main", "usage": {"cpu": CPU, "memory": "70Mi"}}],
            }
            for namespace, app in apps
        ]

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        for item in self._items:
            item["timestamp"] = stamp
        for item in self._rng.sample(self._items, round(self._changing * len(self._items))):
            item["containers"][0]["usage"]["cpu"] = f"{self._rng.choice((LEAST, MOST))}n"
        if namespace:
            return [item for item in self._items if item["metadata"]["namespace"] == namespace]
        return self._items


def settled(*, vpa: bool, now: datetime) -> Models:
    """Return what an API server stores of one workload that the components have looked after until `now`."""
    lived = LEARNING if vpa else SETTLING

    async def main() -> Models:
        clock = virtual_clock()
        api = ApiServer(clock=clock)
        deployment = make_deployment(APP, NAMESPACE, replicas=1, cpu="100m", memory="128Mi")
        labels = {"app": APP}
        pod = make_pod(
            f"{APP}-0", NAMESPACE, labels=labels, cpu="100m", memory="128Mi", node="n", ready=True, started=STARTED
        )
        objects = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {**deployment, "status": {"replicas": 1}},
            pod,
            make_hpa(APP, NAMESPACE, target=APP, maximum=2, cpu_percent=50),
        ]
        for each in (*objects, *(crds.load_all() if vpa else ())):
            api.insert(each)
        if vpa:
            api.insert(make_vpa(APP, NAMESPACE, target=APP))
        api.metrics_provider = Usage(clock, [(NAMESPACE, APP)])
        client = Client(InProcessTransport(api, user=ADMIN), clock=clock, rng=Random(1))
        hpa = HpaSettings(leader_elect=False, take_over=True)
        running: list[HpaController | Recommender] = [
            HpaController(client, clock, hpa, Telemetry(), Silent(), Random(1))
        ]
        if vpa:
            settings = RecommenderSettings(
                leader_elect=False, hpa_conflicts=HpaConflicts.IGNORE, checkpoint_interval=timedelta(minutes=1)
            )
            recorder = EventRecorder(client, clock=clock, component="recommender")
            running.append(Recommender(client, clock, settings, Telemetry(), recorder, Random(1)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in running]
            await asyncio.sleep(lived.total_seconds())
            for task in tasks:
                task.cancel()
        found = {kind: [entry.obj for entry in api.store.collection(kind).entries()] for kind in NAMED}
        assert {kind: len(each) for kind, each in found.items() if each} == dict.fromkeys(NAMED[: 5 if vpa else 3], 1)
        assert all("status" in each[0] for each in found.values() if each), "not settled"
        return {kind: encode(each[0]) for kind, each in found.items() if each}

    return run_virtual(main(), start=now.replace(microsecond=0) - lived)


def preload(api: ApiServer, models: Models, workloads: int, *, changing: float = 0.0) -> None:
    """Fill an API server with copies of a settled workload."""
    for crd in crds.load_all() if VPAS in models else ():
        api.insert(crd)
    for number in range(NAMESPACES):
        api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(number)}})
    for kind, text in models.items():
        uid = decode_raw(text)["metadata"]["uid"].encode()
        for number in range(workloads):
            namespace, app = namespace_of(number), f"app-{number}"
            named = text.replace(APP.encode(), app.encode()).replace(NAMESPACE.encode(), namespace.encode())
            obj = decode_raw(named.replace(uid, b"%08x%s" % (number, uid[8:])))
            api.store.put(kind, StoreKey(namespace, obj["metadata"]["name"]), obj)
    apps = [(namespace_of(number), f"app-{number}") for number in range(workloads)]
    api.metrics_provider = Usage(api.clock, apps, changing=changing)
