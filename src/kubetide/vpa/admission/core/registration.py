"""The webhook configuration: whom the API server asks, about what, and for how long it waits.

Asking about every pod of a cluster would make the webhook a part of every start. So conditions let the API server know
to ask only about pods that have a controller and that a VPA may select, by namespace and labels; past a size that
an API server accepts gladly, by namespace alone, and then not at all. They are hints: the webhook decides again.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from kubetide.api.values.selectors import Operator, Selector
from kubetide.errors import SettingsError
from kubetide.vpa.admission.core.review import PROBE

CONFIGURATION = "vpa-webhook-config"
WITHOUT_CONDITIONS = "kubetide.io/without-conditions"
"""Annotation of the configuration: with conditions the webhook was not called, without them it was."""
PROBES_BEFORE_DOUBT = 3
PODS_HOOK = "vpa.k8s.io"
VPAS_HOOK = "vpas.vpa.k8s.io"
NAMESPACE_NAME = "kubernetes.io/metadata.name"

MOST_SELECTORS = 100
MOST_NAMESPACES = 500
LONGEST_EXPRESSION = 16_000


class ConditionTrial:
    """Whether conditions are used, found out by trying: an API server that cannot evaluate them asks about nothing.

    Three probes in vain with conditions -> try without. If that helps, they stay out, and an annotation shows it to the
    other replicas; if three more are in vain the fault lies elsewhere, and the conditions come back for good.
    """

    def __init__(self, *, wanted: bool) -> None:
        self.used = wanted
        self.convicted = False
        self._trying = wanted
        self._vain = 0

    def convict(self) -> None:
        """Leave conditions out for good."""
        self.used, self.convicted, self._trying = False, True, False

    def probed(self, patched: bool) -> None:
        """Take note of a probe."""
        if not self._trying:
            return
        self._vain = 0 if patched else self._vain + 1
        if patched and not self.used:
            self.convict()
        elif self._vain == PROBES_BEFORE_DOUBT and self.used:
            self.used, self._vain = False, 0
        elif self._vain == PROBES_BEFORE_DOUBT:
            self.used, self._trying = True, False


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """Where an API server that is given a URL instead of a Service finds the webhook."""

    host: str
    port: int | None = None
    """None: the port that is served."""

    @classmethod
    def parse(cls, address: str, port: str = "") -> "WebhookAddress":
        """Read a host or an `https://` URL without a path, as upstream takes it, with the port beside it or in it."""
        where = "flag --webhook-address"
        bare_ipv6 = address.count(":") > 1 and "[" not in address and "//" not in address
        try:
            url = urlsplit(
                f"https://[{address}]" if bare_ipv6 else address if "//" in address else f"https://{address}"
            )
            host, found = url.hostname, url.port
        except ValueError as error:
            raise SettingsError(f"cannot use {address!r}: {error}", field=where) from error
        if not host or url.scheme != "https" or url.path not in ("", "/") or url.query or url.username is not None:
            raise SettingsError(f"{address!r} is not a host or a URL such as https://192.0.2.1", field=where)
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise SettingsError(f"{port!r} is not a port", field="flag --webhook-port")
        return cls(host, int(port) if port else found)

    @property
    def is_ip(self) -> bool:
        """Whether a certificate names it as an address rather than as a DNS name."""
        try:
            ip_address(self.host)
        except ValueError:
            return False
        return True

    def url(self, served: int) -> str:
        """Return the URL for the API server."""
        return f"https://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port or served}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What goes into the configuration."""

    client: Mapping[str, Any]
    """`{"service": …}` or `{"url": …}`, without the CA."""
    ca_bundle: str = ""
    """Base64; empty for an in-process webhook."""
    timeout_seconds: int = 5
    fail_closed: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    only_namespace: str = ""
    ignored_namespaces: Sequence[str] = ()
    own_namespace: str = ""
    """Exempt for pods if `fail_closed`; otherwise pods there are like all others."""
    conditions: Sequence[Mapping[str, str]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def configuration(given: Registration) -> dict[str, Any]:
    """Return the MutatingWebhookConfiguration."""
    client = dict(given.client)
    if given.ca_bundle:
        client["caBundle"] = given.ca_bundle
    common: dict[str, Any] = {
        "clientConfig": client,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail" if given.fail_closed else "Ignore",
        "timeoutSeconds": given.timeout_seconds,
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "Never",
        "objectSelector": {},
    }
    pods = {
        "name": PODS_HOOK,
        **common,
        "rules": [_rule(["CREATE"], "", ["v1"], "pods")],
        # Only where a failure stops pods must the webhook be able to start without being asked.
        "namespaceSelector": _namespaces(given, exempt_own=given.fail_closed),
    }
    if given.conditions:
        pods["matchConditions"] = [dict(condition) for condition in given.conditions]
    vpas = {
        "name": VPAS_HOOK,
        **common,
        "rules": [_rule(["CREATE", "UPDATE"], "autoscaling.k8s.io", ["*"], "verticalpodautoscalers")],
        "namespaceSelector": _namespaces(given, exempt_own=False),
    }
    metadata: dict[str, Any] = {"name": CONFIGURATION}
    if given.labels:
        metadata["labels"] = dict(given.labels)
    if given.annotations:
        metadata["annotations"] = dict(given.annotations)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [pods, vpas],
    }


def made_by_another(current: Mapping[str, Any], *, known: str) -> bool:
    """Return whether somebody else has made the configuration anew since it was ours: another admission controller.

    Upstream's deletes and creates it when it starts, and has one webhook for pods and VPAs. What is merely edited has
    the same UID, and what another replica of kubetide made anew has both webhooks.
    """
    ours = any(hook.get("name") == VPAS_HOOK for hook in current.get("webhooks") or ())
    return bool(known) and current["metadata"].get("uid") != known and not ours


def conditions(selected: Iterable[tuple[str, Selector]]) -> list[dict[str, str]]:
    """Return the conditions under which the API server asks about a pod: namespaces and selectors of the VPAs."""
    pairs = sorted({(namespace, selector) for namespace, selector in selected}, key=lambda p: (p[0], str(p[1])))
    probe = f'has(object.metadata.labels) && "{PROBE}" in object.metadata.labels'
    controlled = (
        "has(object.metadata.ownerReferences) && "
        "object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller)"
    )
    result = [{"name": "has-a-controller", "expression": f"({probe}) || ({controlled})"}]
    chosen = _chosen(pairs)
    if chosen:
        result.append({"name": "selected-by-a-vpa", "expression": f"({probe}) || {chosen}"})
    return result


def parse_labels(text: str) -> dict[str, str]:
    """Read `key:value,key:value`."""
    pairs = (entry.partition(":") for entry in text.split(",") if entry.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _chosen(pairs: Sequence[tuple[str, Selector]]) -> str:
    terms = [term for namespace, selector in pairs if (term := _term(namespace, selector))]
    if not terms:
        return "false"
    expression = " || ".join(terms)
    if len(terms) <= MOST_SELECTORS and len(expression) <= LONGEST_EXPRESSION:
        return expression
    namespaces = sorted({namespace for namespace, _ in pairs})
    expression = f"request.namespace in {json.dumps(namespaces)}"
    return expression if len(namespaces) <= MOST_NAMESPACES and len(expression) <= LONGEST_EXPRESSION else ""


def _term(namespace: str, selector: Selector) -> str:
    """Return the condition of one VPA; requirements other than equality are left to the webhook."""
    if selector.nothing:
        return ""
    parts = [f"request.namespace == {json.dumps(namespace)}"]
    labels = [(r.key, r.values[0]) for r in selector.requirements if r.operator is Operator.EQUALS]
    if labels:
        parts.append("has(object.metadata.labels)")
    for key, value in labels:
        at = f"object.metadata.labels[{json.dumps(key)}]"
        parts.append(f"{json.dumps(key)} in object.metadata.labels && {at} == {json.dumps(value)}")
    return f"({' && '.join(parts)})"


def _rule(operations: list[str], group: str, versions: list[str], resource: str) -> dict[str, Any]:
    return {
        "operations": operations,
        "apiGroups": [group],
        "apiVersions": versions,
        "resources": [resource],
        "scope": "*",
    }


def _namespaces(given: Registration, *, exempt_own: bool) -> dict[str, Any]:
    if given.only_namespace:
        return {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "In", "values": [given.only_namespace]}]}
    left_out = {*given.ignored_namespaces, *([given.own_namespace] if exempt_own and given.own_namespace else ())}
    if not left_out:
        return {}
    return {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "NotIn", "values": sorted(left_out)}]}


def probe_namespace(wanted: str, *, only: str, exempt: Collection[str]) -> str | None:
    """Return where a pod is made to see whether the webhook is called; None where it would not be called anyway.

    The namespaces are those of the configuration: a probe outside of them would blame a webhook that works.
    """
    if only:
        return only
    return None if wanted in exempt else wanted
