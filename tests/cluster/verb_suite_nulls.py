"""More of the verb suite: nulls where an item of a list or a value of a map belongs."""

from collections.abc import Callable
from typing import Any

from cluster.verb_suite import JSON_PATCH, MERGE, Api, Raw, case, config, defined, deployment, pod

CONTAINERS = {"spec": {"template": {"spec": {"containers": [None]}}}}


def changed(obj: Raw, change: Callable[[Raw], object]) -> Raw:
    change(obj["spec"])
    return obj


def causes(body: Raw) -> list[tuple[str, str, str]]:
    found = (body.get("details") or {}).get("causes") or ()
    return [(cause["field"], cause["reason"], cause["message"]) for cause in found]


def missing(field: str, why: str = "") -> tuple[str, str, str]:
    return field, "FieldValueRequired", f"Required value: {why}" if why else "Required value"


async def refused(api: Api, method: str, path: str, body: Any, **more: str) -> list[tuple[str, str, str]]:
    status, answer = await api.call(method, path, body, **more)
    assert (status, answer.get("reason")) == (422, "Invalid"), answer
    return causes(answer)


@case
async def a_null_in_a_list_is_an_empty_item_that_misses_what_items_need(api: Api) -> None:
    pods = api.path("pods")
    for change, field, names in (
        (lambda spec: spec.update(containers=[None]), "spec.containers[0]", ("name", "image")),
        (lambda spec: spec.update(initContainers=[None]), "spec.initContainers[0]", ("name", "image")),
        (lambda spec: spec.update(volumes=[None]), "spec.volumes[0]", ("name",)),
        (lambda spec: spec["containers"][0].update(env=[None]), "spec.containers[0].env[0]", ("name",)),
        (lambda spec: spec["containers"][0].update(ports=[None]), "spec.containers[0].ports[0]", ("containerPort",)),
    ):
        found = await refused(api, "POST", pods, changed(pod("one"), change))
        assert found == [missing(f"{field}.{name}") for name in names]
    [only] = await refused(api, "POST", pods, changed(pod("one"), lambda spec: spec.update(tolerations=[None])))
    assert only[:2] == ("spec.tolerations[0].operator", "FieldValueInvalid")


@case
async def changes_are_read_the_same_way(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", group="apps")
    expected = [missing(f"spec.template.spec.containers[0].{name}") for name in ("name", "image")]
    assert await refused(api, "PATCH", path, CONTAINERS, kind=MERGE) == expected
    replace = [{"op": "replace", "path": "/spec/template/spec/containers", "value": [None]}]
    assert await refused(api, "PATCH", path, replace, kind=JSON_PATCH) == expected
    whole = changed(deployment("web"), lambda spec: spec["template"]["spec"].update(containers=[None]))
    assert await refused(api, "PUT", path, whole) == expected
    status = {**pod("one"), "status": {"conditions": [None]}}
    await api.make("pods", pod("one"))
    found = await refused(api, "PUT", api.path("pods", "one", "status"), status)
    assert {field for field, _, _ in found} == {"status.conditions[0].Type"}


@case
async def nulls_in_other_types_are_empty_items_too(api: Api) -> None:
    rules = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [None]}
    found = await refused(api, "POST", api.path("roles", group="rbac.authorization.k8s.io"), rules)
    # Order and wording are not the same in all versions of Kubernetes.
    assert sorted((field, reason) for field, reason, _ in found) == [
        (f"rules[0].{field}", "FieldValueRequired") for field in ("apiGroups", "resources", "verbs")
    ]
    service = {"metadata": {"name": "s"}, "spec": {"ports": [None]}}
    found = await refused(api, "POST", api.path("services"), service)
    assert [field for field, _, _ in found] == ["spec.ports[0].port", "spec.ports[0].targetPort"]
    selector = changed(deployment("web"), lambda spec: spec["selector"].update(matchExpressions=[None]))
    found = await refused(api, "POST", api.path("deployments", group="apps"), selector)
    assert found[0][0] == "spec.selector.matchExpressions[0].operator"
    owned = {"metadata": {"name": "c", "ownerReferences": [None], "finalizers": [None]}}
    found = await refused(api, "POST", api.path("configmaps"), owned)
    # Since 1.37 Kubernetes says which of the references it means.
    assert {field.replace("References[0]", "References") for field, _, _ in found} == {
        *(f"metadata.ownerReferences.{field}" for field in ("apiVersion", "kind", "name", "uid")),
        "metadata.finalizers",
        "metadata.finalizers[0]",
    }


@case
async def an_autoscaler_says_what_its_empty_metric_and_policy_miss(api: Api) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "metrics": [None]}
    path = api.path("horizontalpodautoscalers", group="autoscaling", version="v2")
    found = await refused(api, "POST", path, {"metadata": {"name": "h"}, "spec": spec})
    assert found[0] == missing("spec.metrics[0].type", "must specify a metric source type")
    allowed = '"ContainerResource", "External", "Object", "Pods", "Resource"'
    unsupported = f'Unsupported value: "": supported values: {allowed}'
    assert found[1] == ("spec.metrics[0].type", "FieldValueNotSupported", unsupported)
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "behavior": {"scaleUp": {"policies": [None]}}}
    found = await refused(api, "POST", path, {"metadata": {"name": "h"}, "spec": spec})
    rule = "Invalid value: 0: must be greater than zero"
    policy = "spec.behavior.scaleUp.policies[0]"
    assert found[1:] == [(f"{policy}.{name}", "FieldValueInvalid", rule) for name in ("value", "periodSeconds")]


@case
async def a_null_among_values_is_the_empty_value(api: Api) -> None:
    made = await api.make("configmaps", {**config("one"), "data": {"a": None, "b": "c"}})
    assert made["data"] == {"a": "", "b": "c"}
    wanted = pod("one")
    wanted["metadata"]["labels"] = {"a": None}
    container = wanted["spec"]["containers"][0]
    container["args"] = [None, "b"]
    container["resources"] = {"limits": {"cpu": None}}
    wanted["spec"] |= {"imagePullSecrets": [None], "securityContext": {"supplementalGroups": [None]}}
    made = await api.make("pods", wanted)
    container = made["spec"]["containers"][0]
    assert made["metadata"]["labels"] == {"a": ""}
    assert (container["args"], container["resources"]["limits"]) == (["", "b"], {"cpu": "0"})
    assert made["spec"]["imagePullSecrets"] == [{}]
    assert made["spec"]["securityContext"]["supplementalGroups"] == [0]


def gadgets(group: str) -> Raw:
    thing = {"type": "object", "properties": {"a": {"type": "string"}}}
    properties = {
        "things": {"type": "array", "items": thing},
        "defaulted": {"type": "array", "items": {**thing, "default": {"a": "x"}}},
        "nullable": {"type": "array", "items": {**thing, "nullable": True}},
        "text": {"type": "string"},
        "texts": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@case
async def a_custom_resource_keeps_drops_or_refuses_nulls_as_its_schema_says(api: Api) -> None:
    group = f"{api.namespace}.example.com"
    async with defined(api, gadgets(group)):
        head = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "one"}}
        spec = {"defaulted": [None], "nullable": [None], "text": None, "texts": {"a": None, "b": "c"}}
        made = await api.make("gadgets", {**head, "spec": spec}, group=group)
        assert made["spec"] == {"defaulted": [{"a": "x"}], "nullable": [None], "texts": {"b": "c"}}
        found = await refused(api, "POST", api.path("gadgets", group=group), {**head, "spec": {"things": [None]}})
        assert [(field, reason) for field, reason, _ in found] == [("spec.things[0]", "FieldValueTypeInvalid")]
