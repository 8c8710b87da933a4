"""`kubetide explain` as a process: it asks the running controller, or recomputes and says so."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embedded_server import running
from kubetide import crds
from kubetide.api.objects.scheme import CONFIG_MAPS, CRDS, NODE_METRICS, NODES, PODS
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import load as load_kubeconfig
from kubetide.kube.endpoints import Endpoints
from kubetide.telemetry import Telemetry

PATIENCE = 60
CAPACITY = {"cpu": "10", "memory": "10Gi"}


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Path]:
    """Serve a node with colocation switched on; yield a kubeconfig."""
    async with running() as server:
        client = Client(server.transport(), clock=SystemClock())
        for definition in crds.load_all():
            await client.create(CRDS, definition)
        namespace = msgspec.json.encode({"metadata": {"name": "koordinator-system"}})
        await client.request("POST", "/api/v1/namespaces", body=namespace)
        status = {"capacity": CAPACITY, "allocatable": CAPACITY}
        await client.create(NODES, {"metadata": {"name": "node-1"}, "status": status})
        meta = {"name": "slo-controller-config"}
        data = {"colocation-config": '{"enable": true}'}
        await client.create(CONFIG_MAPS, {"metadata": meta, "data": data}, namespace="koordinator-system")
        body = {"apiVersion": NODE_METRICS.api_version, "kind": "NodeMetric", "metadata": {"name": "node-1"}}
        await client.create(NODE_METRICS, body)
        await client.close()
        kubeconfig = folder / "config"
        text = server.identity.kubeconfig(server.serving.url)
        kubeconfig.write_text(text)
        kubeconfig.chmod(0o600)
        yield kubeconfig


@asynccontextmanager
async def controller(known: dict[tuple[str, str], dict[str, Any]]) -> AsyncIterator[str]:
    """Serve explanations of what is known; yield the address."""
    endpoints = Endpoints(
        Telemetry(),
        healthy=lambda: True,
        ready=lambda: True,
        explain=lambda kind, key: known.get((kind, key)),
        host="127.0.0.1",
        port=0,
    )
    task = asyncio.get_running_loop().create_task(endpoints.run())
    async with asyncio.timeout(PATIENCE):
        while not endpoints.ready():  # noqa: ASYNC110 - readiness has no event
            await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{endpoints.port}"
    finally:
        task.cancel()
        await asyncio.wait({task})


async def explain(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubetide", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_without_a_controller_the_sum_of_a_node_is_recomputed_and_reports_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubeconfig:
        given = ("--kubeconfig", str(kubeconfig), "explain", "node")
        code, out, err = await explain(*given, "node-1", "--recompute")
        assert code == 0, err
        assert "Node node-1" in out
        assert "last report   never" in out
        assert "nothing is overcommitted" in out
        assert "RECOMPUTED" in err
        assert "history is missing" in err
        code, out, err = await explain(*given, "node-1", "--recompute", "-o", "json")
        assert code == 0
        assert "RECOMPUTED" in err, "in either form"
        trace = msgspec.json.decode(out)
        assert "history is missing" in trace["warning"]
        assert trace["recomputed"] is True
        assert trace["overcommit"]["strategy"]["cpuReclaimThresholdPercent"] == 60
        code, out, err = await explain(*given, "no-such-node", "--recompute")
        assert code == 1
        assert out == ""
        assert err == "kubetide: there is no node no-such-node\n"
        code, _, err = await explain("--kubeconfig", str(kubeconfig), "explain", "pod", "default/nosuch", "--recompute")
        assert (code, err) == (1, "kubetide: there is no pod nosuch in namespace default\n")
        code, _, err = await explain("--kubeconfig", str(kubeconfig), "explain", "vpa", "default/nosuch", "--recompute")
        assert (code, err) == (1, "kubetide: there is no vpa nosuch in namespace default\n")


async def test_a_pod_is_explained_by_the_profile_that_made_it_although_no_vpa_is_for_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubeconfig:
        access = load_kubeconfig(clock=SystemClock(), path=kubeconfig)
        client = Client(HttpTransport(access), clock=SystemClock())
        container = {"name": "c", "image": "x", "resources": {"requests": {"kubernetes.io/batch-cpu": "10"}}}
        meta = {
            "name": "job",
            "labels": {"koordinator.sh/qosClass": "BE"},
            "annotations": {"kubetide.io/colocation-profiles": '["nightly"]'},
        }
        await client.create(PODS, {"metadata": meta, "spec": {"containers": [container]}}, namespace="default")
        await client.close()
        given = ("--kubeconfig", str(kubeconfig), "explain", "pod")
        code, out, err = await explain(*given, "default/job", "--recompute")
        assert (code, err) == (0, "")
        assert "made by       profile nightly" in out
        assert "kubernetes.io/batch-cpu 10" in out
        code, out, err = await explain(*given, "default/no-such-pod", "--recompute")
        assert (code, out) == (1, "")
        assert "Traceback" not in err


@pytest.mark.parametrize("namespace", ["shop", "default"])
async def test_a_running_controller_is_asked_in_the_namespace_of_the_context(tmp_path: Path, namespace: str) -> None:
    kubeconfig = tmp_path / "config"
    context: dict[str, str] = {"cluster": "c", "user": "u"}
    if namespace != "default":
        context["namespace"] = namespace
    body = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    kubeconfig.write_bytes(msgspec.json.encode(body))
    known = {("hpa", f"{namespace}/web"): {"told": namespace}, ("hpa", "other/web"): {"told": "other"}}
    async with controller(known) as address:
        given = ("--kubeconfig", str(kubeconfig))
        asked = ("explain", "hpa", "web", "--address", address, "-o", "json")
        code, out, err = await explain(*given, *asked)
        answer = msgspec.json.decode(out)
        assert (code, answer["told"]) == (0, namespace), err
        assert answer["verdict"].startswith("UNKNOWN: the API server does not answer"), "what is unknown is not fine"
        assert answer["remedy"]
        code, out, _ = await explain(*given, "-n", "other", *asked)
        assert (code, msgspec.json.decode(out)["told"]) == (0, "other")
        code, _, err = await explain(*given, "-n", "third", *asked)
        assert code == 1
        assert err == f"kubetide: {address} does not know hpa third/web\n"


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_a_pod_known_to_an_agent_alone_is_explained_by_it(tmp_path: Path, scheme: str) -> None:
    half = {"pod": "shop/web-1", "qos": {"used": "BE", "kubernetes": "BestEffort"}, "priority": None, "cgroup": "pod1"}
    async with controller({("pod", "shop/web-1"): half}) as address:
        given = ("explain", "pod", "shop/web-1", "--address", scheme + address.removeprefix("http://"))
        code, out, err = await explain(*given)
        assert (code, err) == (0, "")
        assert "QoS class BE" in out


async def test_a_kind_that_is_not_installed_is_said_at_once_with_its_fix(tmp_path: Path) -> None:
    async with running() as server:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(server.identity.kubeconfig(server.serving.url))
        kubeconfig.chmod(0o600)
        for kind, component in (("vpa", "recommender"), ("pod", "updater")):
            code, _, err = await explain("--kubeconfig", str(kubeconfig), "explain", kind, "default/web", "--recompute")
            assert code == 1
            assert "verticalpodautoscalers.autoscaling.k8s.io is not installed" in err
            assert f"fix: kubetide manifests {component} | kubectl apply -f -" in err
            assert err.count("\n") == 1


async def test_a_process_is_found_where_the_kubeconfig_announces_it(tmp_path: Path) -> None:
    known = {("vpa", "shop/web"): {"told": "by the running process"}}
    async with running() as server, controller(known) as address:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(server.identity.kubeconfig(server.serving.url, explain=address.removeprefix("http://")))
        kubeconfig.chmod(0o600)
        code, out, err = await explain("explain", "vpa", "shop/web", "-o", "json", "--kubeconfig", str(kubeconfig))
        assert (code, err) == (0, "")
        assert msgspec.json.decode(out)["told"] == "by the running process"
