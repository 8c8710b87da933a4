"""Admission webhooks and aggregated APIs over HTTPS: what the API server calls, and what the answers do."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from embedded_server import Running, running
from kubetide.api.objects.admission import review_response
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import KeyPair, issue, make_ca
from kubetide.kube.listener import listening

Raw = dict[str, Any]
CONFIGS = "/api/v1/namespaces/default/configmaps"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def https(folder: Path, handler: Handler, *names: str) -> AsyncIterator[tuple[int, KeyPair]]:
    """Serve a handler on a loopback port under a CA of its own."""
    now = SystemClock().now()
    ca = make_ca("webhook-ca", now=now)
    pair = issue(ca, "webhook", now=now, addresses=("127.0.0.1",), dns_names=("localhost", *names))
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_text(pair.certificate)
    key.write_text(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    async with listening(runner, "127.0.0.1", 0, tls=context) as port:
        yield port, ca


def configuration(port: int, ca: KeyPair, *, mutating: bool = True, **more: Any) -> Raw:
    bundle = base64.b64encode(ca.certificate.encode()).decode()
    hook = {
        "name": "test.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/review", "caBundle": bundle},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        **more,
    }
    kind = "Mutating" if mutating else "Validating"
    return {"kind": f"{kind}WebhookConfiguration", "metadata": {"name": "test"}, "webhooks": [hook]}


async def call(server: Running, method: str, path: str, body: Raw | None = None) -> tuple[int, Raw]:
    transport = server.transport()
    try:
        answer = await transport.request(method, path, body=json.dumps(body).encode() if body is not None else None)
        return answer.status, json.loads(answer.body)
    finally:
        await transport.close()


async def install(server: Running, config: Raw) -> None:
    plural = config["kind"].lower() + "s"
    status, body = await call(server, "POST", f"{HOOKS}/{plural}", config)
    assert status == 201, body


async def stamp(request: web.Request) -> web.StreamResponse:
    """Add a datum, or refuse objects named `bad`."""
    review = (await request.json())["request"]
    if review["name"] == "bad":
        return web.json_response(review_response(review["uid"], allowed=False, message="not this one"))
    patch = [{"op": "add", "path": "/data", "value": {"stamped": review["operation"]}}]
    return web.json_response(review_response(review["uid"], patch=patch, warnings=["stamped it"]))


async def test_a_mutating_webhook_changes_what_is_stored(tmp_path: Path) -> None:
    async with running() as server, https(tmp_path, stamp) as (port, ca):
        await install(server, configuration(port, ca))
        status, made = await call(server, "POST", CONFIGS, {"metadata": {"name": "one"}})
        assert (status, made["data"]) == (201, {"stamped": "CREATE"})
        status, body = await call(server, "POST", CONFIGS, {"metadata": {"name": "bad"}})
        assert status == 403
        assert body["message"] == 'admission webhook "test.example.com" denied the request: not this one'


@pytest.mark.parametrize(("policy", "expected"), [("Fail", 500), ("Ignore", 201)])
@pytest.mark.parametrize("trouble", ["error", "nonsense", "hangs", "another-uid", "untrusted", "nobody"])
async def test_a_webhook_in_trouble_counts_as_its_failure_policy_says(
    tmp_path: Path, trouble: str, policy: str, expected: int
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        match trouble:
            case "error":
                return web.Response(status=503, text="not today")
            case "nonsense":
                return web.Response(text="{nonsense")
            case "hangs":
                await asyncio.sleep(30)
        return web.json_response(review_response("some-other-uid"))

    async with running() as server, https(tmp_path, handler) as (port, ca):
        if trouble == "untrusted":
            ca = make_ca("another", now=SystemClock().now())
        if trouble == "nobody":
            port = 1
        await install(server, configuration(port, ca, failurePolicy=policy))
        status, body = await call(server, "POST", CONFIGS, {"metadata": {"name": "one"}})
        assert status == expected, body
        if policy == "Fail":
            assert 'failed calling webhook "test.example.com"' in body["message"]


async def test_a_webhook_behind_a_service_is_reached_by_its_cluster_name(tmp_path: Path) -> None:
    async with running() as server, https(tmp_path, stamp, "hook.default.svc") as (port, ca):
        service = {"metadata": {"name": "hook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        assert (await call(server, "POST", "/api/v1/namespaces/default/services", service))[0] == 201
        config = configuration(port, ca)
        reference = {"name": "hook", "namespace": "default", "port": port, "path": "/review"}
        bundle = config["webhooks"][0]["clientConfig"]["caBundle"]
        config["webhooks"][0]["clientConfig"] = {"service": reference, "caBundle": bundle}
        await install(server, config)
        _, made = await call(server, "POST", CONFIGS, {"metadata": {"name": "one"}})
        assert made["data"] == {"stamped": "CREATE"}


async def metrics(request: web.Request) -> web.StreamResponse:
    """An aggregated metrics server with one node."""
    if request.path.endswith("/v1beta1"):
        resources = [{"name": "nodes", "kind": "NodeMetrics", "namespaced": False, "verbs": ["get", "list"]}]
        return web.json_response({"kind": "APIResourceList", "resources": resources})
    user = request.headers.get("X-Remote-User", "")
    return web.json_response({"kind": "NodeMetricsList", "items": [{"metadata": {"name": user}}]})


async def test_an_aggregated_api_is_answered_by_the_server_behind_it(tmp_path: Path) -> None:
    async with running() as server, https(tmp_path, metrics, "metrics.kube-system.svc") as (port, ca):
        service = {"metadata": {"name": "metrics"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        assert (await call(server, "POST", "/api/v1/namespaces/kube-system/services", service))[0] == 201
        registration = {
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": "metrics", "namespace": "kube-system", "port": port},
                "caBundle": base64.b64encode(ca.certificate.encode()).decode(),
            },
        }
        status, body = await call(server, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", registration)
        assert status == 201, body
        status, body = await call(server, "GET", "/apis/metrics.k8s.io/v1beta1/nodes")
        assert (status, body["items"][0]["metadata"]["name"]) == (200, "kubernetes-admin")
        _, groups = await call(server, "GET", "/apis")
        assert "metrics.k8s.io" in [group["name"] for group in groups["groups"]]


async def test_an_aggregated_api_that_is_down_is_unavailable_and_breaks_nothing_else(tmp_path: Path) -> None:
    async with running() as server:
        registration = {
            "metadata": {"name": "v1.away.example.com"},
            "spec": {"group": "away.example.com", "version": "v1", "service": {"name": "no", "namespace": "default"}},
        }
        assert (await call(server, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", registration))[0] == 201
        status, body = await call(server, "GET", "/apis/away.example.com/v1/things")
        assert (status, body["reason"]) == (503, "ServiceUnavailable")
        assert (await call(server, "GET", "/apis"))[0] == 200
