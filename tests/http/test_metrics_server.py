"""The metrics server over real TLS: who is let in, what they see, and what becomes of nodes that fall silent."""

import asyncio
import ssl
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.scheme import API_SERVICES, PODS
from kubetide.api.values.patch import MergePatch
from kubetide.kube.client.certificates import make_ca
from kubetide.metrics.core.readings import SHORTEST_KEPT, NodeReading
from metricsworld import CLOCK, MetricsWorld, make_node, make_pod, metrics_world, resource_metrics, until

USAGE = "/apis/metrics.k8s.io/v1beta1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def with_usage(world: MetricsWorld) -> None:
    """Have the kubelet report half a core for `web-1`, and wait until it is served."""
    await make_pod(world.client, "web-1", "n-1", app="web")
    await make_pod(world.client, "db-1", "n-1", app="db")
    begin = CLOCK.now().timestamp()
    world.kubelet.text = resource_metrics(
        {("default", "web-1"): {"web": 1.0}, ("default", "db-1"): {"web": 1.0}}, node_cpu=10, at=begin - 10
    )
    before = len(world.kubelet.authorizations)
    await until(lambda: scraped(world, before + 2))
    world.kubelet.text = resource_metrics(
        {("default", "web-1"): {"web": 6.0}, ("default", "db-1"): {"web": 2.0}, ("default", "ghost"): {"web": 9.0}},
        node_cpu=30,
        at=begin,
    )
    await until(lambda: listed(world))


async def scraped(world: MetricsWorld, times: int) -> bool:
    return len(world.kubelet.authorizations) >= times


async def listed(world: MetricsWorld) -> Any:
    _, body = await world.as_user(f"{USAGE}/pods", "root", "system:masters")
    return body.get("items")


async def test_usage_of_pods_and_nodes_comes_from_kubelets() -> None:
    async with metrics_world() as world:
        await with_usage(world)
        status, body = await world.as_user(f"{USAGE}/namespaces/default/pods/web-1", "root", "system:masters")
        assert (status, body["kind"], body["window"]) == (200, "PodMetrics", "10s")
        assert body["containers"] == [{"name": "web", "usage": {"cpu": "500000000n", "memory": "1024Ki"}}]
        assert body["metadata"]["labels"] == {"app": "web"}
        _, nodes = await world.as_user(f"{USAGE}/nodes?labelSelector=zone%3Da", "root", "system:masters")
        assert [(one["metadata"]["name"], one["usage"]["cpu"]) for one in nodes["items"]] == [("n-1", "2000000000n")]
        assert set(world.kubelet.authorizations) == {"Bearer kubelet-token"}


SELECTIONS: dict[str, Any] = {
    "": ["db-1", "web-1"],
    "?labelSelector=app%3Dweb": ["web-1"],
    "?labelSelector=app+notin+(web)": ["db-1"],
    "?fieldSelector=metadata.name%3Ddb-1": ["db-1"],
    "?fieldSelector=metadata.name!%3Ddb-1": ["web-1"],
    "?fieldSelector=spec.nodeName%3Dn-1": 400,
    "?labelSelector=%3D%3D": 400,
}


async def test_selectors_choose_among_pods_that_are_there() -> None:
    async with metrics_world() as world:
        await with_usage(world)
        shown: dict[str, Any] = {}
        for query in SELECTIONS:
            status, body = await world.as_user(f"{USAGE}/namespaces/default/pods{query}", "root", "system:masters")
            shown[query] = sorted(one["metadata"]["name"] for one in body["items"]) if status == 200 else status
        assert shown == SELECTIONS


async def test_people_get_tables() -> None:
    async with metrics_world() as world:
        await with_usage(world)
        _, body = await world.as_user(f"{USAGE}/pods?labelSelector=app%3Dweb", "root", "system:masters", Accept=TABLE)
        assert body["rows"][0]["cells"] == ["web-1", "500m", "1Mi", "10s"]


async def test_a_pod_that_is_deleted_and_a_node_that_falls_silent_are_missing() -> None:
    async with metrics_world() as world:
        await with_usage(world)
        await world.client.delete(PODS, "web-1", namespace="default", grace_period_seconds=0)

        async def gone() -> bool:
            return len(await listed(world) or ()) == 1

        await until(gone)
        status, body = await world.as_user(f"{USAGE}/namespaces/default/pods/web-1", "root", "system:masters")
        assert (status, body["reason"]) == (404, "NotFound")
        world.kubelet.status = 500
        await make_node(world.client, "n-2", 1)

        async def reported() -> bool:
            return any("2 kubelets" in note for note in world.server.notes())

        await until(reported)


async def test_nodes_that_fall_silent_together_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"quiet-{number:02}" for number in range(12)]
    async with metrics_world(metric_resolution=timedelta(hours=1)) as world:
        for name in names:
            await make_node(world.client, name, 1)

        async def known() -> bool:
            return {node.metadata.name for node in world.server.view.nodes.store} >= set(names)

        await until(known)
        now = CLOCK.now()
        at = now - SHORTEST_KEPT + timedelta(seconds=1)
        for name in names:
            reading = NodeReading(node=name, source="agent", at=at, window=timedelta(0), usage=None, pods={})
            assert world.server.readings.take(reading, now=now)

        async def said() -> list[dict[str, Any]]:
            return [vars(one)["fields"] for one in caplog.records if "fell silent" in one.getMessage()]

        (fields,) = await until(said)
        assert (fields["count"], fields["nodes"]) == (12, names[:10])


async def test_who_may_not_is_told_what_they_lack_and_who_may_is_answered() -> None:
    async with metrics_world() as world:
        await with_usage(world)
        status, body = await world.as_user(f"{USAGE}/namespaces/default/pods", "ann", "system:authenticated")
        assert (status, body["reason"]) == (403, "Forbidden")
        assert 'User "ann" cannot list resource "pods" in API group "metrics.k8s.io"' in body["message"]
        await world.allow("bob", "metrics.k8s.io", ["pods"], ["list"])
        assert (await world.as_user(f"{USAGE}/namespaces/default/pods", "bob"))[0] == 200
        assert (await world.as_user(f"{USAGE}/nodes", "bob"))[0] == 403
        assert (await world.as_user(f"{USAGE}/namespaces/default/pods/web-1", "bob"))[0] == 403


async def test_headers_prove_nothing_without_the_certificate_of_the_front_proxy() -> None:
    async with metrics_world() as world:
        forged = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
        async with world.session() as session, session.get(f"{USAGE}/pods", headers=forged) as response:
            assert (response.status, (await response.json())["reason"]) == (401, "Unauthorized")
        async with (
            world.session(world.front_proxy("somebody-else")) as session,
            session.get(f"{USAGE}/pods", headers=forged) as response,
        ):
            assert response.status == 401
        stranger = make_ca("stranger", now=CLOCK.now())
        async with world.session(stranger) as session:
            with pytest.raises(Exception, match=r"(?i)ssl|certificate|disconnected|reset|closing"):
                await session.get(f"{USAGE}/pods", headers=forged)


async def test_bearers_of_tokens_are_reviewed_once_per_while() -> None:
    async with metrics_world() as world:
        headers = {"Authorization": f"Bearer {world.cluster.identity.token}"}
        async with world.session() as session:
            for _ in range(3):
                async with session.get("/apis", headers=headers) as response:
                    assert len((await response.json())["groups"]) == 3
            assert world.reviews.asked == 1
            aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
            async with session.get("/apis", headers={**headers, **aggregated}) as response:
                assert response.status == 406
            async with session.get("/apis", headers={"Authorization": "Bearer wrong"}) as response:
                assert response.status == 401


async def test_health_needs_no_identity_and_readiness_a_node_that_was_heard_of() -> None:
    async with metrics_world() as world:
        world.kubelet.status = 500
        async with world.session() as session:
            async with session.get("/livez") as response:
                assert response.status == 200
            async with session.get("/readyz") as response:
                assert response.status == 503
        world.kubelet.status = 200
        await with_usage(world)
        async with world.session() as session, session.get("/readyz") as response:
            assert response.status == 200


PATHS = {
    "/apis/metrics.k8s.io": 200,
    USAGE: 200,
    "/version": 200,
    "/metrics": 200,
    "/openapi/v2": 404,
    "/apis/apps/v1/deployments": 404,
    f"{USAGE}/secrets": 404,
}


async def test_what_is_served_and_what_is_not() -> None:
    headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    found = {}
    async with metrics_world() as world, world.session(world.front_proxy()) as session:
        for path in PATHS:
            async with session.get(path, headers=headers) as response:
                found[path] = response.status
    assert found == PATHS


async def test_a_certificate_that_is_about_to_end_is_replaced_while_callers_come() -> None:
    async with metrics_world(certificate_lifetime=timedelta(seconds=6)) as world:

        async def shown() -> str:
            return await asyncio.to_thread(ssl.get_server_certificate, ("localhost", world.server.port))

        first = await shown()

        async def another() -> bool:
            return await shown() != first

        await until(another)
        # The caller trusts the CA that the API server was told of.
        assert (await world.as_user(f"{USAGE}/nodes", "root", "system:masters"))[0] == 200


async def test_an_apiservice_of_somebody_else_is_left_alone() -> None:
    async with metrics_world() as world:
        other = {"service": {"name": "metrics-server", "namespace": "kube-system"}, "caBundle": None}
        await world.client.patch(API_SERVICES, "v1beta1.metrics.k8s.io", MergePatch({"spec": other}))

        async def noticed() -> bool:
            return "metrics-server" in world.server.registration.problems.get("v1beta1.metrics.k8s.io", "")

        await until(noticed)
        found = await world.client.get_raw(API_SERVICES, "v1beta1.metrics.k8s.io")
        assert not found["spec"].get("caBundle")
