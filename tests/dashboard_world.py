"""A small cluster behind a real socket and a dashboard of it, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from embedded_server import Running, running
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, NODES, PODS
from kubetide.cli.dashboard.command import Options, served
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client

PATIENCE = 60
HOSTILE = "<img src=x onerror=alert(1)>\"'{{7*7}}"


def template(app: str) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "128Mi"}}}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container]}}


@asynccontextmanager
async def cluster() -> AsyncIterator[Running]:
    """Serve a deployment with an autoscaler and a pod, and a node; some texts in them are hostile."""
    async with running() as server:
        client = Client(server.transport(), clock=SystemClock())
        for name in ("shop", "other"):
            body = msgspec.json.encode({"metadata": {"name": name}})
            await client.request("POST", "/api/v1/namespaces", body=body)
        status = {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "4", "memory": "8Gi"}}
        ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": HOSTILE}
        await client.create(NODES, {"metadata": {"name": "node-1"}, "status": {**status, "conditions": [ready]}})
        for namespace in ("shop", "other"):
            spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template("web")}
            await client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, namespace=namespace)
        scaler = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [
                {
                    "type": "External",
                    "external": {"metric": {"name": HOSTILE}, "target": {"type": "Value", "value": "3"}},
                }
            ],
        }
        await client.create(HPAS, {"metadata": {"name": "web"}, "spec": scaler}, namespace="shop")
        pod = {"metadata": {"name": "web-1a-x", "labels": {"app": "web"}}, "spec": template("web")["spec"]}
        await client.create(PODS, pod, namespace="shop")
        await client.close()
        yield server


@asynccontextmanager
async def dashboard(server: Running, folder: Path, **more: Any) -> AsyncIterator[str]:
    file = folder / "config"
    file.write_text(server.identity.kubeconfig(server.serving.url))
    file.chmod(0o600)
    options = Options(kubeconfig=file, port=0, interval=timedelta(milliseconds=200), **more)
    async with asyncio.timeout(PATIENCE), served(options) as url:
        yield url.rstrip("/")


@asynccontextmanager
async def visitor(**headers: str) -> AsyncIterator[aiohttp.ClientSession]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, headers=headers) as session:
        yield session


async def account(server: Running, name: str, *, rules: list[dict[str, Any]], namespace: str = "") -> str:
    """Make a service account that may do what the rules say, in one namespace or in all; return a token of it."""
    client = Client(server.transport(), clock=SystemClock())
    group = "/apis/rbac.authorization.k8s.io/v1" + (f"/namespaces/{namespace}" if namespace else "")
    kind = "Role" if namespace else "ClusterRole"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}

    async def post(path: str, body: dict[str, Any]) -> Any:
        answer = await client.request("POST", path, body=msgspec.json.encode({"metadata": {"name": name}, **body}))
        return msgspec.json.decode(answer.body)

    await post("/api/v1/namespaces/default/serviceaccounts", {})
    await post(f"{group}/{kind.lower()}s", {"rules": rules})
    await post(f"{group}/{kind.lower()}bindings", {"roleRef": ref, "subjects": [subject]})
    made = await post(f"/api/v1/namespaces/default/serviceaccounts/{name}/token", {"spec": {}})
    await client.close()
    token: str = made["status"]["token"]
    return token


EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
OWN = {"Sec-Fetch-Site": "same-origin"}
