"""What components made themselves while they ran, and whether it may go: registrations, Leases, certificates.

Helm and `kubectl delete` remove what they applied. What is left behind would not only lie around: a webhook without a
server delays or stops the creation of pods. Nothing is removed that anybody still uses: a registration goes when the
Service it points to is gone, a Lease when it has run out, and certificates when their component is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS, LEASES, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from kubetide.install.workloads import account

Raw = dict[str, Any]
OWN = ""
"""The namespace in which the components ran."""
CLUSTER_WIDE = "-"


@dataclass(frozen=True, slots=True)
class Made:
    """An object that a component makes."""

    component: str
    resource: Resource[Any]
    name: str
    namespace: str = OWN

    def place(self, namespace: str) -> str:
        """Return its namespace, given that of the components; empty where it has none."""
        if self.namespace == CLUSTER_WIDE:
            return ""
        return self.namespace or namespace


MADE = (
    Made("admission", MUTATING_WEBHOOKS, "vpa-webhook-config", CLUSTER_WIDE),
    Made("admission", SECRETS, "vpa-tls-certs"),
    Made("admission", LEASES, "vpa-admission-controller"),
    Made("colocation", MUTATING_WEBHOOKS, "kubetide-colocation", CLUSTER_WIDE),
    Made("colocation", VALIDATING_WEBHOOKS, "kubetide-colocation", CLUSTER_WIDE),
    Made("colocation", SECRETS, "kubetide-colocation-certs"),
    Made("colocation", LEASES, "kubetide-colocation-profiles"),
    Made("metrics", SECRETS, "kubetide-metrics-certs"),
    Made("metrics", CONFIG_MAPS, "kubetide-metrics-ca"),
    Made("hpa", LEASES, "kubetide-hpa", "kube-system"),
    Made("policy", LEASES, "kubetide-policy", "kube-system"),
    Made("plan", LEASES, "kubetide-plan", "kube-system"),
    Made("recommender", LEASES, "vpa-recommender-lease", "kube-system"),
    Made("updater", LEASES, "vpa-updater", "kube-system"),
    Made("slo", LEASES, "koordinator-manager", "koordinator-system"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What is still there: workloads and Services by namespace and name."""

    workloads: frozenset[ObjectKey]
    services: frozenset[ObjectKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that a component made, and why it stays; empty: it may go."""

    made: Made
    namespace: str
    kept: str = ""


def judge(made: Made, found: Raw, *, namespace: str, installed: Installed, now: datetime) -> Leftover:
    """Decide whether an object may go; `namespace` is where the components ran."""
    kept = ""
    if made.resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        kept = _served(found, installed)
    elif ObjectKey(namespace, account(made.component)) in installed.workloads:
        kept = f"{account(made.component)} is still installed"
    elif made.resource is LEASES:
        kept = _held(found.get("spec") or {}, now)
    return Leftover(made=made, namespace=made.place(namespace), kept=kept)


def _served(registration: Raw, installed: Installed) -> str:
    for webhook in registration.get("webhooks") or ():
        service = (webhook.get("clientConfig") or {}).get("service")
        if service is None:
            return "it is registered by address: whether anybody answers there is not known"
        if ObjectKey(service["namespace"], service["name"]) in installed.services:
            return f"the Service {service['namespace']}/{service['name']} is still there"
    return ""


def _held(spec: Mapping[str, Any], now: datetime) -> str:
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return ""
    until = datetime.fromisoformat(renewed) + timedelta(seconds=spec.get("leaseDurationSeconds") or 0)
    return f"{holder} holds it" if until > now else ""
