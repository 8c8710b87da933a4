"""Every query of the Grafana dashboards, on a real Prometheus that scrapes all components while they work."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from docs.test_metrics import series
from kubetide.install.grafana import DASHBOARDS
from prom.test_prometheus_history import free_port, prometheus

PATIENCE = 60
SCENARIO = """
name: dashboards
seed: 3
nodes: [{name: node, count: 2, cpu: "8", memory: 16Gi}]
workloads:
- {name: web, replicas: 1, requests: {cpu: 200m, memory: 128Mi}, load: {curve: constant, level: 60}}
- name: worker
  replicas: 2
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 4Gi}
  load: {curve: constant, level: 30}
  memory: {base: 300Mi}
objects:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: slo-controller-config, namespace: koordinator-system}
  data:
    colocation-config: '{"enable": true, "metricReportIntervalSeconds": 60, "updateTimeThresholdSeconds": 60}'
    resource-threshold-config: '{"clusterStrategy": {"enable": true}}'
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: web, namespace: default}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    maxReplicas: 9
    metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
- apiVersion: autoscaling.k8s.io/v1
  kind: VerticalPodAutoscaler
  metadata: {name: worker, namespace: default}
  spec:
    targetRef: {apiVersion: apps/v1, kind: Deployment, name: worker}
    updatePolicy: {updateMode: Recreate}
"""
# Metric -> why it has no data here.
CANNOT_HAPPEN = {
    "koordlet_pod_eviction": "nothing in this cluster presses a node so hard that its agent evicts",
}
OURS = ("kubetide_", "koordlet_", "slo_controller_", "vpa_", "kube_", "horizontal_", "workqueue_", "controller_")
QUERIES = [query for page in DASHBOARDS.values() for panel in page.panels for query in panel.queries.values()]


@asynccontextmanager
async def kubetide(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubetide", *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "POD_NAME": ""},
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            await started.communicate()


async def ask(session: aiohttp.ClientSession, url: str, query: str) -> list[Any]:
    for name in ("namespace", "name", "vpa", "node", "job"):
        query = query.replace(f'"${name}"', '".*"')
    asked = {"query": query.replace("$__rate_interval", "1m")}
    async with session.get(f"{url}/api/v1/query", params=asked) as answer:
        told = await answer.json()
    assert told["status"] == "success", told
    return [each for each in told["data"]["result"] if each["value"][1] != "NaN"]


@asynccontextmanager
async def up(folder: Path, *arguments: str) -> AsyncIterator[None]:
    """Run an embedded API server with the kubeconfig of its folder, from when it is ready."""
    async with kubetide(folder, "up", "--port", "0", "--dashboard-port", "0", *arguments) as server:
        assert server.stdout is not None
        async with asyncio.timeout(PATIENCE):
            async for line in server.stdout:
                if line.startswith(b"ready: "):
                    break
        yield


async def test_every_panel_has_data_while_all_components_run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("no Prometheus: install the Debian package prometheus")
    (tmp_path / "day.yaml").write_text(SCENARIO)
    inside, outside, real = free_port(), free_port(), tmp_path_factory.mktemp("real")
    simulated = ("--sim", "day.yaml", "--with", "all", "--speed", "30", "--status-port", str(inside))
    # Leases, requests to an API server and caches: a simulation has them in process, these two as in a cluster.
    remote = ("run", "hpa,slo", f"--status-port={outside}", "--kubeconfig", "kubetide.kubeconfig")
    scraped = [f"127.0.0.1:{port}" for port in (inside, outside)]
    async with (
        up(tmp_path, *simulated),
        up(real),
        kubetide(real, *remote),
        prometheus(tmp_path, free_port(), scraped=scraped) as url,
        aiohttp.ClientSession() as session,
    ):
        missing = QUERIES
        for _ in range(PATIENCE):
            missing = [each for each in missing if not await ask(session, url, each)]
            if all(any(name in each for name in CANNOT_HAPPEN) for each in missing):
                break
            await asyncio.sleep(1)
        async with session.get(f"{url}/api/v1/label/__name__/values") as answer:
            scraped_names = set((await answer.json())["data"])
    assert {name for name in scraped_names - series() if name.startswith(OURS)} == set()  # none is missing in the docs
    assert [each for each in missing if not any(name in each for name in CANNOT_HAPPEN)] == []
