"""Finds the Prometheus of a cluster, and asks it through the API server: nothing has to be forwarded.

Thanos, VictoriaMetrics and Mimir speak the same API, below a path of their own. A Service counts by its name or label.
Of several a Prometheus is taken before the others, then the first by namespace and name, so that the choice does not
depend on the order of a list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.values.codec import decode
from kubetide.errors import InvalidInput, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, Forbidden
from kubetide.stats.prometheus_ranges import PrometheusAnswer

_LABEL = "app.kubernetes.io/name"
LONGEST_ADDRESS = 6000
"""Characters of a question that is asked by GET: gateways before an API server take 8 KiB of a request's first line."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """A server that speaks Prometheus' API: how its Service is known, and where the API is."""

    names: tuple[str, ...]
    """Of the Service; the first is also the value of its name label."""
    ports: tuple[int, ...]
    prefix: str = ""
    component: str = ""
    """The component label, where other Services carry the same name label."""


FLAVOURS = (
    Flavour(
        (
            "prometheus",
            "prometheus-operated",
            "prometheus-k8s",
            "prometheus-server",
            "kube-prometheus-stack-prometheus",
        ),
        (9090,),
    ),
    Flavour(("thanos-query", "thanos-querier", "thanos-query-frontend"), (9090, 10902)),
    Flavour(("vmsingle", "vmsingle-victoria-metrics", "victoria-metrics", "victoria-metrics-single"), (8428, 8429)),
    Flavour(("vmselect", "vmselect-victoria-metrics"), (8481,), "/select/0/prometheus"),
    Flavour(("mimir", "mimir-query-frontend", "mimir-nginx", "mimir-gateway"), (8080, 80), "/prometheus", "gateway"),
)
"""In the order in which they are preferred: the nearest to the samples first."""


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
    """Prometheus behind the API server's proxy for services.

    To the API server a GET is the verb `get` of `services/proxy` and a POST is `create`. Whoever may only read has the
    first, so a question goes by GET where it fits an address, and the other way where that one is forbidden.
    """

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self.path = path
        self._forbidden: set[str] = set()

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send parameters, in whichever way is allowed, and return the body of the answer."""
        ways = ["GET", "POST"] if len(urlencode(form)) <= LONGEST_ADDRESS else ["POST", "GET"]
        first, second = sorted(ways, key=lambda way: way in self._forbidden)
        try:
            return await self._send(first, path, form)
        except Forbidden as error:
            self._forbidden.add(first)
            try:
                return await self._send(second, path, form)
            except Forbidden:
                raise PrometheusAnswer(f"status 403: {error}") from error

    async def get(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send parameters by GET and return the body of the answer."""
        try:
            return await self._send("GET", path, form)
        except Forbidden as error:
            raise PrometheusAnswer(f"status 403: {error}") from error

    async def _send(self, method: str, path: str, form: Mapping[str, str]) -> bytes:
        try:
            if method == "GET":
                response = await self._client.request(method, self.path + path, query=form)
            else:
                body, form_type = urlencode(form).encode(), "application/x-www-form-urlencoded"
                response = await self._client.request(method, self.path + path, body=body, content_type=form_type)
        except Forbidden:
            raise
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                raise Unavailable(f"Prometheus at {self.path} answers {error.status}: {error}") from error
            raise PrometheusAnswer(f"status {error.status}: {error}") from error
        return response.body


async def find_prometheus(client: Client) -> ProxiedPrometheus:
    """Return the Prometheus of a cluster."""
    path = await find_service(client, FLAVOURS)
    if path is None:
        raise InvalidInput("no Service of the cluster is Prometheus: give its URL", field="--prometheus")
    return ProxiedPrometheus(client, path)


async def find_service(client: Client, flavours: Sequence[Flavour]) -> str | None:
    """Return the path below which the API server reaches the first Service of some kinds, None if there is none."""
    answer = await client.request("GET", "/api/v1/services")
    listed = decode(answer.body, _Services, what="list of Services")
    found = sorted(
        (place, service.metadata.namespace, service.metadata.name, _port(service, flavour))
        for service in listed.items
        for place, flavour in enumerate(flavours)
        if _is(flavour, service)
    )
    if not found:
        return None
    place, namespace, name, port = found[0]
    return f"/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy{flavours[place].prefix}"


def _is(flavour: Flavour, service: _Service) -> bool:
    labels = service.metadata.labels or {}
    labelled = labels.get(_LABEL) == flavour.names[0]
    if flavour.component:
        labelled = labelled and labels.get("app.kubernetes.io/component") == flavour.component
    return service.metadata.name in flavour.names or labelled


def _port(service: _Service, flavour: Flavour) -> int:
    ports = [port.port for port in service.spec.ports]
    return next((port for port in flavour.ports if port in ports), ports[0] if ports else flavour.ports[0])
