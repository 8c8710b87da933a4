"""`kubetide run metrics` behind the aggregation layer of a real API server, with just the permissions of its manifests.

Nodes and pods are made by the test, which is the kubelet too: it answers scrapes and reports that pods run.
"""

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e.aggregated import free_port, kubectl, serving
from e2e.controlplane import BinariesMissing, ControlPlane, connected, find_program, running
from e2e.programs import program, until
from kubetide import crds
from kubetide.api.objects.sample_frames import (
    STREAM_AUDIENCE,
    STREAM_PATH,
    STREAM_PROTOCOL,
    Frame,
    UsageSample,
    encode_frame,
)
from kubetide.api.objects.scheme import CRDS, DEPLOYMENTS, HPAS, PODS, VPAS
from kubetide.api.values.codec import encode
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import parse_quantity
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.testing.builders import make_deployment, make_hpa, make_vpa
from metricsworld import FakeKubelet, make_node, resource_metrics

Raw = dict[str, Any]
USAGE = "/apis/metrics.k8s.io/v1beta1"
CLOCK = SystemClock()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    try:
        with running(tmp_path / "plane") as made:
            made.start_controller_manager(extra=("--horizontal-pod-autoscaler-sync-period=1s",))
            yield made
    except BinariesMissing as error:
        pytest.skip(str(error))


class Kubelet(FakeKubelet):
    """Runs every pod of the namespace on its node; each uses so many cores."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.cores = 0.1
        self._client = client
        self._used: dict[str, float] = {}
        self._at = CLOCK.now().timestamp()

    async def run(self) -> None:
        """Report pods and count their CPU time until cancelled."""
        while True:
            answer = await self._client.request("GET", "/api/v1/namespaces/default/pods")
            names = []
            for pod in json.loads(answer.body)["items"]:
                names.append(pod["metadata"]["name"])
                if pod["status"].get("phase") == "Pending":
                    await self._start(pod)
            now = CLOCK.now().timestamp()
            passed, self._at = now - self._at, now
            for name in names:
                self._used[name] = self._used.get(name, 0.0) + self.cores * passed
            pods = {("default", name): {"main": self._used[name]} for name in names}
            self.text = resource_metrics(pods, node_cpu=sum(self._used.values()), at=now)
            await asyncio.sleep(0.3)

    async def _start(self, pod: Raw) -> None:
        name = pod["metadata"]["name"]
        try:
            if not pod["spec"].get("nodeName"):
                target = {"target": {"kind": "Node", "name": "n-1"}, "metadata": {"name": name}}
                path = PODS.path(namespace="default", name=name, subresource="binding")
                body = encode({"apiVersion": "v1", "kind": "Binding", **target})
                await self._client.request("POST", path, body=body)
            since = "2020-01-01T00:00:00Z"
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
            status = {"status": {"phase": "Running", "startTime": since, "conditions": [ready]}}
            await self._client.patch(PODS, name, MergePatch(status), namespace="default", subresource="status")
        except ApiError:
            pass  # gone in the meantime


@asynccontextmanager
async def direct(plane: ControlPlane, identity: Any = None) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session that talks to the server itself; who it is does not matter to these tests."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if identity is not None:
        chain = plane.folder / "direct.pem"
        chain.write_text(identity.certificate + identity.key)
        context.load_cert_chain(chain)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        yield session


async def test_kubectl_top_and_upstream_s_autoscalers_work_on_it(plane: ControlPlane, tmp_path: Path) -> None:
    port, admin = free_port(), plane.kubeconfig()
    async with connected(plane, "admin") as client:
        kubelet = Kubelet(client)
        async with kubelet.serving(plane.ca), asyncio.TaskGroup() as group:
            await make_node(client, "n-1", kubelet.port)
            with serving(plane, tmp_path, port) as (log, _):
                work = group.create_task(kubelet.run())
                await client.create(DEPLOYMENTS, make_deployment("web", replicas=2, cpu="200m"), namespace="default")
                await client.create(HPAS, make_hpa("web", minimum=2, maximum=4, cpu_percent=50), namespace="default")

                async def top() -> bool:
                    return "web-" in await asyncio.to_thread(kubectl, admin, "top", "pods")

                await until(top, log)
                assert "n-1" in await asyncio.to_thread(kubectl, admin, "top", "nodes")
                kubelet.cores = 0.4

                async def scaled() -> bool:
                    found = await client.get_raw(DEPLOYMENTS, "web", namespace="default")
                    return bool(found["spec"]["replicas"] == 4)

                await until(scaled, log)
                await upstream_recommends(client, admin, tmp_path)
                await readers_may_what_those_of_metrics_server_may(plane, admin)
                await strangers_are_kept_out(plane, port)
                await an_agent_streams(plane, client, port, log)
                work.cancel()


async def upstream_recommends(client: Client, admin: Path, folder: Path) -> None:
    """Upstream's vertical autoscaler learns from this server what 0.4 cores are."""
    original = find_program("vpa-recommender")
    if original is None:
        pytest.skip("no vpa-recommender 1.7: put upstream's program into ~/.cache/kubetide/envtest")
    for crd in crds.load_all():
        if crd["spec"]["group"] == VPAS.group:
            await client.create(CRDS, crd)
    log = folder / "vpa-recommender.log"

    async def made() -> bool:
        try:
            await client.create(VPAS, make_vpa("web", target="web", mode="Off"), namespace="default")
        except ApiError:
            return False
        return True

    await until(made, log)

    async def recommended() -> bool:
        vpa = await client.get_raw(VPAS, "web", namespace="default")
        given = ((vpa.get("status") or {}).get("recommendation") or {}).get("containerRecommendations") or ()
        return any(parse_quantity(one["target"]["cpu"]).milli > 300 for one in given)

    flags = ("--recommender-interval=2s", "--leader-elect=false", "--address=127.0.0.1:0", "--v=2")
    with program(log, str(original), f"--kubeconfig={admin}", *flags):
        await until(recommended, log)


async def readers_may_what_those_of_metrics_server_may(plane: ControlPlane, admin: Path) -> None:
    """Whoever has the role view reads usage, and neither signals nor other metrics; the server itself reads little."""
    bind = ("create", "clusterrolebinding", "bob-views", "--clusterrole=view", "--user=bob")
    await asyncio.to_thread(kubectl, admin, *bind)
    account = "system:serviceaccount:kube-system:kubetide-metrics"
    expected = {
        ("bob", "get", "pods.metrics.k8s.io"): "yes",
        ("bob", "list", "pods.metrics.k8s.io"): "yes",
        ("bob", "list", "podsignals.metrics.k8s.io"): "no",
        ("bob", "get", "requests.custom.metrics.k8s.io"): "no",
        ("bob", "get", "queue.external.metrics.k8s.io"): "no",
        (account, "get", "nodes --subresource=metrics"): "yes",
        (account, "get", "nodes --subresource=proxy"): "no",
        (account, "list", "pods"): "yes",
        (account, "list", "secrets"): "no",
        (account, "get", "secrets/kubetide-metrics-certs"): "no",
        (account, "create", "pods"): "no",
        (account, "patch", "nodes"): "no",
        (account, "get", "queue.external.metrics.k8s.io"): "no",
    }

    async def may(who: str, verb: str, what: str) -> str:
        words = ("auth", "can-i", verb, *what.split(), f"--as={who}", "-n", "default")
        # Warnings follow on the other stream.
        return (await asyncio.to_thread(kubectl, admin, *words)).split()[0]

    async def view_has_joined() -> bool:
        # The roles are joined by a controller, a moment after they were made.
        return await may("bob", "get", "pods.metrics.k8s.io") == "yes"

    await until(view_has_joined, plane.folder / "kube-controller-manager.log")
    assert {question: await may(*question) for question in expected} == expected


async def strangers_are_kept_out(plane: ControlPlane, port: int) -> None:
    url = f"https://127.0.0.1:{port}{USAGE}/nodes"
    through = await asyncio.to_thread(kubectl, plane.kubeconfig("ann"), "get", "--raw", f"{USAGE}/nodes")
    assert "forbidden" in through.lower()
    async with direct(plane, plane.identity("ann")) as session, session.get(url) as response:
        assert (response.status, (await response.json())["reason"]) == (403, "Forbidden")
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    for identity in (None, plane.identity("front-proxy-client")):
        async with direct(plane, identity) as session, session.get(url, headers=forged) as response:
            # The second is somebody, but not who the headers say.
            assert response.status == (401 if identity is None else 403)


async def an_agent_streams(plane: ControlPlane, client: Client, port: int, log: Path) -> None:
    """A token that the API server bound to a pod on n-1 may report for n-1."""
    spec = {"serviceAccountName": "kubetide-node", "nodeName": "n-1", "containers": [{"name": "agent", "image": "x"}]}
    await client.create(PODS, {"metadata": {"name": "agent-1"}, "spec": spec}, namespace="kube-system")
    bound = ("--bound-object-kind=Pod", "--bound-object-name=agent-1", "-n", "kube-system")
    create = ("create", "token", "kubetide-node", *bound)
    admin = plane.kubeconfig()
    token = (await asyncio.to_thread(kubectl, admin, *create, f"--audience={STREAM_AUDIENCE}")).strip()
    other = (await asyncio.to_thread(kubectl, admin, *create)).strip()
    url = f"https://127.0.0.1:{port}{STREAM_PATH}"
    async with direct(plane) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(url, headers={"Authorization": f"Bearer {other}"}, protocols=(STREAM_PROTOCOL,))
        assert refused.value.status == 401
        headers = {"Authorization": f"Bearer {token}"}
        async with session.ws_connect(url, headers=headers, protocols=(STREAM_PROTOCOL,)) as stream:
            now = CLOCK.now().timestamp()
            frame = Frame(version=1, sequence=0, at=now, sent=now, window=5.0, node=UsageSample(7 * 10**9, 2**30))
            await stream.send_bytes(encode_frame(frame))

            async def shown() -> bool:
                answer = await client.request("GET", f"{USAGE}/nodes/n-1")
                return bool(json.loads(answer.body)["usage"]["cpu"] == "7000000000n")

            await until(shown, log)
