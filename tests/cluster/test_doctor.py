"""The doctor: what is missing is named with its fix, what is there is counted, what could not be asked is unknown."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from kubetide import crds
from kubetide.api.objects.scheme import CRDS
from kubetide.cli.doctor.command import diagnose, exit_code, without_absent
from kubetide.cli.doctor.preflight import examine
from kubetide.cli.doctor.sarif import sarif
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.install.objects import COMPONENTS, manifests
from kubetide.install.workloads import account
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response, Transport
from kubetide.testing.builders import make_deployment, make_hpa
from kubetide.verdicts.core.verdict import Finding, Severity
from simulated.cluster import run
from unit.verdicts.test_verdicts import PREFLIGHT

Answer = Callable[[str, Response], Response | None]
KOORDINATOR = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}


class Other:
    """An API server of which some answers are other."""

    def __init__(self, inner: Transport, other: Answer) -> None:
        self._inner, self._other = inner, other
        self.close, self.watch = inner.close, inner.watch

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        answer = await self._inner.request(method, path, **parts)
        return self._other(path, answer) or answer


def asked(
    components: tuple[str, ...],
    *,
    other: Answer | None = None,
    objects: list[dict[str, Any]] | None = None,
    namespace: str = "kube-system",
    without: str = "",
) -> Mapping[str, Finding]:
    """Return the findings of the preflight by id, on a cluster with these objects and these odd answers."""

    async def main(cluster: SimCluster) -> list[Finding]:
        for one in objects or ():
            await cluster.apply(one)
        if without:
            await cluster.client().delete(CRDS, without)
        await cluster.run_for(timedelta(seconds=5))
        client = cluster.client()
        if other is not None:
            client = Client(Other(cluster.transport(), other), clock=cluster.clock)
        return await examine(client, components, cluster.clock.now(), namespace=namespace)

    return {finding.verdict.id: finding for finding in run(main, nodes=1)}


def replaced(path: str, old: bytes, new: bytes) -> Answer:
    def other(asked: str, answer: Response) -> Response | None:
        return Response(answer.status, answer.headers, answer.body.replace(old, new)) if asked == path else None

    return other


def lease(holder: str, **annotations: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": "2026-01-05T00:00:00.000000Z", "leaseDurationSeconds": 15}
    meta = {"name": "koordinator-manager", "namespace": "koordinator-system", "annotations": annotations}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def not_found(path: str) -> Answer:
    return lambda asked, _: Response(404, {}, b"{}") if asked == path else None


@pytest.mark.parametrize(
    ("verdict", "arguments", "line", "remedy"),
    [
        pytest.param(
            "server-old",
            {"other": replaced("/version", b'"minor":"32"', b'"minor":"20"')},
            "OLD: Kubernetes",
            "kubectl version",
            id="server-old",
        ),
        pytest.param(
            "api-missing",
            {"other": not_found("/apis/autoscaling/v2")},
            "MISSING: autoscaling/v2 horizontalpodautoscalers is not served: Kubernetes is older than 1.23",
            "kubectl api-resources --api-group=autoscaling",
            id="api-missing",
        ),
        pytest.param(
            "api-optional",
            {"other": replaced("/api/v1", b'"pods/resize"', b'"pods/other"'), "components": ("updater",)},
            "ABSENT: v1 pods/resize is not served: pods are not resized in place, only evicted",
            'kubectl api-resources --api-group=""',
            id="api-optional",
        ),
        pytest.param(
            "crd-missing",
            {"without": "nodeslos.slo.koordinator.sh", "components": ("slo",)},
            "MISSING: the custom resource nodeslos.slo.koordinator.sh is not installed",
            "kubetide manifests slo | kubectl apply -f -",
            id="crd-missing",
        ),
        pytest.param(
            "metrics-missing",
            {"other": replaced("/apis", b'"metrics.k8s.io"', b'"other.k8s.io"')},
            "MISSING: metrics.k8s.io is not served, so there is no usage of pods",
            "kubectl apply -f https://",
            id="metrics-missing",
        ),
        pytest.param(
            "namespace-missing",
            {"components": ("slo",)},
            "MISSING: namespace koordinator-system, where the component keeps its lease or its secrets",
            "kubectl create namespace koordinator-system",
            id="namespace-missing",
        ),
        pytest.param(
            "rival",
            {"components": ("slo",), "objects": [KOORDINATOR, lease("manager-0")]},
            "BESIDE: manager-0 holds koordinator-system/koordinator-manager, renewed 5 s ago",
            "kubectl get lease koordinator-manager -n koordinator-system",
            id="rival",
        ),
        pytest.param(
            "unreadable",
            {"other": lambda path, _: Response(500, {}, b"{}") if path == "/apis" else None},
            "UNKNOWN: apiservices cannot be read: ",
            "kubectl auth can-i list apiservices -A",
            id="unreadable",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_fix(verdict: str, arguments: dict[str, Any], line: str, remedy: str) -> None:
    found = asked(**{"components": ("hpa",), **arguments})
    assert found[verdict].line.startswith(line)
    assert found[verdict].remedy.startswith(remedy)
    fine = [one for name, one in found.items() if name == "component-ok" and one.kind == "component"]
    assert bool(fine) == (found[verdict].severity is Severity.NOTE), "what lacks something is not fine"


def test_the_tests_here_cover_every_verdict_of_the_preflight() -> None:
    here = {"server-old", "api-missing", "api-optional", "crd-missing", "metrics-missing", "namespace-missing", "rival"}
    elsewhere = {"permissions-missing", "server-unreachable", "component-ok", "component-absent", "upstream-differs"}
    assert here | elsewhere == PREFLIGHT


def test_a_lease_that_kubetide_holds_is_no_rival() -> None:
    notes = {"kubetide.io/explain": "10.0.0.1:8080"}
    found = asked(("slo",), objects=[KOORDINATOR, lease("kubetide-0", **notes)])
    assert "rival" not in found
    assert "run by kubetide-0" in found["component-ok"].line


def test_a_cluster_with_everything_is_fine() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        await cluster.apply(list(crds.load_all()))
        await cluster.apply(KOORDINATOR)
        await cluster.run_for(timedelta(seconds=30))
        return await diagnose(cluster.client(), COMPONENTS, cluster.clock)

    findings = run(main, nodes=1)
    assert [finding.line for finding in findings if finding.severity is not Severity.OK] == []
    assert exit_code(findings) == 0
    assert any("Kubernetes" in finding.line for finding in findings)


def test_a_component_that_nobody_installed_is_a_note_unless_it_is_named() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        await cluster.client().delete(CRDS, "nodeslos.slo.koordinator.sh")
        await cluster.run_for(timedelta(seconds=5))
        return await diagnose(cluster.client(), ("slo", "hpa"), cluster.clock)

    findings = run(main, nodes=1)
    assert exit_code(findings) == 1
    (note,) = [finding for finding in without_absent(findings) if finding.severity is not Severity.OK]
    assert note.line == "NOT INSTALLED: it lacks nodeslos.slo.koordinator.sh, koordinator-system"
    assert note.remedy == "kubetide doctor slo"
    assert exit_code(without_absent(findings)) == 0


def test_a_service_account_has_just_the_permissions_of_its_component() -> None:
    async def main(cluster: SimCluster) -> tuple[list[Finding], list[Finding]]:
        await cluster.apply([o for o in manifests(("hpa",), namespace="kube-system", image="x") if "Role" in o["kind"]])
        user = User(f"system:serviceaccount:kube-system:{account('hpa')}", ("system:authenticated",))
        client, now = cluster.client(user), cluster.clock.now()
        return await examine(client, ("hpa",), now), await examine(client, ("updater",), now)

    own, other = run(main, nodes=1)
    assert "permissions-missing" not in {finding.verdict.id for finding in own}
    missing = [finding for finding in other if finding.verdict.id == "permissions-missing"]
    assert missing[0].line.startswith("FORBIDDEN: this identity may not ")
    assert "pods/eviction" in missing[0].line
    assert missing[0].remedy == "kubetide manifests updater | kubectl apply -f -"


def test_permissions_in_the_namespace_of_the_lease_are_asked_for_too() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        objects = manifests(("slo",), namespace="kube-system", image="x")
        await cluster.apply([o for o in objects if o["kind"].startswith("ClusterRole")])
        user = User(f"system:serviceaccount:kube-system:{account('slo')}", ("system:authenticated",))
        return await examine(cluster.client(user), ("slo",), cluster.clock.now())

    lines = [finding.line for finding in run(main, nodes=1)]
    assert any("may not" in line and "leases.coordination.k8s.io in koordinator-system" in line for line in lines)


def test_objects_that_may_not_be_read_are_unknown_and_nothing_is_fine() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        await cluster.apply([o for o in manifests(("hpa",), namespace="kube-system", image="x") if "Role" in o["kind"]])
        user = User(f"system:serviceaccount:kube-system:{account('hpa')}", ("system:authenticated",))
        return await diagnose(cluster.client(user), ("hpa",), cluster.clock)

    findings = run(main, nodes=1)
    unknown = [finding for finding in findings if finding.verdict.id == "unreadable"]
    assert any(finding.line.startswith("UNKNOWN: poddisruptionbudgets.policy cannot be read") for finding in unknown)
    assert exit_code(unknown) == 2
    assert sarif(findings, looked=False)["runs"][0]["invocations"] == [{"executionSuccessful": False}]


def test_of_a_server_that_does_not_answer_one_line_is_said_and_nothing_is_ok() -> None:
    class Dead:
        """An API server that is not there."""

        def __init__(self, inner: Transport) -> None:
            self.close, self.watch = inner.close, inner.watch

        async def request(self, method: str, path: str, **_: Any) -> Response:
            raise ConnectionLost(f"{method} {path}: cannot connect to 127.0.0.1:1: Connection refused")

    async def main(cluster: SimCluster) -> list[Finding]:
        return await diagnose(Client(Dead(cluster.transport()), clock=cluster.clock), COMPONENTS, cluster.clock)

    (finding,) = findings = run(main, nodes=1)
    assert finding.verdict.id == "server-unreachable"
    assert "Connection refused" in finding.line
    assert exit_code(findings) == 2


def test_an_autoscaler_without_requests_is_found_among_the_objects() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        await cluster.apply(make_deployment("web", replicas=2))
        await cluster.apply(make_hpa("web", minimum=1, maximum=4))
        await cluster.run_for(timedelta(minutes=2))
        return await diagnose(cluster.client(), ("hpa",), cluster.clock)

    findings = run(main, nodes=1)
    worst = findings[0]
    assert worst.line == "NOT SCALING: container main requests no cpu, so utilization has no base"
    assert worst.remedy.startswith("kubectl set resources deployment/web -n default -c main --requests=cpu=")
    assert exit_code(findings) == 1
    log = sarif(findings, looked=True)
    (run_log,) = log["runs"]
    rules = run_log["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0"
    for result in run_log["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert (result["kind"] == "pass") == (result["level"] == "none")
        assert result["message"]["text"]
        assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]
