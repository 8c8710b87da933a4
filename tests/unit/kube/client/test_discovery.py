"""Discovery: what is served, remembered, and asked again."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.discovery import Discovery
from kubetide.kube.client.errors import NotFound, ServiceUnavailable
from kubetide.kube.client.transport import Response


class Server:
    """Serves discovery documents and counts the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.groups: dict[str, list[str]] = {"apps": ["v1"], "example.com": ["v2", "v1"]}
        self.resources: dict[str, list[dict[str, Any]]] = {
            "/api/v1": [
                {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["get", "list"]},
                {"name": "nodes", "kind": "Node", "namespaced": False},
            ],
            "/apis/apps/v1": [
                {"name": "deployments", "kind": "Deployment", "namespaced": True},
                {
                    "name": "deployments/scale",
                    "kind": "Scale",
                    "namespaced": True,
                    "group": "autoscaling",
                    "version": "v1",
                },
                {"name": "deployments/status", "kind": "Deployment", "namespaced": True},
            ],
            "/apis/example.com/v2": [{"name": "widgets", "kind": "Widget", "namespaced": True}],
            "/apis/example.com/v1": [
                {"name": "widgets", "kind": "Widget", "namespaced": True},
                {"name": "widgets/scale", "kind": "Scale", "namespaced": True},
            ],
        }
        self.down: set[str] = set()

    async def request(self, method: str, path: str, /, *, query: Mapping[str, str] | None = None) -> Response:
        self.asked.append(path)
        if path in self.down:
            raise ServiceUnavailable(503)
        if path == "/api":
            return _json({"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            return _json({"groups": [_group(name, versions) for name, versions in self.groups.items()]})
        if path not in self.resources:
            raise NotFound(404)
        return _json({"resources": self.resources[path]})


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": list(reversed(entries)), "preferredVersion": entries[0]}


def _json(body: dict[str, Any]) -> Response:
    return Response(200, {}, json.dumps(body).encode())


def test_versions_come_preferred_first() -> None:
    async def main() -> None:
        discovery = Discovery(Server().request, clock=virtual_clock())
        assert await discovery.versions("example.com") == ("v2", "v1")
        assert await discovery.versions("") == ("v1",)
        assert await discovery.versions("unknown.io") == ()

    run_virtual(main())


def test_a_kind_is_found_in_every_version_that_has_it() -> None:
    async def main() -> None:
        discovery = Discovery(Server().request, clock=virtual_clock())
        found = await discovery.resources_for("example.com", "Widget")
        assert [each.version for each in found] == ["v2", "v1"]
        assert [each.scale_type for each in found] == [None, ("example.com/v1", "Scale")]
        (deployment,) = await discovery.resources_for("apps", "Deployment")
        assert deployment.scale_type == ("autoscaling/v1", "Scale")
        assert deployment.group_resource == "deployments.apps"

    run_virtual(main())


def test_answers_are_remembered_until_they_are_old_or_forgotten() -> None:
    async def main() -> None:
        server, clock = Server(), virtual_clock()
        discovery = Discovery(server.request, clock=clock, lifetime=timedelta(seconds=100))
        for _ in range(3):
            await discovery.resources_for("apps", "Deployment")
        assert server.asked == ["/api", "/apis", "/apis/apps/v1"]
        await asyncio.sleep(101)
        await discovery.resources_for("apps", "Deployment")
        assert len(server.asked) == 6
        discovery.invalidate()
        await discovery.versions("apps")
        assert len(server.asked) == 8
        await asyncio.sleep(20)
        await discovery.versions("apps", max_age=timedelta(seconds=15))
        assert len(server.asked) == 10

    run_virtual(main())


def test_a_new_kind_is_found_without_waiting_for_the_lifetime() -> None:
    async def main() -> None:
        server = Server()
        discovery = Discovery(server.request, clock=virtual_clock())
        assert await discovery.resources_for("new.io", "Thing") == ()
        server.groups["new.io"] = ["v1"]
        server.resources["/apis/new.io/v1"] = [{"name": "things", "kind": "Thing", "namespaced": True}]
        # Not at once: a typo in one object must not become a stream of requests.
        assert await discovery.resources_for("new.io", "Thing") == ()
        await asyncio.sleep(11)
        assert len(await discovery.resources_for("new.io", "Thing")) == 1

    run_virtual(main())


def test_one_version_whose_server_is_down_does_not_hide_the_others() -> None:
    async def main() -> None:
        server = Server()
        server.down.add("/apis/example.com/v2")
        discovery = Discovery(server.request, clock=virtual_clock())
        assert [each.version for each in await discovery.resources_for("example.com", "Widget")] == ["v1"]
        server.down.add("/apis/example.com/v1")
        discovery.invalidate()
        # Unknown is not absent: a group that cannot be read is an error, not a missing kind.
        with pytest.raises(ServiceUnavailable):
            await discovery.resources_for("example.com", "Widget")

    run_virtual(main())
