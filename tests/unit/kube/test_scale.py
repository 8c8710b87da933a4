"""Scale subresources: found by group and kind, read tolerantly, written as a compare-and-swap."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.meta import ObjectReference
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import SelectorError
from kubetide.kube.client.client import Client
from kubetide.kube.client.discovery import DiscoveredResource
from kubetide.kube.client.errors import Forbidden, NotFound
from kubetide.kube.client.transport import Response
from kubetide.kube.scale import (
    InvalidApiVersion,
    NoMapping,
    ScaleClient,
    ScaleUnreadable,
    ScaleUnsupported,
    group_of_reference,
    normalise_selector,
    target_from,
)

DEPLOYMENTS = DiscoveredResource(group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True)
SCALE = {
    "apiVersion": "autoscaling/v1",
    "kind": "Scale",
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7", "annotations": {"kept": "yes"}},
    "spec": {"replicas": 3},
    "status": {"replicas": 2, "selector": "x,app in (b,a)"},
}


class Routes(FaultyTransport):
    """Answers by method and path."""

    def __init__(self, routes: dict[str, Any]) -> None:
        super().__init__(FaultyApi())
        self.routes = routes
        self.sent: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, **options: Any) -> Response:
        body = json.loads(options["body"]) if options.get("body") else None
        self.sent.append((method, path, body))
        answer = self.routes.get(f"{method} {path}", 404)
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, int):
            return Response(answer, {}, json.dumps({"kind": "Status", "code": answer, "message": path}).encode())
        return Response(200, {}, json.dumps(answer).encode())


def discovery(**groups: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    listed = []
    routes: dict[str, Any] = {"GET /api": {"versions": ["v1"]}, "GET /api/v1": {"resources": []}}
    for group, versions in groups.items():
        group_name = group.replace("_", ".")
        entries = [{"groupVersion": f"{group_name}/{version}", "version": version} for version in versions]
        listed.append({"name": group_name, "versions": entries, "preferredVersion": entries[0]})
        for version, resources in versions.items():
            routes[f"GET /apis/{group_name}/{version}"] = {"resources": resources}
    routes["GET /apis"] = {"groups": listed}
    return routes


def scalable(plural: str, kind: str) -> list[dict[str, Any]]:
    scale = {"name": f"{plural}/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "namespaced": True}
    return [{"name": plural, "kind": kind, "namespaced": True}, scale]


def reference(api_version: str, kind: str, name: str = "web") -> ObjectReference:
    return ObjectReference(api_version=api_version, kind=kind, name=name)


def with_client(routes: dict[str, Any], act: Callable[[ScaleClient, Routes], Any]) -> None:
    async def main() -> None:
        transport = Routes(routes)
        await act(ScaleClient(Client(transport, clock=virtual_clock())), transport)

    run_virtual(main())


def test_the_version_of_the_reference_is_not_looked_at() -> None:
    routes = discovery(apps={"v1": scalable("deployments", "Deployment")})
    routes["GET /apis/apps/v1/namespaces/shop/deployments/web/scale"] = SCALE

    async def act(scales: ScaleClient, transport: Routes) -> None:
        target = await scales.get("shop", reference("apps/v1beta9", "Deployment"))
        assert (target.spec_replicas, target.status_replicas, target.selector) == (3, 2, "app in (a,b),x")
        assert target.resource.plural == "deployments"

    with_client(routes, act)


def test_a_write_sends_back_what_was_read_with_other_replicas() -> None:
    path = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
    routes = discovery(apps={"v1": scalable("deployments", "Deployment")})
    routes[f"GET {path}"] = SCALE
    routes[f"PUT {path}"] = lambda body: body

    async def act(scales: ScaleClient, transport: Routes) -> None:
        target = await scales.get("shop", reference("apps/v1", "Deployment"))
        written = await scales.set(target, 9)
        assert written.spec_replicas == 9
        assert transport.sent[-1] == ("PUT", path, {**SCALE, "spec": {"replicas": 9}})

    with_client(routes, act)


def test_a_resource_without_a_scale_entry_cannot_be_written() -> None:
    path = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
    routes = discovery(apps={"v1": scalable("deployments", "Deployment")[:1]})
    routes[f"GET {path}"] = SCALE

    async def act(scales: ScaleClient, transport: Routes) -> None:
        target = await scales.get("shop", reference("apps/v1", "Deployment"))
        with pytest.raises(ScaleUnsupported):
            await scales.set(target, 9)

    with_client(routes, act)


def test_the_first_mapping_that_answers_counts_and_else_the_first_error() -> None:
    two_kinds = [
        {"name": "widgets", "kind": "Widget", "namespaced": True},
        {"name": "gadgets", "kind": "Widget", "namespaced": True},
    ]
    routes = discovery(example_com={"v1": two_kinds})
    base = "GET /apis/example.com/v1/namespaces/shop"
    routes[f"{base}/widgets/web/scale"] = 403
    routes[f"{base}/gadgets/web/scale"] = SCALE

    async def succeeds(scales: ScaleClient, transport: Routes) -> None:
        assert (await scales.get("shop", reference("example.com/v1", "Widget"))).resource.plural == "gadgets"
        transport.routes[f"{base}/gadgets/web/scale"] = 404
        with pytest.raises(Forbidden):
            await scales.get("shop", reference("example.com/v1", "Widget"))
        transport.routes[f"{base}/widgets/web/scale"] = 404
        with pytest.raises(NotFound, match="widgets"):
            await scales.get("shop", reference("example.com/v1", "Widget"))

    with_client(routes, succeeds)


def test_a_kind_that_moves_to_another_version_is_found_within_half_a_minute() -> None:
    widgets = [{"name": "widgets", "kind": "Widget", "namespaced": True}]
    routes = discovery(example_com={"v1beta1": widgets})
    routes["GET /apis/example.com/v1beta1/namespaces/shop/widgets/web/scale"] = SCALE

    async def act(scales: ScaleClient, transport: Routes) -> None:
        assert (await scales.get("shop", reference("example.com/v1", "Widget"))).resource.version == "v1beta1"
        transport.routes = discovery(example_com={"v1": widgets})
        transport.routes["GET /apis/example.com/v1/namespaces/shop/widgets/web/scale"] = SCALE
        with pytest.raises(NotFound):
            await scales.get("shop", reference("example.com/v1", "Widget"))
        await asyncio.sleep(30)
        assert (await scales.get("shop", reference("example.com/v1", "Widget"))).resource.version == "v1"

    with_client(routes, act)


def test_an_unknown_kind_has_no_mapping() -> None:
    async def act(scales: ScaleClient, transport: Routes) -> None:
        with pytest.raises(NoMapping, match=r'no matches for kind "Gadget" in group "example\.com"'):
            await scales.get("shop", reference("example.com/v1", "Gadget"))

    with_client(discovery(), act)


@pytest.mark.parametrize(
    ("api_version", "group"),
    [
        pytest.param("apps/v1", "apps", id="group-and-version"),
        pytest.param("v1", "", id="core"),
        pytest.param("", "", id="empty-is-core"),
    ],
)
def test_the_group_of_a_reference(api_version: str, group: str) -> None:
    assert group_of_reference(api_version) == group


def test_an_api_version_with_two_slashes_is_refused() -> None:
    with pytest.raises(InvalidApiVersion, match="a/b/c"):
        group_of_reference("a/b/c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("x,app in (b,a)", "app in (a,b),x", id="sorted"),
        pytest.param("app==web", "app=web", id="one-equals"),
        pytest.param("a=1,a=2", "a=2", id="last-equality-wins"),
        pytest.param("", "", id="empty"),
        pytest.param("!legacy,tier notin (a)", "!legacy,tier notin (a)", id="set-based"),
    ],
)
def test_selectors_are_normalised(text: str, expected: str) -> None:
    assert normalise_selector(text) == expected


@pytest.mark.parametrize("text", ["app!=x", "n>5", "n<3", "app in web", "app=web,"])
def test_what_a_label_selector_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        normalise_selector(text)
    raw = {"status": {"selector": text}}
    with pytest.raises(ScaleUnreadable, match="failed to parse target selector"):
        target_from(DEPLOYMENTS, "shop", "web", raw)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"selector": {"b": "2", "a": "1"}}, "a=1,b=2", id="older-types-have-a-map"),
        pytest.param({"selector": {"a": "1"}, "targetSelector": "app in (x)"}, "app in (x)", id="target-selector-wins"),
        pytest.param({}, "", id="absent"),
    ],
)
def test_older_scale_types_are_read(status: dict[str, Any], expected: str) -> None:
    assert target_from(DEPLOYMENTS, "shop", "web", {"status": status}).selector == expected


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"replicas": 3}}, id="another-kind"),
        pytest.param({"kind": "Scale", "apiVersion": "example.com/v1", "spec": {"replicas": 3}}, id="another-group"),
        pytest.param({"spec": [3]}, id="a-spec-that-is-a-list"),
        pytest.param({"spec": {"replicas": 3}, "status": "fine"}, id="a-status-that-is-a-text"),
        pytest.param({"spec": {"replicas": "3"}}, id="a-count-that-is-a-text"),
        pytest.param({"spec": {"replicas": 2.5}}, id="half-a-replica"),
        pytest.param({"spec": {"replicas": True}}, id="a-count-that-is-true"),
        pytest.param({"spec": {"replicas": 3}, "status": {"replicas": [3]}}, id="an-observed-count-that-is-a-list"),
    ],
)
def test_what_is_no_scale_is_refused_by_name(raw: dict[str, Any]) -> None:
    with pytest.raises(ScaleUnreadable, match="not convertible to autoscaling Scale"):
        target_from(DEPLOYMENTS, "shop", "web", raw)


def test_absent_replicas_are_zero() -> None:
    target = target_from(DEPLOYMENTS, "shop", "web", {"spec": None})
    assert (target.spec_replicas, target.status_replicas) == (0, 0)
