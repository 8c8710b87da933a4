"""Webhook configurations read: which hook has a say about which request."""

from dataclasses import dataclass
from typing import Any

from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import LabelSelector, Selector, selector_from
from kubetide.embedded.apiserver.admission.calls import AdmissionCall
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.errors import InvalidInput

_EXEMPT = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_EVERYTHING = Selector()


@dataclass(frozen=True, slots=True)
class WebhookRule:
    """Operations on resources."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[str, ...]
    scope: str

    def matches(self, call: AdmissionCall, resource: ApiResource) -> bool:
        if not self.operations & {"*", call.operation}:
            return False
        if not self.groups & {"*", resource.group} or not self.versions & {"*", resource.version}:
            return False
        if self.scope == "Namespaced" and not resource.namespaced:
            return False
        if self.scope == "Cluster" and resource.namespaced:
            return False
        return any(_covers(pattern, resource.plural, call.subresource) for pattern in self.resources)


def _covers(pattern: str, plural: str, subresource: str) -> bool:
    wanted, slash, wanted_sub = pattern.partition("/")
    if wanted not in ("*", plural):
        return False
    if not slash:
        return not subresource
    return wanted_sub == "*" or wanted_sub == subresource


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of one configuration."""

    name: str
    rules: tuple[WebhookRule, ...]
    namespaces: Selector
    objects: Selector
    fails_closed: bool
    timeout: float
    reinvoke: bool
    exact: bool
    client: Raw
    conditions: tuple[Raw, ...]
    quiet: bool
    """Whether a dry run may call it."""

    def matched(self, call: AdmissionCall, equivalents: list[ApiResource]) -> ApiResource | None:
        """Return the version of the resource under which this hook wants to see the request, if any."""
        candidates = [call.resource] if self.exact else [call.resource, *equivalents]
        for resource in candidates:
            if any(rule.matches(call, resource) for rule in self.rules):
                return resource
        return None

    def selects(self, call: AdmissionCall, namespace_labels: dict[str, str] | None) -> bool:
        """Whether the selectors take the namespace and the object, as it is or as it was."""
        if namespace_labels is not None and not self.namespaces.matches(namespace_labels):
            return False
        if self.objects.is_everything:
            return True
        return any(obj is not None and self.objects.matches(_labels(obj)) for obj in (call.obj, call.old))


def _labels(obj: Raw) -> dict[str, str]:
    labels = (obj.get("metadata") or {}).get("labels")
    return labels if isinstance(labels, dict) else {}


def is_exempt(resource: ApiResource) -> bool:
    """Webhooks have no say about webhooks: nobody could repair them otherwise."""
    return resource.plural in _EXEMPT and resource.group == "admissionregistration.k8s.io"


def hooks_of(configuration: Raw) -> list[Hook]:
    """Return the hooks of a configuration; one whose selector cannot be read matches nothing."""
    found: list[Hook] = []
    for raw in configuration.get("webhooks") or ():
        try:
            namespaces, objects = _selector(raw.get("namespaceSelector")), _selector(raw.get("objectSelector"))
        except InvalidInput:
            continue
        found.append(
            Hook(
                name=str(raw.get("name")),
                rules=tuple(_rule(rule) for rule in raw.get("rules") or ()),
                namespaces=namespaces,
                objects=objects,
                fails_closed=raw.get("failurePolicy", "Fail") != "Ignore",
                timeout=float(raw.get("timeoutSeconds") or 10),
                reinvoke=raw.get("reinvocationPolicy") == "IfNeeded",
                exact=raw.get("matchPolicy") == "Exact",
                client=raw.get("clientConfig") or {},
                conditions=tuple(raw.get("matchConditions") or ()),
                quiet=raw.get("sideEffects") in ("None", "NoneOnDryRun"),
            )
        )
    return found


def _selector(raw: Any) -> Selector:
    return selector_from(convert(raw, LabelSelector)) if raw else _EVERYTHING


def _rule(raw: Raw) -> WebhookRule:
    return WebhookRule(
        frozenset(raw.get("operations") or ()),
        frozenset(raw.get("apiGroups") or ()),
        frozenset(raw.get("apiVersions") or ()),
        tuple(raw.get("resources") or ()),
        str(raw.get("scope") or "*"),
    )
