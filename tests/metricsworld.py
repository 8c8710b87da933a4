"""A metrics server over real TLS beside an embedded API server, with a front proxy, a kubelet and agents for tests."""

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import aiohttp
from aiohttp import web

from embedded_server import Running, running
from kubetide.api.objects.sample_frames import STREAM_AUDIENCE
from kubetide.api.objects.scheme import API_SERVICES, CONFIG_MAPS, NODES, PODS, SECRETS
from kubetide.api.values.codec import decode_raw, encode
from kubetide.clock import SystemClock
from kubetide.install.metrics_api import metrics_api_objects
from kubetide.kube.client.certificates import KeyPair, issue, make_ca
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static, bearer
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import Certificate, Pem, ServerTrust, client_context, load_identity
from kubetide.kube.client.transport import Response
from kubetide.kube.listener import listening
from kubetide.metrics.server import MetricsServer
from kubetide.metrics.settings import MetricsSettings
from kubetide.telemetry import Telemetry

Raw = dict[str, Any]
CLOCK = SystemClock()
AGENT = "system:serviceaccount:kube-system:kubetide-node"
RBAC = "rbac.authorization.k8s.io"


@dataclass
class FakeKubelet:
    """A kubelet that answers `/metrics/resource` with what a test sets."""

    text: str = ""
    status: int = 200
    authorizations: list[str] = field(default_factory=list)
    port: int = 0

    @asynccontextmanager
    async def serving(self, ca: KeyPair) -> AsyncIterator["FakeKubelet"]:
        """Serve while the block lasts."""
        app = web.Application()
        app.router.add_get("/metrics/resource", self._answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_identity(context, pems(issue(ca, "kubelet", now=CLOCK.now(), addresses=["127.0.0.1"])))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        async with listening(runner, "127.0.0.1", 0, tls=context) as self.port:
            yield self

    async def _answer(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization", ""))
        return web.Response(status=self.status, text=self.text)


async def until(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until the answer is something."""
    async with asyncio.timeout(20):
        while not (found := await ask()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    return found


class TokenReviews:
    """A transport on which tokens of agents are reviewed as an API server with bound tokens does it."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.watch, self.close = inner.watch, inner.close
        self.tokens: dict[str, Raw] = {}
        """Status of the review, by token."""
        self.asked = 0

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        """Pass a request on, unless it is the review of a token that is known here."""
        if path.endswith("/tokenreviews"):
            self.asked += 1
            review = decode_raw(parts["body"])
            status = self.tokens.get(review["spec"]["token"])
            if status is not None:
                return Response(201, body=encode({**review, "status": status}))
        return await self._inner.request(method, path, **parts)

    def agent(self, token: str, node: str, *, audiences: tuple[str, ...] = (STREAM_AUDIENCE,)) -> None:
        """Make a token that is bound to a node."""
        extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
        user = {"username": AGENT, "groups": ["system:serviceaccounts"], "extra": extra}
        self.tokens[token] = {"authenticated": True, "audiences": list(audiences), "user": user}


def pems(pair: KeyPair) -> Certificate:
    """Return a pair as files are read."""
    return Certificate(certificate=Pem(data=pair.certificate), key=Pem(data=pair.key))


@dataclass
class MetricsWorld:
    """Everything a test may want to touch."""

    cluster: Running
    client: Client
    server: MetricsServer
    front_ca: KeyPair
    kubelet: FakeKubelet
    telemetry: Telemetry
    reviews: "TokenReviews"
    restart: Callable[[], Awaitable[None]]
    """Ends the server and starts another one in its place."""
    replica: Callable[[], AbstractAsyncContextManager["MetricsWorld"]]
    """Another server of the same Service beside it, while entered; gives the same world as that one is asked."""

    @asynccontextmanager
    async def session(self, identity: KeyPair | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        """Yield a session that shows a certificate, if one is given."""
        secret = await self.client.get_raw(SECRETS, "kubetide-metrics-certs", namespace="kube-system")
        ca = Pem(data=base64.b64decode(secret["data"]["caCert.pem"]).decode())
        context = client_context(ServerTrust(ca=ca), None if identity is None else pems(identity))
        base = f"https://localhost:{self.server.port}"
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(base, connector=connector) as session:
            yield session

    def front_proxy(self, name: str = "front-proxy-client") -> KeyPair:
        """Return a certificate of the aggregation layer."""
        return issue(self.front_ca, name, now=CLOCK.now(), client=True)

    async def as_user(self, path: str, user: str, *groups: str, **headers: str) -> tuple[int, Any]:
        """Ask as the API server does on behalf of somebody."""
        told = [("X-Remote-User", user), *(("X-Remote-Group", group) for group in groups), *headers.items()]
        async with self.session(self.front_proxy()) as session, session.get(path, headers=told) as response:
            return response.status, await response.json()

    async def allow(self, user: str, group: str, resources: list[str], verbs: list[str]) -> None:
        """Let a user do something."""
        await allow(self.client, user, {"apiGroups": [group], "resources": resources, "verbs": verbs})


async def allow(client: Client, user: str, rule: Raw) -> None:
    """Bind a rule to a user, or to a service account by its full name."""
    name = f"{user.replace(':', '-')}-{random.randrange(10**9)}"
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    await client.request("POST", f"/apis/{RBAC}/v1/clusterroles", body=encode(role))
    await client.request("POST", f"/apis/{RBAC}/v1/clusterrolebindings", body=encode(binding))


async def make_node(client: Client, name: str, port: int, **labels: str) -> None:
    """Create a node whose kubelet listens on a loopback port."""
    made = await client.create(NODES, {"metadata": {"name": name, "labels": labels}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    metadata = {"name": name, "labels": labels, "resourceVersion": made.metadata.resource_version}
    body = {"metadata": metadata, "status": status}
    await client.update(NODES, name, body, subresource="status")


async def make_pod(client: Client, name: str, node: str, *, namespace: str = "default", **labels: str) -> str:
    """Create a pod on a node and return its uid."""
    spec = {"nodeName": node, "containers": [{"name": "web", "image": "x"}]}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    return (await client.create(PODS, body, namespace=namespace)).metadata.uid


@asynccontextmanager
async def metrics_world(**settings: Any) -> AsyncIterator[MetricsWorld]:
    """Yield a metrics server that serves, beside its API server; one node, `n-1`, has a kubelet."""
    front_ca, kubelet_ca = make_ca("front-proxy-ca", now=CLOCK.now()), make_ca("kubelet-ca", now=CLOCK.now())
    kubelet = FakeKubelet()
    async with running() as cluster, kubelet.serving(kubelet_ca), asyncio.TaskGroup() as group:
        reviews = TokenReviews(cluster.transport())
        client = Client(reviews, clock=CLOCK)
        await client.create(CONFIG_MAPS, _proxies(front_ca), namespace="kube-system")
        for body in metrics_api_objects("kube-system"):
            if body["kind"] == "APIService":
                await client.create(API_SERVICES, body)
        await make_node(client, "n-1", kubelet.port, zone="a")
        fields: Raw = {
            "bind_address": "127.0.0.1",
            "secure_port": 0,
            "metric_resolution": timedelta(milliseconds=100),
            "refresh_period": timedelta(milliseconds=100),
        }
        access = Access(
            server="",
            trust=ServerTrust(ca=Pem(data=kubelet_ca.certificate)),
            credentials=Static(bearer("kubelet-token")),
        )

        def start(port: int = 0) -> tuple[MetricsServer, Telemetry, "asyncio.Task[None]"]:
            telemetry = Telemetry()
            chosen = MetricsSettings(**fields | settings | {"secure_port": port})
            server = MetricsServer(client, CLOCK, chosen, telemetry, random.Random(1), access=access)
            return server, telemetry, group.create_task(server.run())

        server, telemetry, task = start()

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        async def restart() -> None:
            nonlocal task
            await end()
            world.server, world.telemetry, task = start(world.server.port)
            await until(lambda: _serves(world.server))

        @asynccontextmanager
        async def replica() -> AsyncIterator[MetricsWorld]:
            server, telemetry, running = start()
            try:
                await until(lambda: _serves(server))
                yield replace(world, server=server, telemetry=telemetry)
            finally:
                running.cancel()
                await asyncio.wait([running])

        world = MetricsWorld(cluster, client, server, front_ca, kubelet, telemetry, reviews, restart, replica)
        try:
            async with asyncio.timeout(30):
                while not (server.port and server.registration.problems == {} and await published(client)):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            yield world
        finally:
            await end()
            await client.close()


async def _serves(server: MetricsServer) -> bool:
    """Whether a server answers by now."""
    return server._serving


async def published(client: Client) -> bool:
    """Whether the server's CA is in its APIService."""
    service = await client.get_raw(API_SERVICES, "v1beta1.metrics.k8s.io")
    return bool(service["spec"].get("caBundle"))


def _proxies(ca: KeyPair) -> Raw:
    data = {
        "requestheader-client-ca-file": ca.certificate,
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    return {"metadata": {"name": "extension-apiserver-authentication"}, "data": data}


def resource_metrics(pods: dict[tuple[str, str], dict[str, float]], *, node_cpu: float, at: float) -> str:
    """Return what a kubelet answers: CPU seconds by container, a mebibyte each."""
    millis = round(at * 1000)
    lines = [f"node_cpu_usage_seconds_total {node_cpu} {millis}", f"node_memory_working_set_bytes 1e9 {millis}"]
    for (namespace, pod), containers in pods.items():
        for container, cpu in containers.items():
            labels = f'{{container="{container}",namespace="{namespace}",pod="{pod}"}}'
            lines.append(f"container_cpu_usage_seconds_total{labels} {cpu} {millis}")
            lines.append(f"container_memory_working_set_bytes{labels} 1048576 {millis}")
    return "\n".join(lines)
