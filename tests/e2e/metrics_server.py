"""The three metrics APIs behind the aggregation layer of a real API server, with values that a test sets.

Loopback addresses are refused in Endpoints, so each APIService points to a Service of type ExternalName `localhost`;
the certificate is for the name of that Service, signed by a CA whose bundle the APIService carries.
"""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kubetide.api.objects.scheme import API_SERVICES, SERVICES
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.kube.client.client import Client
from kubetide.kube.client.tls import Certificate, Pem, load_identity
from kubetide.kube.listener import listening

NAMESPACE = "default"
KINDS = {
    "metrics.k8s.io": "PodMetricsList",
    "custom.metrics.k8s.io": "MetricValueList",
    "external.metrics.k8s.io": "ExternalMetricValueList",
}
GROUPS = {
    "metrics.k8s.io": "v1beta1",
    "custom.metrics.k8s.io": "v1beta2",
    "external.metrics.k8s.io": "v1beta1",
}


class MetricsServer:
    """Answers by path; what is not set is an empty list."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.port = 0
        self._ca = make_ca("metrics-ca", now=SystemClock().now())

    @asynccontextmanager
    async def serving(self, client: Client) -> AsyncIterator["MetricsServer"]:
        """Serve, and be registered with the API server, for as long as the block lasts."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        async with listening(runner, "127.0.0.1", 0, tls=self._context()) as self.port:
            await self._register(client)
            try:
                yield self
            finally:
                await self._unregister(client)

    def _context(self) -> ssl.SSLContext:
        names = [f"{_service(group)}.{NAMESPACE}.svc" for group in GROUPS]
        pair = issue(self._ca, "metrics", now=SystemClock().now(), dns_names=names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pems = Certificate(certificate=Pem(data=pair.certificate), key=Pem(data=pair.key))
        load_identity(context, pems)
        return context

    async def _register(self, client: Client) -> None:
        for group, version in GROUPS.items():
            service = {
                "metadata": {"name": _service(group), "namespace": NAMESPACE},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }
            await client.create(SERVICES, service, namespace=NAMESPACE)
            registration = {
                "metadata": {"name": f"{version}.{group}"},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "caBundle": base64.b64encode(self._ca.certificate.encode()).decode(),
                    "service": {"name": _service(group), "namespace": NAMESPACE, "port": self.port},
                },
            }
            await client.create(API_SERVICES, registration)

    async def _unregister(self, client: Client) -> None:
        for group, version in GROUPS.items():
            await client.delete(API_SERVICES, f"{version}.{group}")
            await client.delete(SERVICES, _service(group), namespace=NAMESPACE)

    async def _handle(self, request: web.Request) -> web.Response:
        parts = request.path.strip("/").split("/")
        if len(parts) < 3:
            return web.Response(status=404)
        group, version = parts[1], parts[2]
        if len(parts) == 3:
            pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}
            listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
            return web.json_response({**listed, "resources": [pods]})
        self.asked.append(request.path_qs)
        items = self.answers.get(request.path, [])
        kind = KINDS.get(group, "List")
        return web.json_response({"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}, "items": items})


def _service(group: str) -> str:
    return group.replace(".", "-")
