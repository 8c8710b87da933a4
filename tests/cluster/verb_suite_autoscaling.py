"""More of the verb suite: autoscalers and scales, with the gates of the newest release and without them."""

from typing import Any

from cluster.verb_suite import MERGE, Api, Case, Raw, case, deployment
from cluster.verb_suite_types import autoscaler, fields

WITHOUT_GATES: list[Case] = []
"""Cases for a server with `HPAScaleToZero` and `HPAGeneration` switched off."""

AVERAGE = {"type": "AverageValue", "averageValue": "30"}
QUEUE: Raw = {"type": "External", "external": {"metric": {"name": "queue"}, "target": AVERAGE}}


def without_gates(function: Case) -> Case:
    WITHOUT_GATES.append(function)
    return function


def hpas(api: Api, *more: str, version: str = "v2") -> str:
    return api.path("horizontalpodautoscalers", *more, group="autoscaling", version=version)


async def refused(api: Api, body: Raw) -> list[tuple[str, str]]:
    status, answer = await api.call("POST", hpas(api), body)
    assert status == 422, answer
    return sorted((cause["field"], cause["reason"]) for cause in answer["details"]["causes"])


async def make(api: Api, **spec: Any) -> Raw:
    return await api.make("horizontalpodautoscalers", autoscaler(**spec), group="autoscaling", version="v2")


@case
async def an_autoscaler_without_metrics_follows_the_cpu(api: Api) -> None:
    spec = (await make(api))["spec"]
    target = {"type": "Utilization", "averageUtilization": 80}
    assert spec["minReplicas"] == 1
    assert spec["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    assert "behavior" not in spec


@case
async def an_autoscaler_keeps_a_tolerance_per_direction(api: Api) -> None:
    behavior = {"scaleDown": {"tolerance": "0.05"}, "scaleUp": {"tolerance": "0"}}
    made = (await make(api, behavior=behavior))["spec"]["behavior"]
    assert (made["scaleDown"]["tolerance"], made["scaleUp"]["tolerance"]) == ("50m", "0")
    behavior = {"scaleUp": {"tolerance": "-0.1"}}
    found = await refused(api, autoscaler(behavior=behavior))
    assert found == [("spec.behavior.scaleUp.tolerance", "FieldValueInvalid")]


@case
async def an_autoscaler_at_zero_needs_a_metric_that_zero_pods_have(api: Api) -> None:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}
    assert await refused(api, autoscaler(minReplicas=0, metrics=[cpu])) == [("spec.metrics", "FieldValueForbidden")]
    described = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"}
    hits = {
        "type": "Object",
        "object": {"describedObject": described, "metric": {"name": "hits"}, "target": {"type": "Value", "value": "9"}},
    }
    made = await make(api, minReplicas=0, metrics=[cpu, hits])
    assert made["spec"]["minReplicas"] == 0
    assert (await refused(api, autoscaler(minReplicas=-1)))[0][0] == "spec.minReplicas"


@case
async def an_autoscaler_is_told_the_same_mistake_once(api: Api) -> None:
    found = await refused(api, autoscaler(metrics=[{"type": "Luck"}]))
    assert found == [("spec.metrics[0].type", "FieldValueNotSupported")]


@case
async def an_autoscaler_of_a_replication_controller_needs_no_group(api: Api) -> None:
    target = {"apiVersion": "v1", "kind": "ReplicationController", "name": "old"}
    assert (await make(api, scaleTargetRef=target))["spec"]["scaleTargetRef"] == target
    target = {**target, "apiVersion": "a/b/c"}
    assert await refused(api, autoscaler(scaleTargetRef=target)) == [
        ("spec.scaleTargetRef.apiVersion", "FieldValueInvalid")
    ]


@case
async def a_described_object_has_a_version_that_can_be_read(api: Api) -> None:
    metric = {"metric": {"name": "hits"}, "target": {"type": "Value", "value": "9"}}

    def hits(version: str) -> Raw:
        described = {"apiVersion": version, "kind": "Service", "name": "front"}
        return {"type": "Object", "object": {**metric, "describedObject": described}}

    assert await refused(api, autoscaler(metrics=[hits("a/b/c")])) == [
        ("spec.metrics[0].object.describedObject.apiVersion", "FieldValueInvalid")
    ]
    assert (await make(api, metrics=[hits("v1")]))["spec"]["metrics"][0]["object"]["describedObject"][
        "kind"
    ] == "Service"


@case
async def an_average_of_an_object_survives_the_older_version(api: Api) -> None:
    described = {"apiVersion": "v1", "kind": "Service", "name": "front"}
    hits = {"type": "Object", "object": {"describedObject": described, "metric": {"name": "hits"}, "target": AVERAGE}}
    await make(api, metrics=[hits])
    status, old = await api.call("GET", hpas(api, "web", version="v1"))
    assert status == 200
    status, answer = await api.call("PUT", hpas(api, "web", version="v1"), old)
    assert status == 200, answer
    _, again = await api.call("GET", hpas(api, "web"))
    assert again["spec"]["metrics"][0]["object"]["target"] == AVERAGE


@case
async def the_status_of_an_autoscaler_says_which_spec_it_is_about(api: Api) -> None:
    await make(api)
    condition = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": ""}
    status = {"observedGeneration": 1, "currentReplicas": 1, "desiredReplicas": 1}
    body = {"status": {**status, "conditions": [{**condition, "observedGeneration": 1}]}}
    code, changed = await api.call("PATCH", hpas(api, "web", "status"), body, kind=MERGE)
    assert code == 200, changed
    assert changed["status"]["observedGeneration"] == changed["metadata"]["generation"] == 1
    assert changed["status"]["conditions"][0]["observedGeneration"] == 1
    body = {"status": {**status, "conditions": [{**condition, "observedGeneration": -1}]}}
    code, answer = await api.call("PATCH", hpas(api, "web", "status"), body, kind=MERGE)
    assert (code, fields(answer)) == (422, ["status.conditions[0].observedGeneration"])


@case
async def a_scale_is_checked_by_its_count_alone(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", "scale", group="apps")
    status, answer = await api.call("PATCH", path, {"spec": {"replicas": -1}}, kind=MERGE)
    assert (status, fields(answer)) == (422, ["spec.replicas"])
    _, scale = await api.call("GET", path)
    scale["metadata"]["labels"] = {"not a label!": "x"}
    scale["spec"]["replicas"] = 3
    status, changed = await api.call("PUT", path, scale)
    assert (status, changed["spec"]["replicas"]) == (200, 3)


@case
async def who_manages_a_scale_is_the_servers_to_say(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", "scale", group="apps")
    _, scale = await api.call("GET", path)
    entry = {"manager": "me", "operation": "Guess", "apiVersion": "apps/v1", "fieldsType": "FieldsV9"}
    scale["metadata"]["managedFields"] = [entry]
    scale["spec"]["replicas"] = 4
    status, changed = await api.call("PUT", path, scale)
    assert (status, changed["spec"]["replicas"]) == (200, 4), changed
    _, found = await api.call("GET", api.path("deployments", "web", group="apps"))
    operations = {one["operation"] for one in found["metadata"].get("managedFields") or ()}
    assert operations <= {"Apply", "Update"}


@without_gates
async def a_minimum_of_zero_is_refused(api: Api) -> None:
    assert [field for field, _ in await refused(api, autoscaler(minReplicas=0, metrics=[QUEUE]))] == [
        "spec.minReplicas"
    ]


@without_gates
async def a_generation_is_not_counted(api: Api) -> None:
    await make(api)
    _, changed = await api.call("PATCH", hpas(api, "web"), {"spec": {"maxReplicas": 7}}, kind=MERGE)
    assert "generation" not in changed["metadata"]
