"""Whether components can run on a cluster: APIs, custom resources, metrics, namespaces, permissions, rivals.

Every question ends in findings; one that cannot be answered is a finding too, for unknown is never fine.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CRDS, LEASES, NAMESPACES
from kubetide.api.values.codec import decode_raw, encode
from kubetide.errors import KubetideError, Unavailable
from kubetide.install.objects import required_crds
from kubetide.install.rbac import CLUSTER, LOCAL, Permission
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound, Unauthorized
from kubetide.verdicts.cluster_reader import one_line
from kubetide.verdicts.core.finding import age, found
from kubetide.verdicts.core.verdict import Finding, Severity

COMPONENT = "component"
NOT_INSTALLED = frozenset({"crd-missing", "namespace-missing"})
"""What a component lacks that was never installed."""
OLDEST_MINOR = 27
OWN_ANNOTATIONS = "kubetide.io/"
"""A lease that kubetide holds carries annotations under this prefix."""
_CLUSTER_KEY = ObjectKey("", "")
_LEASE_FRESH_SECONDS = 60

_RIVALS = {
    "hpa": (("kube-system", "kube-controller-manager"),),
    "recommender": (("kube-system", "vpa-recommender"), ("kube-system", "vpa-recommender-lease")),
    "updater": (("kube-system", "vpa-updater"),),
    "admission": (("kube-system", "vpa-admission-controller"),),
    "slo": (("koordinator-system", "koordinator-manager"),),
    "colocation": (),
    "node": (),
    "metrics": (),
    "policy": (),
    "plan": (),
}
# What must be served, as a resource below its API version; without it: which verdict, and what it means.
_SERVED = {
    "hpa": (("autoscaling/v2", "horizontalpodautoscalers", "api-missing", "Kubernetes is older than 1.23"),),
    "updater": (
        ("policy/v1", "poddisruptionbudgets", "api-missing", "Kubernetes is older than 1.21"),
        ("v1", "pods/resize", "api-optional", "pods are not resized in place, only evicted"),
    ),
    "admission": (
        (
            "admissionregistration.k8s.io/v1",
            "mutatingwebhookconfigurations",
            "api-missing",
            "no webhook can be registered",
        ),
    ),
}
_METRICS = {
    "hpa": (
        ("metrics.k8s.io", "usage of pods", True),
        ("custom.metrics.k8s.io", "Pods and Object metrics", False),
        ("external.metrics.k8s.io", "External metrics", False),
    ),
    "recommender": (("metrics.k8s.io", "usage of pods", True),),
}


@dataclass(slots=True)
class _Answers:
    """What is known about one component so far."""

    component: str
    findings: list[Finding] = field(default_factory=list)
    fine: list[str] = field(default_factory=list)

    def add(self, verdict: str, **values: object) -> None:
        """Take note of a finding."""
        self.findings.append(found(verdict, COMPONENT, ObjectKey("", self.component), **values))

    def all(self) -> list[Finding]:
        """Return the findings; a component without a problem is fine, and says what was found."""
        if any(finding.severity.rank < Severity.NOTE.rank for finding in self.findings):
            return self.findings
        self.add("component-ok", detail=", ".join(self.fine) or "it needs nothing of the cluster")
        return self.findings


async def examine(
    client: Client, components: tuple[str, ...], now: datetime, *, namespace: str = "kube-system"
) -> list[Finding]:
    """Ask every question about the components, which keep their leases in `namespace` unless upstream says where."""
    try:
        findings = await _server(client)
    except (Unavailable, Unauthorized) as error:
        # Of a server that does not answer nothing else is known.
        return [found("server-unreachable", "cluster", _CLUSTER_KEY, message=one_line(error))]
    except KubetideError as error:
        findings = [found("unreadable", "cluster", _CLUSTER_KEY, resource="/version", message=one_line(error))]
    for component in components:
        answers = _Answers(component)
        for what, question in (
            ("discovery", _served(client, answers)),
            ("customresourcedefinitions", _crds(client, answers)),
            ("apiservices", _metrics(client, answers)),
            ("namespaces", _namespaces(client, answers, namespace)),
            ("selfsubjectaccessreviews", _permissions(client, answers, namespace)),
            ("leases", _rivals(client, answers, now)),
        ):
            await _asked(answers, what, question)
        findings += answers.all()
    return findings


async def _asked(answers: _Answers, what: str, question: Awaitable[None]) -> None:
    try:
        await question
    except KubetideError as error:
        answers.add("unreadable", resource=what, message=one_line(error))


async def _server(client: Client) -> list[Finding]:
    version = decode_raw((await client.request("GET", "/version")).body, what="/version")
    text = str(version.get("gitVersion", "unknown"))
    minor = int("".join(c for c in str(version.get("minor", "0")) if c.isdecimal()) or 0)
    if minor < OLDEST_MINOR:
        return [found("server-old", "cluster", _CLUSTER_KEY, version=text)]
    return [found("component-ok", "cluster", _CLUSTER_KEY, detail=f"Kubernetes {text}")]


async def _served(client: Client, answers: _Answers) -> None:
    """Check whether the versions and subresources that a component uses are served."""
    for version, resource, verdict, meaning in _SERVED.get(answers.component, ()):
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            body = decode_raw((await client.request("GET", path)).body, what=path)
            names = {entry["name"] for entry in body.get("resources") or ()}
        except NotFound:
            names = set()
        if resource in names:
            answers.fine.append(f"{version} {resource}")
        else:
            group = version.rpartition("/")[0] or '""'
            answers.add(verdict, resource=f"{version} {resource}", message=meaning, group=group)


async def _crds(client: Client, answers: _Answers) -> None:
    here = 0
    for _, full in required_crds(answers.component):
        try:
            await client.get(CRDS, full)
            here += 1
        except NotFound:
            answers.add("crd-missing", resource=full, component=answers.component)
    if here:
        answers.fine.append(f"{here} custom resources")


async def _metrics(client: Client, answers: _Answers) -> None:
    body = decode_raw((await client.request("GET", "/apis")).body, what="/apis")
    groups = {group["name"] for group in body.get("groups") or ()}
    for group, used_for, required in _METRICS.get(answers.component, ()):
        if group in groups:
            answers.fine.append(group)
        elif required:
            answers.add("metrics-missing", group=group, message=used_for)
        else:
            answers.add("api-optional", resource=group, message=f"no {used_for}", group=group)


async def _namespaces(client: Client, answers: _Answers, own_namespace: str) -> None:
    """Check the namespaces in which a component keeps its lease or its secrets."""
    for name in dict.fromkeys(local.namespace or own_namespace for local in LOCAL[answers.component]):
        try:
            await client.get(NAMESPACES, name)
        except NotFound:
            answers.add("namespace-missing", resource=name)


async def _permissions(client: Client, answers: _Answers, own_namespace: str) -> None:
    missing = []
    asked = 0
    needed = [(right, "") for right in CLUSTER[answers.component]]
    needed += [(local.right, local.namespace or own_namespace) for local in LOCAL[answers.component]]
    for right, namespace in needed:
        for resource in right.resources:
            for verb in right.verbs:
                asked += 1
                if not await _may(client, right, resource, verb, namespace):
                    where = f" in {namespace}" if namespace else ""
                    missing.append(f"{verb} {resource}{f'.{right.group}' if right.group else ''}{where}")
    if missing:
        answers.add("permissions-missing", message=", ".join(missing), component=answers.component)
    else:
        answers.fine.append(f"{asked} permissions")


async def _may(client: Client, right: Permission, resource: str, verb: str, namespace: str) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {"group": right.group, "resource": name, "verb": verb, "namespace": namespace}
    if len(right.names) == 1:
        attributes["name"] = right.names[0]
    if subresource:
        attributes["subresource"] = subresource
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = decode_raw((await client.request("POST", path, body=encode(review))).body, what=path)
    return bool((answer.get("status") or {}).get("allowed"))


async def _rivals(client: Client, answers: _Answers, now: datetime) -> None:
    """Check who else holds the lease of this component."""
    for namespace, lease_name in _RIVALS[answers.component]:
        try:
            lease = await client.get(LEASES, lease_name, namespace=namespace)
        except NotFound:
            continue
        spec = lease.spec
        if spec.renew_time is None or not spec.holder_identity:
            continue
        if any(name.startswith(OWN_ANNOTATIONS) for name in lease.metadata.annotations or ()):
            answers.fine.append(f"run by {spec.holder_identity}")
        elif (now - spec.renew_time).total_seconds() < _LEASE_FRESH_SECONDS:
            answers.add(
                "rival",
                holder=spec.holder_identity,
                lease=f"{namespace}/{lease_name}",
                lease_name=lease_name,
                lease_namespace=namespace,
                age=age(spec.renew_time, now),
            )
