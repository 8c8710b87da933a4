"""What every API server must do, as one list of cases over a transport.

The same cases run against the embedded server in process (`tests/cluster`), the same server over HTTPS
(`tests/http`) and a real kube-apiserver (`tests/e2e`). Where they may differ is in `verb_differences.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from kubetide.kube.client.transport import Transport

Raw = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Api:
    """A transport with a namespace, made for asserting."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace

    def path(self, plural: str, name: str = "", sub: str = "", *, group: str = "", version: str = "v1") -> str:
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return "/".join(part for part in (f"{base}/namespaces/{self.namespace}/{plural}", name, sub) if part)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> tuple[int, Raw]:
        data = json.dumps(body).encode() if body is not None else None
        answer = await self.transport.request(
            method, path, query=query, body=data, content_type=kind, accept=accept, timeout=30
        )
        return answer.status, json.loads(answer.body or b"{}")

    async def make(self, plural: str, body: Raw, *, group: str = "", version: str = "v1", **query: str) -> Raw:
        status, made = await self.call("POST", self.path(plural, group=group, version=version), body, **query)
        assert status == 201, made
        return made


Case = Callable[[Api], Awaitable[None]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def config(name: str = "", **data: str) -> Raw:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name} if name else {}, "data": data}


def pod(name: str, **labels: str) -> Raw:
    containers = [{"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": containers, "automountServiceAccountToken": False},
    }


def deployment(name: str, replicas: int = 1) -> Raw:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]},
            },
        },
    }


def binding(name: str) -> Raw:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


def reason(body: Raw) -> str:
    return str(body.get("reason"))


# -- create and get


@case
async def a_created_object_has_identity_and_comes_back_as_it_was(api: Api) -> None:
    made = await api.make("configmaps", config("one", a="b"))
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"]
    assert int(made["metadata"]["resourceVersion"]) > 0
    status, got = await api.call("GET", api.path("configmaps", "one"))
    assert status == 200
    assert got["data"] == {"a": "b"}
    assert got["metadata"]["uid"] == made["metadata"]["uid"]


@case
async def the_same_name_twice_is_already_there(api: Api) -> None:
    await api.make("configmaps", config("one"))
    status, body = await api.call("POST", api.path("configmaps"), config("one"))
    assert (status, reason(body)) == (409, "AlreadyExists")
    assert body["details"]["kind"] == "configmaps"
    assert body["message"] == 'configmaps "one" already exists'


@case
async def generate_name_makes_a_name_of_its_own(api: Api) -> None:
    body = config()
    body["metadata"] = {"generateName": "made-"}
    names = {(await api.make("configmaps", body))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)


@case
async def an_absent_object_is_not_found_and_the_answer_names_it(api: Api) -> None:
    status, body = await api.call("GET", api.path("deployments", "nope", group="apps"))
    assert (status, reason(body)) == (404, "NotFound")
    assert body["details"] == {"name": "nope", "group": "apps", "kind": "deployments"}
    assert body["message"] == 'deployments.apps "nope" not found'


@case
async def an_unknown_resource_is_not_found(api: Api) -> None:
    for path in ("/api/v1/gadgets", "/apis/no.such.group/v1/things"):
        answer = await api.transport.request("GET", path)
        assert answer.status == 404


@case
async def a_bad_name_is_invalid_and_the_field_is_named(api: Api) -> None:
    status, body = await api.call("POST", api.path("configmaps"), config("Not_A_Name"))
    assert (status, reason(body)) == (422, "Invalid")
    assert [cause["field"] for cause in body["details"]["causes"]] == ["metadata.name"]


@case
async def a_namespace_that_is_not_there_takes_nothing(api: Api) -> None:
    elsewhere = Api(api.transport, "no-such-namespace")
    status, body = await elsewhere.call("POST", elsewhere.path("configmaps"), config("one"))
    assert (status, reason(body)) == (404, "NotFound")


@case
async def the_namespace_in_the_body_must_be_that_of_the_path(api: Api) -> None:
    body = config("one")
    body["metadata"]["namespace"] = "default"
    status, answer = await api.call("POST", api.path("configmaps"), body)
    assert (status, reason(answer)) == (400, "BadRequest")


@case
async def a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    made = await api.make("configmaps", config("ghost"), dryRun="All")
    assert made["metadata"]["name"] == "ghost"
    status, _ = await api.call("GET", api.path("configmaps", "ghost"))
    assert status == 404


@case
async def a_body_that_is_no_json_is_a_bad_request(api: Api) -> None:
    answer = await api.transport.request("POST", api.path("configmaps"), body=b"{nonsense")
    assert answer.status == 400


# -- list


@case
async def a_list_is_sorted_and_has_a_version(api: Api) -> None:
    for name in ("c", "a", "b"):
        await api.make("configmaps", config(name))
    status, body = await api.call(
        "GET", api.path("configmaps"), labelSelector="", fieldSelector="metadata.name!=kube-root-ca.crt"
    )
    assert status == 200
    assert body["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in body["items"]] == ["a", "b", "c"]
    assert int(body["metadata"]["resourceVersion"]) > 0


@case
async def label_selectors_choose(api: Api) -> None:
    for name, tier in (("one", "a"), ("two", "b"), ("three", "c")):
        body = config(name)
        body["metadata"]["labels"] = {"tier": tier}
        await api.make("configmaps", body)

    async def chosen(selector: str) -> list[str]:
        _, found = await api.call("GET", api.path("configmaps"), labelSelector=selector)
        return sorted(item["metadata"]["name"] for item in found["items"])

    assert await chosen("tier=a") == ["one"]
    assert await chosen("tier in (a,b)") == ["one", "two"]
    assert await chosen("tier notin (a,b),tier") == ["three"]
    status, _ = await api.call("GET", api.path("configmaps"), labelSelector="tier in (")
    assert status == 400


@case
async def field_selectors_choose_and_unknown_fields_are_refused(api: Api) -> None:
    for name in ("one", "two"):
        await api.make("pods", pod(name))
    _, found = await api.call("GET", api.path("pods"), fieldSelector="metadata.name=one,status.phase=Pending")
    assert [item["metadata"]["name"] for item in found["items"]] == ["one"]
    status, _ = await api.call("GET", api.path("pods"), fieldSelector="spec.color=red")
    assert status == 400


@case
async def pages_make_one_consistent_list(api: Api) -> None:
    for number in range(5):
        await api.make("configmaps", config(f"p{number}", keep="yes"))
    selector = "metadata.name!=kube-root-ca.crt"
    _, first = await api.call("GET", api.path("configmaps"), limit="2", fieldSelector=selector)
    await api.make("configmaps", config("p9"))
    names = [item["metadata"]["name"] for item in first["items"]]
    token = first["metadata"]["continue"]
    while token:
        _, page = await api.call(
            "GET", api.path("configmaps"), limit="2", fieldSelector=selector, **{"continue": token}
        )
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
    assert names == [f"p{number}" for number in range(5)]


@case
async def an_exact_version_shows_the_past(api: Api) -> None:
    made = await api.make("configmaps", config("one", a="1"))
    await api.call("PATCH", api.path("configmaps", "one"), {"data": {"a": "2"}}, kind=MERGE)
    _, then = await api.call(
        "GET",
        api.path("configmaps"),
        resourceVersion=made["metadata"]["resourceVersion"],
        resourceVersionMatch="Exact",
        fieldSelector="metadata.name=one",
    )
    assert [item["data"] for item in then["items"]] == [{"a": "1"}]


# -- update and patch


@case
async def an_update_from_an_old_version_is_a_conflict(api: Api) -> None:
    made = await api.make("configmaps", config("one", a="1"))
    status, newer = await api.call("PUT", api.path("configmaps", "one"), {**made, "data": {"a": "2"}})
    assert status == 200
    assert int(newer["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    status, body = await api.call("PUT", api.path("configmaps", "one"), {**made, "data": {"a": "3"}})
    assert (status, reason(body)) == (409, "Conflict")


@case
async def an_update_that_changes_nothing_writes_nothing(api: Api) -> None:
    made = await api.make("configmaps", config("one", a="1"))
    status, same = await api.call("PUT", api.path("configmaps", "one"), made)
    assert status == 200
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@case
async def a_merge_patch_sets_and_removes(api: Api) -> None:
    await api.make("configmaps", config("one", a="1", b="2"))
    status, body = await api.call("PATCH", api.path("configmaps", "one"), {"data": {"a": None, "c": "3"}}, kind=MERGE)
    assert status == 200
    assert body["data"] == {"b": "2", "c": "3"}


@case
async def a_json_patch_applies_whole_or_not_at_all(api: Api) -> None:
    await api.make("configmaps", config("one", a="1"))
    operations = [
        {"op": "replace", "path": "/data/a", "value": "9"},
        {"op": "test", "path": "/data/a", "value": "other"},
    ]
    status, _ = await api.call("PATCH", api.path("configmaps", "one"), operations, kind=JSON_PATCH)
    assert status in (409, 422)
    status, body = await api.call("PATCH", api.path("configmaps", "one"), operations[:1], kind=JSON_PATCH)
    assert (status, body["data"]) == (200, {"a": "9"})


@case
async def a_strategic_patch_merges_containers_by_name(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    change = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "example.com/side:1"}]}}}}
    status, body = await api.call("PATCH", api.path("deployments", "web", group="apps"), change, kind=STRATEGIC)
    assert status == 200
    containers = body["spec"]["template"]["spec"]["containers"]
    assert sorted(container["name"] for container in containers) == ["main", "side"]


@case
async def an_unknown_patch_type_is_not_supported(api: Api) -> None:
    await api.make("configmaps", config("one"))
    status, body = await api.call("PATCH", api.path("configmaps", "one"), {}, kind="application/fancy+json")
    assert (status, reason(body)) == (415, "UnsupportedMediaType")


@case
async def a_patch_with_a_version_is_checked(api: Api) -> None:
    made = await api.make("configmaps", config("one", a="1"))
    await api.call("PATCH", api.path("configmaps", "one"), {"data": {"a": "2"}}, kind=MERGE)
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    status, body = await api.call("PATCH", api.path("configmaps", "one"), stale, kind=MERGE)
    assert (status, reason(body)) == (409, "Conflict")


@case
async def generation_counts_changes_of_the_spec_only(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", group="apps")
    _, labelled = await api.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
    assert labelled["metadata"]["generation"] == 1
    _, scaled = await api.call("PATCH", path, {"spec": {"replicas": 3}}, kind=MERGE)
    assert scaled["metadata"]["generation"] == 2


@case
async def the_selector_of_a_deployment_is_fixed(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    change = {
        "spec": {
            "selector": {"matchLabels": {"app": "other"}},
            "template": {"metadata": {"labels": {"app": "other"}}},
        }
    }
    status, body = await api.call("PATCH", api.path("deployments", "web", group="apps"), change, kind=MERGE)
    assert (status, reason(body)) == (422, "Invalid")


@case
async def applying_creates_then_merges_then_removes_what_was_left_out(api: Api) -> None:
    path = api.path("configmaps", "one")
    status, made = await api.call("PATCH", path, config("one", a="1", b="2"), kind=APPLY, fieldManager="mine")
    assert status == 201, made
    await api.call("PATCH", path, {"data": {"other": "x"}}, kind=MERGE, fieldManager="theirs")
    status, body = await api.call("PATCH", path, config("one", a="1"), kind=APPLY, fieldManager="mine")
    assert status == 200, body
    assert (status, body["data"]) == (200, {"a": "1", "other": "x"})


@case
async def applying_over_another_applier_is_a_conflict_unless_forced(api: Api) -> None:
    path = api.path("configmaps", "one")
    await api.call("PATCH", path, config("one", a="1"), kind=APPLY, fieldManager="mine")
    status, body = await api.call("PATCH", path, config("one", a="2"), kind=APPLY, fieldManager="theirs")
    assert (status, reason(body)) == (409, "Conflict")
    assert body["details"]["causes"][0]["field"] == ".data.a"
    status, body = await api.call("PATCH", path, config("one", a="2"), kind=APPLY, fieldManager="theirs", force="true")
    assert (status, body["data"]) == (200, {"a": "2"})


# -- delete


@case
async def a_deleted_object_is_gone(api: Api) -> None:
    made = await api.make("configmaps", config("one"))
    status, body = await api.call("DELETE", api.path("configmaps", "one"))
    assert (status, body["status"]) == (200, "Success")
    assert body["details"]["uid"] == made["metadata"]["uid"]
    assert (await api.call("GET", api.path("configmaps", "one")))[0] == 404


@case
async def preconditions_protect_the_wrong_object(api: Api) -> None:
    await api.make("configmaps", config("one"))
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "not-this-one"}}
    status, body = await api.call("DELETE", api.path("configmaps", "one"), options)
    assert (status, reason(body)) == (409, "Conflict")


@case
async def an_object_with_finalizers_waits_for_the_last_one(api: Api) -> None:
    body = config("one")
    body["metadata"]["finalizers"] = ["example.com/wait"]
    await api.make("configmaps", body)
    status, marked = await api.call("DELETE", api.path("configmaps", "one"))
    assert status == 200
    assert marked["metadata"]["deletionTimestamp"]
    status, _ = await api.call("PATCH", api.path("configmaps", "one"), {"metadata": {"finalizers": None}}, kind=MERGE)
    assert status == 200
    assert (await api.call("GET", api.path("configmaps", "one")))[0] == 404


@case
async def a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, keep in (("one", "no"), ("two", "no"), ("three", "yes")):
        body = config(name)
        body["metadata"]["labels"] = {"keep": keep}
        await api.make("configmaps", body)
    status, _ = await api.call("DELETE", api.path("configmaps"), labelSelector="keep=no")
    assert status == 200
    _, left = await api.call("GET", api.path("configmaps"), labelSelector="keep")
    assert [item["metadata"]["name"] for item in left["items"]] == ["three"]


@case
async def a_pod_without_a_node_is_deleted_at_once(api: Api) -> None:
    await api.make("pods", pod("one"))
    assert (await api.call("DELETE", api.path("pods", "one")))[0] == 200
    assert (await api.call("GET", api.path("pods", "one")))[0] == 404


@case
async def a_pod_on_a_node_is_given_its_grace_period(api: Api) -> None:
    await api.make("pods", pod("one"))
    target = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "one"},
        "target": {"kind": "Node", "name": "n"},
    }
    assert (await api.call("POST", api.path("pods", "one", "binding"), target))[0] == 201
    status, marked = await api.call("DELETE", api.path("pods", "one"))
    assert status == 200
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    status, _ = await api.call("DELETE", api.path("pods", "one"), gracePeriodSeconds="0")
    assert status == 200
    assert (await api.call("GET", api.path("pods", "one")))[0] == 404


# -- subresources


@case
async def status_and_spec_are_written_apart(api: Api) -> None:
    made = await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", group="apps")
    status, body = await api.call(
        "PUT", f"{path}/status", {**made, "spec": {**made["spec"], "replicas": 9}, "status": {"replicas": 4}}
    )
    assert status == 200
    assert (body["spec"]["replicas"], body["status"]["replicas"]) == (1, 4)
    _, body = await api.call("PATCH", path, {"spec": {"replicas": 2}, "status": {"replicas": 7}}, kind=MERGE)
    assert (body["spec"]["replicas"], body["status"]["replicas"]) == (2, 4)


@case
async def scale_reads_and_writes_the_replica_count(api: Api) -> None:
    await api.make("deployments", deployment("web", 2), group="apps")
    path = api.path("deployments", "web", "scale", group="apps")
    status, scale = await api.call("GET", path)
    assert (status, scale["kind"], scale["spec"]["replicas"]) == (200, "Scale", 2)
    assert scale["status"]["selector"] == "app=web"
    scale["spec"]["replicas"] = 5
    status, _ = await api.call("PUT", path, scale)
    assert status == 200
    status, body = await api.call("PUT", path, scale)
    assert (status, reason(body)) == (409, "Conflict")
    status, scale = await api.call("PATCH", path, {"spec": {"replicas": 1}}, kind=MERGE)
    assert (status, scale["spec"]["replicas"]) == (200, 1)
    status, body = await api.call("PATCH", path, {"spec": {"replicas": -1}}, kind=MERGE)
    assert (status, reason(body)) == (422, "Invalid")


@case
async def a_pod_is_bound_once(api: Api) -> None:
    await api.make("pods", pod("one"))
    target = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "one"},
        "target": {"kind": "Node", "name": "n"},
    }
    assert (await api.call("POST", api.path("pods", "one", "binding"), target))[0] == 201
    _, bound = await api.call("GET", api.path("pods", "one"))
    assert bound["spec"]["nodeName"] == "n"
    status, body = await api.call("POST", api.path("pods", "one", "binding"), target)
    assert (status, reason(body)) == (409, "Conflict")


@case
async def the_spec_of_a_pod_is_fixed_but_for_its_images(api: Api) -> None:
    await api.make("pods", pod("one"))
    path = api.path("pods", "one")
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "example.com/app:2"}]
    assert (await api.call("PATCH", path, image, kind=JSON_PATCH))[0] == 200
    cpu = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "2"}]
    status, body = await api.call("PATCH", path, cpu, kind=JSON_PATCH)
    assert (status, reason(body)) == (422, "Invalid")


@case
async def resize_changes_the_resources_of_a_pod(api: Api) -> None:
    await api.make("pods", pod("one"))
    change = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}
    status, body = await api.call("PATCH", api.path("pods", "one", "resize"), change, kind=STRATEGIC)
    assert status == 200, body
    assert body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"


@case
async def eviction_deletes_unless_a_budget_forbids_it(api: Api) -> None:
    for name in ("free", "guarded"):
        await api.make("pods", pod(name, app=name))
        path = api.path("pods", name, "status")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        assert (await api.call("PATCH", path, {"status": ready}, kind=MERGE))[0] == 200
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    made = await api.make("poddisruptionbudgets", budget, group="policy")
    made["status"] = {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    path = api.path("poddisruptionbudgets", "guard", "status", group="policy")
    assert (await api.call("PUT", path, made))[0] == 200

    def eviction(name: str) -> Raw:
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}

    status, _ = await api.call("POST", api.path("pods", "free", "eviction"), eviction("free"))
    assert status == 201
    assert (await api.call("GET", api.path("pods", "free")))[0] == 404
    status, body = await api.call("POST", api.path("pods", "guarded", "eviction"), eviction("guarded"))
    assert (status, reason(body)) == (429, "TooManyRequests")
    assert body["details"]["causes"][0]["reason"] == "DisruptionBudget"


# -- autoscalers in both versions


@case
async def an_autoscaler_has_two_faces(api: Api) -> None:
    body = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 4,
            "targetCPUUtilizationPercentage": 55,
        },
    }
    await api.make("horizontalpodautoscalers", body, group="autoscaling")
    path = api.path("horizontalpodautoscalers", "web", group="autoscaling", version="v2")
    _, modern = await api.call("GET", path)
    assert modern["spec"]["metrics"] == [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 55}},
        }
    ]
    status, refused = await api.call("PATCH", path, {"spec": {"maxReplicas": 0}}, kind=MERGE)
    assert (status, reason(refused)) == (422, "Invalid")


# -- watch


async def _lines(api: Api, plural: str, count: int, **query: str) -> list[Raw]:
    found: list[Raw] = []
    async with api.transport.watch(api.path(plural), query={"watch": "true", **query}) as lines:
        async for line in lines:
            found.append(json.loads(line))
            if len(found) == count:
                break
    return found


@case
async def a_watch_tells_every_change_after_a_version(api: Api) -> None:
    made = await api.make("configmaps", config("one", a="1"))
    path = api.path("configmaps", "one")
    await api.call("PATCH", path, {"data": {"a": "2"}}, kind=MERGE)
    await api.call("DELETE", path)
    events = await _lines(
        api, "configmaps", 2, resourceVersion=made["metadata"]["resourceVersion"], fieldSelector="metadata.name=one"
    )
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert int(made["metadata"]["resourceVersion"]) < versions[0] < versions[1]


@case
async def a_watch_sees_objects_enter_and_leave_its_selector(api: Api) -> None:
    made = await api.make("configmaps", config("one"))
    path = api.path("configmaps", "one")
    for labels in ({"on": "yes"}, {"on": None}):
        await api.call("PATCH", path, {"metadata": {"labels": labels}}, kind=MERGE)
    events = await _lines(
        api, "configmaps", 2, resourceVersion=made["metadata"]["resourceVersion"], labelSelector="on=yes"
    )
    assert [event["type"] for event in events] == ["ADDED", "DELETED"]


@case
async def a_watch_can_begin_with_the_state_and_a_bookmark(api: Api) -> None:
    await api.make("configmaps", config("one"))
    events = await _lines(
        api,
        "configmaps",
        2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        fieldSelector="metadata.name=one",
    )
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"], events
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@case
async def a_watch_ends_when_its_time_is_up(api: Api) -> None:
    async with api.transport.watch(
        api.path("configmaps"), query={"watch": "true", "timeoutSeconds": "1", "resourceVersion": "0"}
    ) as lines:
        async for _ in lines:
            pass


# -- other views


@case
async def a_table_has_columns_and_rows(api: Api) -> None:
    await api.make("pods", pod("one"))
    status, table = await api.call(
        "GET", api.path("pods"), accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    )
    assert (status, table["kind"]) == (200, "Table")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:3] == ["one", "0/1", "Pending"]


@case
async def metadata_can_be_had_alone(api: Api) -> None:
    await api.make("configmaps", config("one", a="1"))
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    _, body = await api.call("GET", api.path("configmaps", "one"), accept=accept)
    assert body["kind"] == "PartialObjectMetadata"
    assert "data" not in body


@case
async def discovery_lists_what_is_served(api: Api) -> None:
    _, groups = await api.call("GET", "/apis")
    by_name = {group["name"]: group for group in groups["groups"]}
    assert by_name["autoscaling"]["preferredVersion"]["version"] == "v2"
    _, resources = await api.call("GET", "/apis/apps/v1")
    by_resource = {item["name"]: item for item in resources["resources"]}
    assert by_resource["deployments"]["kind"] == "Deployment"
    assert by_resource["deployments/scale"]["kind"] == "Scale"
    assert "deploy" in by_resource["deployments"]["shortNames"]


# -- custom resources


def crd(group: str) -> Raw:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "color": {"type": "string", "default": "blue"},
                    "replicas": {"type": "integer"},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "text": {"type": "string"}}},
        },
    }
    version = {
        "served": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"]},
            "versions": [{**version, "name": "v1", "storage": True}, {**version, "name": "v1beta1", "storage": False}],
        },
    }


@case
async def a_custom_resource_is_pruned_defaulted_checked_and_served_in_every_version(api: Api) -> None:
    group = f"{api.namespace}.example.com"
    async with defined(api, crd(group)):
        gadget: Raw = {
            "apiVersion": f"{group}/v1",
            "kind": "Gadget",
            "metadata": {"name": "one"},
            "spec": {"size": 3, "typo": True, "free": {"any": 1}, "replicas": 2},
        }
        made = await api.make("gadgets", gadget, group=group)
        assert made["spec"] == {"size": 3, "color": "blue", "free": {"any": 1}, "replicas": 2}
        path = api.path("gadgets", "one", group=group)
        _, older = await api.call("GET", api.path("gadgets", "one", group=group, version="v1beta1"))
        assert older["apiVersion"] == f"{group}/v1beta1"
        status, body = await api.call("PATCH", path, {"spec": {"size": 0}}, kind=MERGE)
        assert (status, reason(body)) == (422, "Invalid")
        assert body["details"]["causes"][0]["field"] == "spec.size"
        status, body = await api.call("PATCH", path, {"spec": {"size": None}}, kind=MERGE)
        assert (status, reason(body)) == (422, "Invalid")
        status, body = await api.call("PATCH", f"{path}/status", {"status": {"text": "ok"}}, kind=MERGE)
        assert (status, body["metadata"]["generation"]) == (200, 1)
        status, scale = await api.call("PATCH", f"{path}/scale", {"spec": {"replicas": 7}}, kind=MERGE)
        assert (status, scale["spec"]["replicas"]) == (200, 7)
        _, table = await api.call(
            "GET", api.path("gadgets", group=group), accept="application/json;as=Table;v=v1;g=meta.k8s.io"
        )
        assert table["rows"][0]["cells"][:2] == ["one", 3]
        status, body = await api.call("PATCH", path, {"spec": {"size": 4}}, kind=STRATEGIC)
        assert status == 415
        status, body = await api.call("PATCH", path, {"spec": {"typo": 1}}, kind=MERGE, fieldValidation="Strict")
        assert status in (400, 422)


@asynccontextmanager
async def defined(api: Api, definition: Raw) -> AsyncIterator[None]:
    """Serve a custom resource while the block lasts."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = f"{definitions}/{definition['metadata']['name']}"
    status, body = await api.call("POST", definitions, definition)
    assert status == 201, body
    try:
        await established(api, name)
        yield
    finally:
        await api.call("DELETE", name)


async def established(api: Api, path: str) -> None:
    """Wait until a definition is served; a real server needs a moment."""
    for _ in range(100):
        _, body = await api.call("GET", path)
        conditions = {c["type"]: c["status"] for c in (body.get("status") or {}).get("conditions") or ()}
        group = body["spec"]["group"]
        answer = await api.transport.request("GET", f"/apis/{group}/v1/gadgets")
        if conditions.get("Established") == "True" and answer.status == 200:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{path} was never established")


# -- limits


@case
async def a_limit_range_fills_in_requests_and_limits(api: Api) -> None:
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits"},
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "default": {"memory": "128Mi"},
                    "defaultRequest": {"memory": "64Mi"},
                    "max": {"cpu": "1"},
                }
            ]
        },
    }
    await api.make("limitranges", limits)
    made = await api.make("pods", pod("one"))
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "1", "memory": "128Mi"},
    }
    body = pod("two")
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    status, answer = await api.call("POST", api.path("pods"), body)
    assert (status, reason(answer)) == (403, "Forbidden")


@case
async def only_a_pod_requests_what_it_is_limited_to(api: Api) -> None:
    resources = {"limits": {"cpu": "200m"}, "requests": {"memory": "64Mi"}}
    alone, body = pod("limited"), deployment("limited")
    alone["spec"]["containers"][0]["resources"] = resources
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    made = await api.make("pods", alone)
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "200m"},
        "requests": {"cpu": "200m", "memory": "64Mi"},
    }
    made = await api.make("deployments", body, group="apps")
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"] == resources


@case
async def kubectl_is_given_the_schemas_that_it_asks_for(api: Api) -> None:
    # The `@` of the older name is no part of a media type, and strict readers refuse it in an answer.
    given = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    for accept in (given, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"):
        answer = await api.transport.request("GET", "/openapi/v2", accept=accept, timeout=30)
        assert answer.status == 200
        assert answer.headers["content-type"].partition(";")[0] == given
