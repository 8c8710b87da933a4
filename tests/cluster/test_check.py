"""The preflight: what is missing is named, what is there is counted."""

from datetime import timedelta
from typing import Any

from kubetide.cli.check import Finding, Verdict, examine

from kubetide import crds
from kubetide.api.objects.scheme import CRDS
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.install.objects import COMPONENTS, account, manifests
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response, Transport
from simulated.cluster import run


def wrong(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.verdict is not Verdict.FINE]


def test_a_cluster_with_everything_passes() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        await cluster.apply(list(crds.load_all()))
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}})
        return await examine(cluster.client(), COMPONENTS, cluster.clock)

    findings = run(main, nodes=1)
    assert wrong(findings) == []
    assert any("Kubernetes" in finding.text for finding in findings)


def test_a_missing_custom_resource_and_a_rival_are_named() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        await cluster.client().delete(CRDS, "nodeslos.slo.koordinator.sh")
        now = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "manager-0", "renewTime": now, "leaseDurationSeconds": 15}
        meta = {"name": "koordinator-manager", "namespace": "koordinator-system"}
        await cluster.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
        await cluster.run_for(timedelta(seconds=5))
        return await examine(cluster.client(), ("slo",), cluster.clock)

    found = wrong(run(main, nodes=1))
    assert any("nodeslos.slo.koordinator.sh is missing" in text for text in found)
    assert any("manager-0 holds" in text for text in found)


def test_a_service_account_has_just_the_permissions_of_its_component() -> None:
    async def main(cluster: SimCluster) -> tuple[list[Finding], list[Finding]]:
        await cluster.apply([o for o in manifests(("hpa",), namespace="kube-system", image="x") if "Role" in o["kind"]])
        user = User(f"system:serviceaccount:kube-system:{account('hpa')}", ("system:authenticated",))
        client = cluster.client(user)
        return await examine(client, ("hpa",), cluster.clock), await examine(client, ("updater",), cluster.clock)

    own, other = run(main, nodes=1)
    assert any("rights are there" in finding.text for finding in own)
    assert any("may not" in finding.text and "pods/eviction" in finding.text for finding in other)


def test_permissions_in_the_namespace_of_the_lease_are_asked_for_too() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        objects = manifests(("slo",), namespace="kube-system", image="x")
        await cluster.apply([o for o in objects if o["kind"].startswith("ClusterRole")])
        user = User(f"system:serviceaccount:kube-system:{account('slo')}", ("system:authenticated",))
        return await examine(cluster.client(user), ("slo",), cluster.clock)

    found = wrong(run(main, nodes=1))
    assert any("may not" in text and "leases.coordination.k8s.io in koordinator-system" in text for text in found)


def test_versions_and_subresources_that_are_not_served_are_named() -> None:
    class Old:
        """An API server without resize and without the autoscaling version that is needed."""

        def __init__(self, inner: Transport) -> None:
            self._inner = inner
            self.close, self.watch = inner.close, inner.watch

        async def request(self, method: str, path: str, **parts: Any) -> Response:
            if path == "/apis/autoscaling/v2":
                return Response(404, {}, b"{}")
            answer = await self._inner.request(method, path, **parts)
            return Response(answer.status, answer.headers, answer.body.replace(b'"pods/resize"', b'"pods/other"'))

    async def main(cluster: SimCluster) -> list[Finding]:
        client = Client(Old(cluster.transport()), clock=cluster.clock)
        return await examine(client, ("hpa", "updater"), cluster.clock)

    findings = run(main, nodes=1)
    verdicts = {finding.text.partition(" is not served")[0]: finding.verdict for finding in findings}
    assert verdicts["autoscaling/v2 horizontalpodautoscalers"] is Verdict.WRONG
    assert verdicts["v1 pods/resize"] is Verdict.LOOK


def test_a_missing_namespace_of_a_lease_is_named_with_its_fix() -> None:
    async def main(cluster: SimCluster) -> list[Finding]:
        return await examine(cluster.client(), ("slo", "hpa"), cluster.clock, namespace="kubetide")

    found = wrong(run(main, nodes=1))
    assert any("namespace koordinator-system is missing; fix: kubectl create namespace" in text for text in found)
    assert not any("namespace kube-system" in text for text in found)


def test_of_a_server_that_does_not_answer_one_line_is_said_and_nothing_is_ok() -> None:
    class Dead:
        """An API server that is not there."""

        def __init__(self, inner: Transport) -> None:
            self.close, self.watch = inner.close, inner.watch

        async def request(self, method: str, path: str, **_: Any) -> Response:
            raise ConnectionLost(f"{method} {path}: cannot connect to 127.0.0.1:1: Connection refused")

    async def main(cluster: SimCluster) -> list[Finding]:
        return await examine(Client(Dead(cluster.transport()), clock=cluster.clock), COMPONENTS, cluster.clock)

    (finding,) = run(main, nodes=1)
    assert finding.verdict is Verdict.WRONG
    assert "Connection refused" in finding.text
    assert "--kubeconfig" in finding.text
