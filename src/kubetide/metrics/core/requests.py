"""Which question a path asks: a group of metrics, its discovery, or nothing that is served here.

    /apis/metrics.k8s.io/v1beta1/nodes[/{name}]
    /apis/metrics.k8s.io/v1beta1[/namespaces/{ns}]/pods[/{name}]
    /apis/metrics.k8s.io/v1beta1[/namespaces/{ns}]/podsignals
    /apis/custom.metrics.k8s.io/{v}/namespaces/{ns}/{resource}/{name}/{metric}      {name} may be `*`
    /apis/custom.metrics.k8s.io/{v}/namespaces/{ns}/metrics/{metric}                about the namespace
    /apis/custom.metrics.k8s.io/{v}/{resource}/{name}/{metric}                      about what has no namespace
    /apis/external.metrics.k8s.io/v1beta1/namespaces/{ns}/{metric}

The same split says what a caller must be allowed to do (`Question.attributes`), in the words in which the API server
itself reads these paths: get where there is a name (`*` is one), list where there is none; custom metrics are
subresources of what they describe, external metrics are resources.
"""

from dataclasses import dataclass
from urllib.parse import unquote

USAGE, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
VERSIONS = {USAGE: ("v1beta1",), CUSTOM: ("v1beta2", "v1beta1"), EXTERNAL: ("v1beta1",)}
"""Served versions, the preferred one first."""
SIGNALS = "podsignals"
_USAGE_RESOURCES = {"pods": True, "nodes": False, SIGNALS: True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked for. Without a resource: the discovery of the version."""

    group: str
    version: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    metric: str = ""

    def attributes(self) -> dict[str, str]:
        """Return what a SubjectAccessReview asks about it."""
        resource, name, subresource = self.resource, self.name, self.metric
        if self.group == EXTERNAL:
            subresource = ""
        elif self.resource == "namespaces":
            resource, name, subresource = "metrics", self.metric, ""
        found = {
            "group": self.group,
            "version": self.version,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": name,
            "verb": "get" if name else "list",
        }
        return {key: value for key, value in found.items() if value}


def parse_path(path: str) -> Question | None:
    """Return the question of a path below `/apis/GROUP/VERSION`; None where nothing is served."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if len(parts) < 3 or parts[0] != "apis" or parts[2] not in VERSIONS.get(parts[1], ()):
        return None
    group, version, rest = parts[1], parts[2], parts[3:]
    if not rest:
        return Question(group=group, version=version)
    if not all(rest):
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    match group:
        case "metrics.k8s.io":
            return _usage(version, namespace, rest)
        case "custom.metrics.k8s.io":
            return _custom(version, namespace, rest)
    if namespace and len(rest) == 1:
        return Question(group=group, version=version, resource=rest[0], namespace=namespace, metric=rest[0])
    return None


def _usage(version: str, namespace: str, rest: list[str]) -> Question | None:
    resource, name = rest[0], rest[1] if len(rest) == 2 else ""
    if len(rest) > 2 or resource not in _USAGE_RESOURCES:
        return None
    if bool(namespace) and not _USAGE_RESOURCES[resource]:
        return None
    if name and (resource == SIGNALS or (resource == "pods" and not namespace)):
        return None
    return Question(group=USAGE, version=version, resource=resource, namespace=namespace, name=name)


def _custom(version: str, namespace: str, rest: list[str]) -> Question | None:
    if namespace and len(rest) == 2 and rest[0] == "metrics":
        resource, name, metric = "namespaces", namespace, rest[1]
    elif len(rest) == 3:
        resource, name, metric = rest
    else:
        return None
    return Question(group=CUSTOM, version=version, resource=resource, namespace=namespace, name=name, metric=metric)
