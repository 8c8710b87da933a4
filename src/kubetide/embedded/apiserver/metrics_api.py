"""The metrics APIs, served from a provider: metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io.

A provider knows the numbers (the simulation does); paths, lists, tables and both versions of custom metrics are
handled here. Without a provider the groups do not exist, as on a cluster without a metrics server.
"""

from datetime import datetime
from functools import partial
from typing import Protocol

from kubetide.api.objects.metrics import UsagePages
from kubetide.api.objects.metrics_answers import usage_table, value_in_v1beta1
from kubetide.embedded.apiserver.discovery import Listed
from kubetide.embedded.apiserver.rest.render import answer_raw, wanted_form
from kubetide.embedded.apiserver.rest.requests import Answer, DocumentAnswer, Request, RequestTarget
from kubetide.embedded.apiserver.rest.status import Raw, method_not_allowed, no_such_path, not_found

METRICS = "metrics.k8s.io"
CUSTOM = "custom.metrics.k8s.io"
EXTERNAL = "external.metrics.k8s.io"
GROUPS = (METRICS, CUSTOM, EXTERNAL)

_POD_LIST_HEAD = b'{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":'


class MetricsProvider(Protocol):
    """Where the numbers come from. Selectors are texts; empty arguments mean everything."""

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        """Return PodMetrics objects."""
        ...

    def pod_items(self, namespace: str = "") -> bytes:
        """Return the PodMetrics of a namespace, or of all, as a JSON list."""
        ...

    def pod_columns(self, namespace: str = "") -> UsagePages | None:
        """Return what `pod_items` says as columns, if that is how it is known."""
        ...

    def node_metrics(self, selector: str = "", name: str = "") -> list[Raw]:
        """Return NodeMetrics objects."""
        ...

    def custom(self, namespace: str, resource: str, name: str, metric: str, selector: str = "") -> list[Raw]:
        """Return MetricValue objects (v1beta2) of one object, or of all with the name `*`."""
        ...

    def external(self, namespace: str, metric: str, selector: str = "") -> list[Raw]:
        """Return ExternalMetricValue objects."""
        ...

    def custom_names(self) -> list[tuple[str, str]]:
        """Return the (resource, metric) pairs there are."""
        ...

    def external_names(self) -> list[str]:
        """Return the external metrics there are."""
        ...


def listed(provider: MetricsProvider) -> dict[str, dict[str, list[Listed]]]:
    """Return what discovery says about the three groups."""
    verbs = ("get", "list")
    usage = [
        Listed("nodes", "NodeMetrics", False, verbs, METRICS, "v1beta1"),
        Listed("pods", "PodMetrics", True, verbs, METRICS, "v1beta1"),
    ]
    custom = {
        version: [
            Listed(f"{resource}/{metric}", "MetricValueList", True, ("get",), CUSTOM, version)
            for resource, metric in provider.custom_names()
        ]
        for version in ("v1beta2", "v1beta1")
    }
    external = [
        Listed(metric, "ExternalMetricValueList", True, ("get",), EXTERNAL, "v1beta1")
        for metric in provider.external_names()
    ]
    return {METRICS: {"v1beta1": usage}, CUSTOM: custom, EXTERNAL: {"v1beta1": external}}


def answer(provider: MetricsProvider, request: Request, target: RequestTarget, now: datetime) -> Answer:
    """Answer a read of one of the metrics APIs."""
    if request.method not in ("GET", "HEAD"):
        raise method_not_allowed(target.group, target.plural, request.method.lower())
    match target.group:
        case "metrics.k8s.io":
            return _usage(provider, request, target)
        case "custom.metrics.k8s.io":
            return _custom(provider, request, target)
    return _external(provider, request, target)


def _usage(provider: MetricsProvider, request: Request, target: RequestTarget) -> Answer:
    selector = request.query.get("labelSelector", "")
    form = wanted_form(request.accept)
    if target.plural == "pods" and form != "table" and not (target.name or request.query):
        # What autoscalers ask for again and again: the list is there already, as columns or as the bytes of the answer.
        pages = provider.pod_columns(target.namespace)
        if pages is not None:
            return DocumentAnswer(200, b"", document=pages, encode=partial(_pod_list, pages))
        return Answer(200, _POD_LIST_HEAD + provider.pod_items(target.namespace) + b"}")
    if target.plural == "pods":
        items, kind = provider.pod_metrics(target.namespace, selector, target.name), "PodMetrics"
    elif target.plural == "nodes":
        items, kind = provider.node_metrics(selector, target.name), "NodeMetrics"
    else:
        raise no_such_path()
    wanted = request.query.get("fieldSelector", "")
    if wanted.startswith("metadata.name="):
        items = [item for item in items if item["metadata"]["name"] == wanted.partition("=")[2].lstrip("=")]
    if form == "table":
        return answer_raw(usage_table(items))
    if target.name:
        if not items:
            raise not_found(METRICS, target.plural, target.name)
        return answer_raw({"kind": kind, "apiVersion": f"{METRICS}/v1beta1", **items[0]})
    return answer_raw({"kind": f"{kind}List", "apiVersion": f"{METRICS}/v1beta1", "metadata": {}, "items": items})


def _pod_list(pages: UsagePages) -> bytes:
    items = b",".join([page.items()[1:-1] for page in pages.values()])
    return b"%s[%s]}" % (_POD_LIST_HEAD, items)


def _custom(provider: MetricsProvider, request: Request, target: RequestTarget) -> Answer:
    """`…/namespaces/NS/RESOURCE/NAME/METRIC`, or `…/namespaces/NS/metrics/METRIC` about the namespace itself."""
    if target.version not in ("v1beta1", "v1beta2"):
        raise no_such_path()
    resource, name, metric = target.plural, target.name, target.subresource
    namespace = target.namespace
    if resource == "metrics" and not metric:
        resource, name, metric = "namespaces", namespace, name
    if not metric:
        raise no_such_path()
    # `labelSelector` chooses objects, `metricLabelSelector` series; a provider knows one value per object.
    items = provider.custom(namespace, resource, name, metric, request.query.get("labelSelector", ""))
    if not items and name != "*":
        raise not_found(CUSTOM, metric, name)
    if target.version == "v1beta1":
        items = [value_in_v1beta1(item) for item in items]
    return answer_raw(
        {"kind": "MetricValueList", "apiVersion": f"{CUSTOM}/{target.version}", "metadata": {}, "items": items}
    )


def _external(provider: MetricsProvider, request: Request, target: RequestTarget) -> Answer:
    if target.version != "v1beta1" or target.name:
        raise no_such_path()
    items = provider.external(target.namespace, target.plural, request.query.get("labelSelector", ""))
    return answer_raw(
        {"kind": "ExternalMetricValueList", "apiVersion": f"{EXTERNAL}/v1beta1", "metadata": {}, "items": items}
    )
