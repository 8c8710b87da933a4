"""`kubetide check`: look at a cluster before kubetide runs there.

Every line is one question with its answer: fine, worth a look, or something that will not work.
"""

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum

import click

from kubetide.api.objects.scheme import CRDS, LEASES, NAMESPACES
from kubetide.api.values.codec import decode_raw, encode
from kubetide.cli.main import Invocation
from kubetide.clock import Clock, SystemClock
from kubetide.config import load
from kubetide.errors import KubetideError, Unavailable
from kubetide.install.objects import COMPONENTS, required_crds
from kubetide.install.rbac import CLUSTER, LOCAL, Right
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.errors import Forbidden, NotFound, Unauthorized
from kubetide.kube.client.settings import KubeSettings

EXIT_PROBLEMS = 3


class Verdict(Enum):
    """What an answer means."""

    FINE = "ok"
    LOOK = "look"
    WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class Finding:
    """One question and its answer."""

    verdict: Verdict
    subject: str
    text: str


_RIVALS = {
    "hpa": (("kube-system", "kube-controller-manager"),),
    "recommender": (("kube-system", "vpa-recommender"), ("kube-system", "vpa-recommender-lease")),
    "updater": (("kube-system", "vpa-updater"),),
    "admission": (("kube-system", "vpa-admission-controller"),),
    "slo": (("koordinator-system", "koordinator-manager"),),
    "colocation": (),
    "node": (),
}
# What must be served, as a resource below its API version; without it: what it means.
_SERVED = {
    "hpa": (("autoscaling/v2", "horizontalpodautoscalers", Verdict.WRONG, "Kubernetes is older than 1.23"),),
    "updater": (
        ("policy/v1", "poddisruptionbudgets", Verdict.WRONG, "Kubernetes is older than 1.21"),
        ("v1", "pods/resize", Verdict.LOOK, "pods are not resized in place, only evicted"),
    ),
    "admission": (
        (
            "admissionregistration.k8s.io/v1",
            "mutatingwebhookconfigurations",
            Verdict.WRONG,
            "no webhook can be registered",
        ),
    ),
}
_METRICS = {
    "hpa": (
        ("metrics.k8s.io", "resource metrics", Verdict.WRONG),
        ("custom.metrics.k8s.io", "Pods and Object metrics", Verdict.LOOK),
        ("external.metrics.k8s.io", "External metrics", Verdict.LOOK),
    ),
    "recommender": (("metrics.k8s.io", "usage of pods", Verdict.WRONG),),
}


@click.command("check", short_help="Look at a cluster before kubetide runs there.")
@click.argument("components", nargs=-1, metavar="[COMPONENT]...", type=click.Choice([*COMPONENTS, "all"]))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_obj
def command(invocation: Invocation, components: tuple[str, ...], output: str) -> int:
    """Check whether components can run on this cluster with the rights of this identity.

    COMPONENT is hpa, recommender, updater, admission, slo, colocation or node; without any all are meant.

    Exit code 3 says that something will not work.
    """
    chosen = COMPONENTS if not components or "all" in components else tuple(dict.fromkeys(components))
    findings = asyncio.run(_check(invocation, chosen))
    code = EXIT_PROBLEMS if any(finding.verdict is Verdict.WRONG for finding in findings) else 0
    if output == "json":
        rows = [{"verdict": each.verdict.value, "subject": each.subject, "text": each.text} for each in findings]
        click.echo(encode(rows))
        return code
    colours = {Verdict.FINE: "green", Verdict.LOOK: "yellow", Verdict.WRONG: "red"}
    for finding in findings:
        mark = click.style(f"{finding.verdict.value:5}", fg=colours[finding.verdict])
        click.echo(f"{mark} {finding.subject:12} {finding.text}")
    return code


async def _check(invocation: Invocation, components: tuple[str, ...]) -> list[Finding]:
    clock = SystemClock()
    flags = {} if invocation.kubeconfig is None else {"kubeconfig": str(invocation.kubeconfig)}
    if invocation.context:
        flags["context"] = invocation.context
    client, _ = connect(load(KubeSettings, flags=flags, env=os.environ), clock=clock)
    try:
        return await examine(client, components, clock, namespace=invocation.namespace or "kube-system")
    finally:
        await client.close()


async def examine(
    client: Client, components: tuple[str, ...], clock: Clock, *, namespace: str = "kube-system"
) -> list[Finding]:
    """Ask every question about the components; one that cannot be answered is a finding too."""
    try:
        findings = await _server(client)
    except (Unavailable, Unauthorized) as error:
        # Of a server that does not answer nothing else is known, and unknown is never fine.
        fix = "fix: is it up, and do --kubeconfig and --context name the right cluster?"
        return [Finding(Verdict.WRONG, "server", f"{error}; {fix}")]
    except KubetideError as error:
        findings = [Finding(Verdict.WRONG, "server", str(error))]
    for component in components:
        for question in (
            _served(client, component),
            _crds(client, component),
            _metrics(client, component),
            _namespaces(client, component, namespace),
            _rights(client, component, namespace),
            _rivals(client, component, clock),
        ):
            findings += await _asked(component, question)
    return findings


async def _asked(subject: str, question: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await question
    except KubetideError as error:
        return [Finding(Verdict.WRONG, subject, str(error))]


async def _server(client: Client) -> list[Finding]:
    version = decode_raw((await client.request("GET", "/version")).body, what="/version")
    text = str(version.get("gitVersion", "unknown"))
    minor = int("".join(c for c in str(version.get("minor", "0")) if c.isdigit()) or 0)
    if minor < 27:
        return [Finding(Verdict.LOOK, "server", f"Kubernetes {text}: older than 1.27, not tried")]
    return [Finding(Verdict.FINE, "server", f"Kubernetes {text}")]


async def _served(client: Client, component: str) -> list[Finding]:
    """Tell whether the versions and subresources that a component uses are served."""
    findings = []
    for version, resource, verdict, meaning in _SERVED.get(component, ()):
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            body = decode_raw((await client.request("GET", path)).body, what=path)
            names = {found["name"] for found in body.get("resources") or ()}
        except NotFound:
            names = set()
        if resource in names:
            findings.append(Finding(Verdict.FINE, component, f"{version} {resource} is served"))
        else:
            findings.append(Finding(verdict, component, f"{version} {resource} is not served: {meaning}"))
    return findings


async def _crds(client: Client, component: str) -> list[Finding]:
    findings = []
    for name, full in required_crds(component):
        try:
            await client.get(CRDS, full)
            findings.append(Finding(Verdict.FINE, component, f"custom resource {full}"))
        except NotFound:
            hint = f"custom resource {full} is missing: kubetide manifests {component} | kubectl apply -f - ({name})"
            findings.append(Finding(Verdict.WRONG, component, hint))
    return findings


async def _metrics(client: Client, component: str) -> list[Finding]:
    body = decode_raw((await client.request("GET", "/apis")).body, what="/apis")
    groups = {group["name"] for group in body.get("groups") or ()}
    return [
        Finding(Verdict.FINE, component, f"{group} is served ({used_for})")
        if group in groups
        else Finding(verdict, component, f"{group} is not served: no {used_for}")
        for group, used_for, verdict in _METRICS.get(component, ())
    ]


async def _namespaces(client: Client, component: str, own_namespace: str) -> list[Finding]:
    """Tell which namespaces are missing in which a component keeps its lease or its secrets."""
    findings = []
    for name in dict.fromkeys(local.namespace or own_namespace for local in LOCAL[component]):
        try:
            await client.get(NAMESPACES, name)
        except NotFound:
            fix = f"kubectl create namespace {name}"
            findings.append(Finding(Verdict.WRONG, component, f"namespace {name} is missing; fix: {fix}"))
        except Forbidden:
            findings.append(Finding(Verdict.LOOK, component, f"this identity may not see whether {name} exists"))
    return findings


async def _rights(client: Client, component: str, own_namespace: str) -> list[Finding]:
    missing = []
    asked = 0
    needed = [(right, "") for right in CLUSTER[component]]
    needed += [(local.right, local.namespace or own_namespace) for local in LOCAL[component]]
    for right, namespace in needed:
        for resource in right.resources:
            for verb in right.verbs:
                asked += 1
                if not await _may(client, right, resource, verb, namespace):
                    where = f" in {namespace}" if namespace else ""
                    missing.append(f"{verb} {resource}{f'.{right.group}' if right.group else ''}{where}")
    if missing:
        return [Finding(Verdict.LOOK, component, f"this identity may not {', '.join(missing)}")]
    return [Finding(Verdict.FINE, component, f"all {asked} rights are there")]


async def _may(client: Client, right: Right, resource: str, verb: str, namespace: str) -> bool:
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


async def _rivals(client: Client, component: str, clock: Clock) -> list[Finding]:
    """Tell who else holds the lease of this component."""
    findings = []
    for namespace, name in _RIVALS[component]:
        try:
            lease = await client.get(LEASES, name, namespace=namespace)
        except NotFound:
            continue
        spec = lease.spec
        if spec.renew_time is None or not spec.holder_identity:
            continue
        age = (clock.now() - spec.renew_time).total_seconds()
        if age < 60:
            text = f"{spec.holder_identity} holds {namespace}/{name}, renewed {max(age, 0):.0f} s ago"
            findings.append(Finding(Verdict.LOOK, component, text))
    if _RIVALS[component] and not findings:
        return [Finding(Verdict.FINE, component, "nobody else acts")]
    return findings
