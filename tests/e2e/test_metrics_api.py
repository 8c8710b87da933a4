"""`kubetide run metrics` behind the aggregation layer of a real API server, with just the permissions of its manifests.

Nodes and pods are made by the test, which is the kubelet too: it answers scrapes and reports that pods run.
"""

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from e2e.controlplane import BinariesMissing, ControlPlane, connected, running
from e2e.programs import KUBETIDE, program, until
from kubetide.api.objects.sample_frames import (
    STREAM_AUDIENCE,
    STREAM_PATH,
    STREAM_PROTOCOL,
    Frame,
    UsageSample,
    encode_frame,
)
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, PODS
from kubetide.api.values.codec import encode
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.install.objects import manifests
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.testing.builders import make_deployment, make_hpa
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


def kubectl(config: Path, *words: str, given: str = "") -> str:
    """Run kubectl and return what it prints, errors too."""
    command = ["kubectl", f"--kubeconfig={config}", *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def install(admin: Path, port: int) -> None:
    """Apply what the metrics server and the agents need but their workloads; its Service leads to this machine."""
    objects = manifests(("metrics", "node"), namespace="kube-system", image="x", with_crds=False)
    kept = [one for one in objects if one["kind"] not in ("Deployment", "DaemonSet")]
    for one in kept:
        if one["kind"] == "Service":
            one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        if one["kind"] == "APIService":
            one["spec"]["service"]["port"] = port
    answer = kubectl(admin, "apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(kept))
    assert "error" not in answer.lower(), answer


def as_account(plane: ControlPlane, admin: Path, folder: Path, account: str) -> Path:
    """Return a kubeconfig of a service account."""
    token = kubectl(admin, "create", "token", account, "-n", "kube-system").strip()
    config = yaml.safe_load(plane.kubeconfig("admin").read_text())
    config["users"] = [{"name": "account", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "account"
    path = folder / f"{account}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def serving(plane: ControlPlane, folder: Path, port: int) -> Iterator[Path]:
    """Run the metrics server while the block lasts; gives its log."""
    admin = plane.kubeconfig()
    install(admin, port)
    config, log = as_account(plane, admin, folder, "kubetide-metrics"), folder / "metrics.log"
    flags = ("--bind-address=127.0.0.1", f"--secure-port={port}", "--metric-resolution=1s", "--listen=127.0.0.1:0")
    with program(log, *KUBETIDE, "run", "metrics", f"--kubeconfig={config}", *flags):
        yield log


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


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


async def test_kubectl_top_and_the_autoscaler_of_kubernetes_work_on_it(plane: ControlPlane, tmp_path: Path) -> None:
    port, admin = free_port(), plane.kubeconfig()
    async with connected(plane, "admin") as client:
        kubelet = Kubelet(client)
        async with kubelet.serving(plane.ca), asyncio.TaskGroup() as group:
            await make_node(client, "n-1", kubelet.port)
            with serving(plane, tmp_path, port) as log:
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
                await strangers_are_kept_out(plane, port)
                await an_agent_streams(plane, client, port, log)
                work.cancel()


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
