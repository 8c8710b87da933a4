"""Admission webhooks in process and in virtual time: who is asked about what, in what order, with what effect."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubetide.api.objects.admission import review_response
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock

Raw = dict[str, Any]
CONFIGS = "/api/v1/namespaces/default/configmaps"
ALL_CONFIGS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}


class World:
    """An API server with webhooks that are functions, and a record of what they were asked."""

    def __init__(self) -> None:
        self.api = ApiServer(clock=virtual_clock())
        self.transport = InProcessTransport(self.api)
        self.asked: list[str] = []

    def hook(
        self, name: str, answer: Callable[[Raw], Raw] | None = None, *, validating: bool = False, **more: Any
    ) -> None:
        async def review(body: Raw) -> Raw:
            request = body["request"]
            self.asked.append(name)
            given = answer(request) if answer is not None else {}
            return review_response(request["uid"], **given)

        self.api.admission.register_local(name, review)
        raw = {
            "name": f"{name}.example.com",
            "clientConfig": {"url": f"local://{name}"},
            "rules": [ALL_CONFIGS],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        kind = "ValidatingWebhookConfiguration" if validating else "MutatingWebhookConfiguration"
        version = "admissionregistration.k8s.io/v1"
        self.api.insert({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "webhooks": [raw]})

    async def send(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Raw]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else None
        answer = await self.transport.request(method, path, body=data, content_type=kind, query=query)
        return answer.status, json.loads(answer.body)

    async def make(self, name: str = "one", **metadata: Any) -> tuple[int, Raw]:
        return await self.send("POST", CONFIGS, {"metadata": {"name": name, **metadata}})


def in_world(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(World())

    run_virtual(main())


def adds(key: str, value: str) -> Callable[[Raw], Raw]:
    def answer(request: Raw) -> Raw:
        data = {**(request["object"].get("data") or {}), key: value}
        return {"patch": [{"op": "add", "path": "/data", "value": data}]}

    return answer


def test_mutating_hooks_are_asked_in_the_order_of_their_names_and_see_each_other() -> None:
    async def main(world: World) -> None:
        world.hook("b", lambda r: {"patch": [{"op": "add", "path": "/data/seen", "value": r["object"]["data"]["a"]}]})
        world.hook("a", adds("a", "1"))
        _, made = await world.make()
        assert world.asked == ["a", "b"]
        assert made["data"] == {"a": "1", "seen": "1"}

    in_world(main)


def test_a_hook_that_asks_for_it_is_asked_again_when_a_later_one_changed_the_object() -> None:
    async def main(world: World) -> None:
        world.hook("a", reinvocationPolicy="IfNeeded")
        world.hook("b", adds("b", "1"))
        await world.make()
        assert world.asked == ["a", "b", "a"]

    in_world(main)


def test_validating_hooks_see_the_final_object_and_can_only_say_no() -> None:
    async def main(world: World) -> None:
        world.hook("m", adds("color", "red"))
        world.hook(
            "v", lambda r: {"allowed": r["object"]["data"]["color"] != "red", "message": "no red"}, validating=True
        )
        status, body = await world.make()
        assert status == 403
        assert "no red" in body["message"]
        assert (await world.send("GET", f"{CONFIGS}/one"))[0] == 404

    in_world(main)


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        pytest.param({}, True, id="everything"),
        pytest.param({"rules": [{**ALL_CONFIGS, "operations": ["UPDATE"]}]}, False, id="another-operation"),
        pytest.param({"rules": [{**ALL_CONFIGS, "resources": ["pods"]}]}, False, id="another-resource"),
        pytest.param({"rules": [{**ALL_CONFIGS, "resources": ["*"]}]}, True, id="any-resource"),
        pytest.param({"rules": [{**ALL_CONFIGS, "resources": ["*/*"]}]}, True, id="anything-at-all"),
        pytest.param({"rules": [{**ALL_CONFIGS, "scope": "Cluster"}]}, False, id="another-scope"),
        pytest.param({"objectSelector": {"matchLabels": {"a": "b"}}}, True, id="object-selected"),
        pytest.param({"objectSelector": {"matchLabels": {"a": "c"}}}, False, id="object-not-selected"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True, id="namespace"
        ),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "red"}}}, False, id="another-namespace"),
        pytest.param(
            {"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'one'"}]}, True, id="condition"
        ),
        pytest.param(
            {"matchConditions": [{"name": "c", "expression": "request.userInfo.username == 'ann'"}]},
            False,
            id="not-true",
        ),
    ],
)
def test_a_hook_is_asked_about_what_it_names(more: Raw, asked: bool) -> None:
    async def main(world: World) -> None:
        world.hook("h", **more)
        status, _ = await world.make(labels={"a": "b"})
        assert status == 201
        assert world.asked == (["h"] if asked else [])

    in_world(main)


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
def test_a_hook_that_takes_too_long_counts_as_its_policy_says(policy: str, status: int) -> None:
    async def main(world: World) -> None:
        world.hook("slow", failurePolicy=policy, timeoutSeconds=5)

        async def sleep(body: Raw) -> Raw:
            await asyncio.sleep(3600)
            return {}

        world.api.admission.register_local("slow", sleep)
        begin = world.api.clock.monotonic()
        assert (await world.make())[0] == status
        assert world.api.clock.monotonic() - begin == pytest.approx(5)

    in_world(main)


def test_deletions_and_evictions_are_asked_about_with_the_old_object() -> None:
    async def main(world: World) -> None:
        world.hook(
            "d", lambda r: {"allowed": r["operation"] != "DELETE" or r["oldObject"]["metadata"]["name"] != "kept"}
        )
        await world.make("kept")
        await world.make("free")
        assert (await world.send("DELETE", f"{CONFIGS}/kept"))[0] == 403
        assert (await world.send("DELETE", f"{CONFIGS}/free"))[0] == 200

    in_world(main)


def test_a_write_that_changes_under_a_webhook_begins_again() -> None:
    async def main(world: World) -> None:
        await world.make()
        world.hook("h")
        rounds = 0

        async def meddle(body: Raw) -> Raw:
            nonlocal rounds
            rounds += 1
            if rounds == 1:
                assert (await world.send("PATCH", f"{CONFIGS}/one", {"data": {"theirs": "1"}}))[0] == 200
            return review_response(body["request"]["uid"])

        world.api.admission.register_local("h", meddle)
        status, body = await world.send("PATCH", f"{CONFIGS}/one", {"data": {"ours": "1"}})
        assert (status, body["data"]) == (200, {"theirs": "1", "ours": "1"})

    in_world(main)


def test_a_dry_run_is_refused_by_hooks_with_side_effects() -> None:
    async def main(world: World) -> None:
        world.hook("h", sideEffects="Some")
        status, _ = await world.send("POST", CONFIGS, {"metadata": {"name": "x"}}, dryRun="All")
        assert status == 400
        assert (await world.make())[0] == 201

    in_world(main)


def test_warnings_reach_the_client() -> None:
    async def main(world: World) -> None:
        world.hook("h", lambda r: {"warnings": ['mind the "gap"']})
        answer = await world.transport.request("POST", CONFIGS, body=b'{"metadata":{"name":"x"}}')
        assert answer.headers["warning"] == '299 - "mind the \\"gap\\""'

    in_world(main)


def test_webhook_configurations_are_not_subject_to_webhooks() -> None:
    async def main(world: World) -> None:
        rules = [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]
        world.hook("h", lambda r: {"allowed": False}, rules=rules)
        path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/h"
        assert (await world.make())[0] == 403
        assert (await world.send("DELETE", path))[0] == 200
        assert (await world.make())[0] == 201

    in_world(main)


def test_a_hook_sees_the_version_that_its_rules_name() -> None:
    async def main(world: World) -> None:
        seen: list[str] = []

        def look(request: Raw) -> Raw:
            seen.append(request["object"]["apiVersion"])
            return {"patch": [{"op": "replace", "path": "/spec/maxReplicas", "value": 7}]}

        rule = {
            "apiGroups": ["autoscaling"],
            "apiVersions": ["v1"],
            "resources": ["horizontalpodautoscalers"],
            "operations": ["*"],
        }
        world.hook("h", look, rules=[rule])
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        body = {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
        status, made = await world.send("POST", path, body)
        assert (status, made["spec"]["maxReplicas"], made["apiVersion"]) == (201, 7, "autoscaling/v2")
        assert seen == ["autoscaling/v1"]

    in_world(main)
