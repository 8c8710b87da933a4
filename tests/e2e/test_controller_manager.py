"""A real kube-controller-manager, with protobuf as is its default, as the control plane of `kubetide up`.

Nothing is simulated behind the API server: the test itself is the kubelet, and the metrics API is a fake one.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.controlplane import find_program
from e2e.metrics_server import MetricsServer
from e2e.programs import embedded, program, until
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, JOBS, PDBS, PODS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.testing.builders import make_deployment, make_hpa, make_job, make_pdb

CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
)
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
Raw = dict[str, Any]


class Kubelet:
    """Says of every pod that it runs; of the pods of a job that they are done."""

    def __init__(self, client: Client, metrics: MetricsServer) -> None:
        self.cpu = "100m"
        self._client = client
        self._metrics = metrics

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            pods = await items(self._client, "/api/v1/namespaces/default/pods")
            for pod in pods:
                if pod["status"].get("phase") == "Pending":
                    await self._report(pod)
            web = [pod["metadata"] for pod in pods if pod["metadata"].get("labels", {}).get("app") == "web"]
            self._metrics.answers[METRICS] = [self._usage(metadata) for metadata in web]
            await asyncio.sleep(0.1)

    async def _report(self, pod: Raw) -> None:
        now = SystemClock().now()
        started, since = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (now - timedelta(hours=1), now - timedelta(minutes=50)))
        is_job = "job-name" in pod["metadata"].get("labels", {})
        ready = {"type": "Ready", "status": "False" if is_job else "True", "lastTransitionTime": since}
        status = {"phase": "Succeeded" if is_job else "Running", "startTime": started, "conditions": [ready]}
        try:
            name = pod["metadata"]["name"]
            await self._client.patch(
                PODS, name, MergePatch({"status": status}), namespace="default", subresource="status"
            )
        except ApiError:
            pass  # gone in the meantime

    def _usage(self, metadata: Raw) -> Raw:
        return {
            "metadata": {name: metadata[name] for name in ("name", "namespace", "labels")},
            "timestamp": f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}",
            "window": "15s",
            "containers": [{"name": "main", "usage": {"cpu": self.cpu, "memory": "10Mi"}}],
        }


async def items(client: Client, path: str) -> list[Raw]:
    answer = await client.request("GET", path)
    found: list[Raw] = json.loads(answer.body)["items"]
    return found


def conditions(obj: Raw) -> dict[str, str]:
    return {one["type"]: one["status"] for one in obj["status"].get("conditions") or ()}


@pytest.fixture
def controller_manager() -> Path:
    found = find_program("kube-controller-manager")
    if found is None:
        pytest.skip("no kube-controller-manager: put it into KUBEBUILDER_ASSETS or ~/.cache/kubetide/envtest")
    return found


def command(binary: Path, kubeconfig: Path) -> tuple[str, ...]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return (
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(CONTROLLERS)}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--authentication-skip-lookup=true",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--horizontal-pod-autoscaler-downscale-stabilization=2s",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    )


async def test_it_runs_workloads_here_and_every_status_arrives(controller_manager: Path, tmp_path: Path) -> None:
    audit, log = tmp_path / "audit", tmp_path / "kube-controller-manager.log"
    metrics = MetricsServer()
    async with embedded(tmp_path, f"--audit={audit}") as (client, kubeconfig), metrics.serving(client):
        kubelet = Kubelet(client, metrics)
        with program(log, *command(controller_manager, kubeconfig)):
            async with kubelet.running():
                await client.create(DEPLOYMENTS, make_deployment("web", replicas=2, cpu="200m"), namespace="default")
                await client.create(HPAS, make_hpa("web", minimum=2, maximum=4, cpu_percent=50), namespace="default")
                await client.create(PDBS, make_pdb(labels={"app": "web"}, min_available="50%"), namespace="default")
                await client.create(JOBS, make_job("once", completions=2), namespace="default")
                await workloads_report_themselves(client, log)
                await the_autoscaler_reports_itself_and_scales(client, kubelet, log)
                await an_eviction_is_counted_and_made_up_for(client, log)
                await what_belonged_to_the_deleted_goes_too(client, log)
    ours = [
        event for event in map(json.loads, audit.read_bytes().splitlines()) if "kube-controller" in event["userAgent"]
    ]
    refused = [event for event in ours if event["responseStatus"]["code"] in (400, 406, 415, 422, 500)]
    assert not refused
    written = {event["objectRef"]["resource"] for event in ours if event["verb"] in ("create", "update", "patch")}
    assert written >= {"leases", "events", "deployments", "replicasets", "pods", "jobs", "poddisruptionbudgets"}
    assert "horizontalpodautoscalers" in written


def status_of(client: Client, resource: Any, name: str, fits: Callable[[Raw], bool]) -> Callable[[], Awaitable[bool]]:
    async def wanted() -> bool:
        obj = await client.get_raw(resource, name, namespace="default")
        obj.setdefault("status", {})
        return fits(obj)

    return wanted


async def workloads_report_themselves(client: Client, log: Path) -> None:
    def rolled_out(obj: Raw) -> bool:
        numbers = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        return (
            {obj["status"].get(name) for name in numbers} == {2}
            and obj["status"].get("observedGeneration") == obj["metadata"]["generation"]
            and conditions(obj) == {"Available": "True", "Progressing": "True"}
        )

    await until(status_of(client, DEPLOYMENTS, "web", rolled_out), log)
    [replica_set] = await items(client, "/apis/apps/v1/namespaces/default/replicasets")
    status = replica_set["status"]
    assert (status["replicas"], status["readyReplicas"], status["fullyLabeledReplicas"]) == (2, 2, 2)
    assert replica_set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"

    def complete(obj: Raw) -> bool:
        status = obj["status"]
        return status.get("succeeded") == 2 and conditions(obj).get("Complete") == "True" and "completionTime" in status

    await until(status_of(client, JOBS, "once", complete), log)

    def budgeted(obj: Raw) -> bool:
        numbers = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
        return [obj["status"].get(name) for name in numbers] == [2, 2, 1, 1] and (
            conditions(obj) == {"DisruptionAllowed": "True"}
        )

    await until(status_of(client, PDBS, "budget", budgeted), log)


async def the_autoscaler_reports_itself_and_scales(client: Client, kubelet: Kubelet, log: Path) -> None:
    def measured(obj: Raw) -> bool:
        current = [one["resource"]["current"] for one in obj["status"].get("currentMetrics") or () if "resource" in one]
        return (
            current == [{"averageUtilization": 50, "averageValue": "100m"}]
            and (obj["status"].get("currentReplicas"), obj["status"].get("desiredReplicas")) == (2, 2)
            and conditions(obj) == {"AbleToScale": "True", "ScalingActive": "True", "ScalingLimited": "False"}
        )

    await until(status_of(client, HPAS, "web", measured), log)
    kubelet.cpu = "400m"

    def limited(obj: Raw) -> bool:
        found = (obj["status"].get("currentReplicas"), obj["status"].get("desiredReplicas"))
        return found == (4, 4) and conditions(obj)["ScalingLimited"] == "True" and "lastScaleTime" in obj["status"]

    await until(status_of(client, HPAS, "web", limited), log)
    await until(status_of(client, DEPLOYMENTS, "web", lambda obj: obj["status"].get("availableReplicas") == 4), log)
    events = await items(client, "/api/v1/namespaces/default/events")
    told = {(event["involvedObject"]["kind"], event["reason"]) for event in events}
    assert told >= {
        ("Deployment", "ScalingReplicaSet"),
        ("ReplicaSet", "SuccessfulCreate"),
        ("Job", "Completed"),
        ("HorizontalPodAutoscaler", "SuccessfulRescale"),
    }


async def an_eviction_is_counted_and_made_up_for(client: Client, log: Path) -> None:
    await until(status_of(client, PDBS, "budget", lambda obj: obj["status"].get("disruptionsAllowed") == 2), log)
    pods = await items(client, "/api/v1/namespaces/default/pods")
    name = next(pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"].get("app") == "web")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    await client.request("POST", path, body=json.dumps(eviction).encode())

    async def made_up_for() -> bool:
        names = {pod["metadata"]["name"] for pod in await items(client, "/api/v1/namespaces/default/pods")}
        budget = await client.get_raw(PDBS, "budget", namespace="default")
        return name not in names and (budget["status"]["currentHealthy"], budget["status"]["disruptionsAllowed"]) == (
            4,
            2,
        )

    await until(made_up_for, log)


async def what_belonged_to_the_deleted_goes_too(client: Client, log: Path) -> None:
    lease = json.loads(
        (
            await client.request(
                "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
            )
        ).body
    )
    assert lease["spec"]["holderIdentity"]
    assert lease["spec"]["leaseDurationSeconds"] > 0
    await client.request(
        "DELETE", "/apis/batch/v1/namespaces/default/jobs/once", query={"propagationPolicy": "Foreground"}
    )
    await client.request("DELETE", "/apis/apps/v1/namespaces/default/deployments/web")

    async def gone() -> bool:
        return not any(
            [
                await items(client, f"{base}/namespaces/default/{plural}")
                for base, plural in (("/api/v1", "pods"), ("/apis/apps/v1", "replicasets"), ("/apis/batch/v1", "jobs"))
            ]
        )

    await until(gone, log)
