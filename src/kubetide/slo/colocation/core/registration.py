"""How the API server comes to ask about pods: one mutating and one validating configuration.

Pods of kubetide's own namespace are left out: a webhook that refuses pods while it is down must be able to start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]

MUTATING = "kubetide-colocation"
VALIDATING = "kubetide-colocation"
MUTATE_PATH = "/mutate-pod"
VALIDATE_PATH = "/validate-pod"
RESERVATION_PATH = "/mutate-reservation"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What goes into the configurations."""

    client: Mapping[str, Mapping[str, Any]]
    """By path: `{"service": …}` or `{"url": …}`, with the CA where there is one."""
    own_namespace: str
    fail_closed: bool = True
    timeout_seconds: int = 5


def mutating(given: Registration, *, pods: bool = True, reservations: bool = False) -> Raw:
    """Return the MutatingWebhookConfiguration, for pods and, where asked for, for Reservations."""
    hooks = []
    if pods:
        hooks.append(_hook(given, "mpod-create.koordinator.sh", MUTATE_PATH, ["CREATE"]))
    if reservations:
        hook = _hook(given, "mreservation.koordinator.sh", RESERVATION_PATH, ["CREATE"], _RESERVATIONS)
        # Reservations belong to no namespace, so there is none to leave out.
        hooks.append({**hook, "namespaceSelector": {}})
    never = [{**hook, "reinvocationPolicy": "Never"} for hook in hooks]
    return _configuration("MutatingWebhookConfiguration", MUTATING, *never)


def validating(given: Registration) -> Raw:
    """Return the ValidatingWebhookConfiguration."""
    hook = _hook(given, "vpod.koordinator.sh", VALIDATE_PATH, ["CREATE", "UPDATE"])
    return _configuration("ValidatingWebhookConfiguration", VALIDATING, hook)


def _configuration(kind: str, name: str, *hooks: Raw) -> Raw:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }


_PODS: Raw = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
_RESERVATIONS: Raw = {
    "apiGroups": ["scheduling.koordinator.sh"],
    "apiVersions": ["v1alpha1"],
    "resources": ["reservations"],
}


def _hook(given: Registration, name: str, path: str, operations: list[str], about: Raw = _PODS) -> Raw:
    others = {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": [given.own_namespace]}
    rule = {**about, "operations": operations, "scope": "*"}
    return {
        "name": name,
        "clientConfig": dict(given.client[path]),
        "rules": [rule],
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "failurePolicy": "Fail" if given.fail_closed else "Ignore",
        "timeoutSeconds": given.timeout_seconds,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [others]},
        "objectSelector": {},
    }
