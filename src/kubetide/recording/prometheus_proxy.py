"""Finds the Prometheus of a cluster, and asks it through the API server: nothing has to be forwarded.

A Service counts as Prometheus by its name or label. Of several the first by namespace and name is taken, so that the
choice does not depend on the order of a list.
"""

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.values.codec import decode
from kubetide.errors import InvalidInput, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.vpa.recommender.core.history.prometheus_queries import PrometheusAnswer

NAMES = ("prometheus-operated", "prometheus-k8s", "prometheus-server", "prometheus", "kube-prometheus-stack-prometheus")
_LABEL = "app.kubernetes.io/name"
_PORT = 9090


class _Port(msgspec.Struct, frozen=True):
    port: int = 0


class _Spec(msgspec.Struct, frozen=True):
    ports: list[_Port] = []


class _Service(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


class _Services(msgspec.Struct, frozen=True):
    items: list[_Service] = []


class ProxiedPrometheus:
    """Prometheus behind the API server's proxy for services."""

    def __init__(self, client: Client, namespace: str, service: str, port: int) -> None:
        self._client = client
        self.path = f"/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy"

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send a form and return the body of the answer."""
        try:
            response = await self._client.request(
                "POST",
                self.path + path,
                body=urlencode(form).encode(),
                content_type="application/x-www-form-urlencoded",
            )
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                raise Unavailable(f"Prometheus at {self.path} answers {error.status}: {error}") from error
            raise PrometheusAnswer(f"status {error.status}: {error}") from error
        return response.body


async def find_prometheus(client: Client) -> ProxiedPrometheus:
    """Return the Prometheus of a cluster."""
    answer = await client.request("GET", "/api/v1/services")
    listed = decode(answer.body, _Services, what="list of Services")
    found = sorted(
        (service for service in listed.items if _is_prometheus(service)),
        key=lambda service: (service.metadata.namespace, service.metadata.name),
    )
    if not found:
        raise InvalidInput("no Service of the cluster is Prometheus: give its URL", field="--prometheus")
    service = found[0]
    return ProxiedPrometheus(client, service.metadata.namespace, service.metadata.name, _port(service))


def _is_prometheus(service: _Service) -> bool:
    return service.metadata.name in NAMES or (service.metadata.labels or {}).get(_LABEL) == "prometheus"


def _port(service: _Service) -> int:
    ports = [port.port for port in service.spec.ports]
    return _PORT if _PORT in ports or not ports else ports[0]
