"""Cases of the verb suite for bodies in protobuf, which typed clients send by default."""

import json
from typing import Any

from cluster.verb_suite import Api, Raw, binding, case, deployment, pod
from protobuf_bodies import encode

PROTOBUF = "application/vnd.kubernetes.protobuf"
TEMPLATE: Raw = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "main", "image": "example.com/a:1"}]},
}
SELECTOR = {"matchLabels": {"app": "x"}}
ONCE: Raw = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
AT = "2026-01-02T03:04:05Z"
RBAC = "rbac.authorization.k8s.io"

WRITTEN: list[tuple[str, Raw]] = [
    ("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b", "empty": ""}, "immutable": False}),
    ("secrets", {"apiVersion": "v1", "kind": "Secret", "data": {"a": "cQ=="}, "stringData": {"b": "q"}}),
    ("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": False}),
    (
        "limitranges",
        {"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}},
    ),
    ("resourcequotas", {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "100"}}}),
    ("podtemplates", {"apiVersion": "v1", "kind": "PodTemplate", "template": TEMPLATE}),
    ("endpoints", {"apiVersion": "v1", "kind": "Endpoints", "subsets": [{"addresses": [{"ip": "10.1.2.3"}]}]}),
    (
        "services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {
                "clusterIP": "None",
                "ports": [{"name": "http", "port": 80}, {"name": "web", "port": 81, "targetPort": "web"}],
            },
        },
    ),
    (
        "replicationcontrollers",
        {
            "apiVersion": "v1",
            "kind": "ReplicationController",
            "spec": {"replicas": 0, "selector": {"app": "x"}, "template": TEMPLATE},
        },
    ),
    (
        "deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE},
        },
    ),
    (
        "replicasets",
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"selector": SELECTOR, "template": TEMPLATE}},
    ),
    (
        "daemonsets",
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"selector": SELECTOR, "template": TEMPLATE}},
    ),
    (
        "statefulsets",
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "spec": {"serviceName": "s", "selector": SELECTOR, "template": TEMPLATE},
        },
    ),
    (
        "controllerrevisions",
        {"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 3, "data": {"spec": {"a": [1, None]}}},
    ),
    ("jobs", {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": ONCE}}),
    (
        "cronjobs",
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ONCE}}},
        },
    ),
    (
        "horizontalpodautoscalers",
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
                "maxReplicas": 5,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "100m"}},
                    }
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        },
    ),
    (
        "horizontalpodautoscalers",
        {
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
                "maxReplicas": 5,
                "targetCPUUtilizationPercentage": 60,
            },
        },
    ),
    (
        "poddisruptionbudgets",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "spec": {"maxUnavailable": "25%", "selector": SELECTOR},
        },
    ),
    (
        "leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000006Z"},
        },
    ),
    (
        "endpointslices",
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": False}}],
        },
    ),
    (
        "networkpolicies",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]},
        },
    ),
    (
        "ingresses",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}},
        },
    ),
    (
        "roles",
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
        },
    ),
    (
        "rolebindings",
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "u"}],
        },
    ),
]


async def send(api: Api, method: str, path: str, obj: Raw, **query: str) -> tuple[int, Raw]:
    answer = await api.transport.request(
        method, path, query=query, body=encode(obj), content_type=PROTOBUF, accept="application/json", timeout=30
    )
    return answer.status, json.loads(answer.body)


def collection(api: Api, obj: Raw, plural: str) -> str:
    group, _, version = obj["apiVersion"].rpartition("/")
    return api.path(plural, group=group, version=version)


def told(made: Raw) -> Any:
    """Return an object without what is another for each."""
    text = json.dumps(made, sort_keys=True)
    text = text.replace(made["metadata"]["uid"], "uid").replace(f'"{made["metadata"]["name"]}"', '"name"')
    comparable = json.loads(text)
    for name in ("creationTimestamp", "resourceVersion", "managedFields"):
        comparable["metadata"].pop(name, None)
    return comparable


@case
async def an_object_in_protobuf_is_the_same_object(api: Api) -> None:
    for number, (plural, obj) in enumerate(WRITTEN):
        path = collection(api, obj, plural)
        made = []
        for name, call in ((f"one-{number}", api.call), (f"two-{number}", lambda *args: send(api, *args))):
            status, answer = await call("POST", path, {**obj, "metadata": {"name": name, "labels": {"a": "b"}}})
            assert status == 201, answer
            made.append(answer)
        assert told(made[0]) == told(made[1]), plural


@case
async def events_of_both_groups_come_in_protobuf(api: Api) -> None:
    about = {"kind": "Pod", "namespace": api.namespace, "name": "x", "uid": "1", "apiVersion": "v1"}
    old = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "old", "namespace": api.namespace},
        "involvedObject": about,
        "reason": "Killing",
        "message": "stopped",
        "source": {"component": "kubelet"},
        "firstTimestamp": AT,
        "lastTimestamp": AT,
        "count": 2,
        "type": "Normal",
    }
    new = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "new", "namespace": api.namespace},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "example.com/me",
        "reportingInstance": "me-1",
        "action": "Stop",
        "reason": "Killing",
        "regarding": about,
        "note": "stopped",
        "type": "Normal",
    }
    for obj in (old, new):
        status, made = await send(api, "POST", collection(api, obj, "events"), obj)
        assert status == 201, made
        assert {name: made[name] for name in obj if name != "metadata"} == {
            name: value for name, value in obj.items() if name != "metadata"
        }


@case
async def a_status_in_protobuf_is_stored_whole(api: Api) -> None:
    made = await api.make("deployments", deployment("web", 3), group="apps")
    condition = {
        "type": "Available",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastUpdateTime": AT,
        "lastTransitionTime": AT,
    }
    status = {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 2,
        "conditions": [condition],
    }
    code, answer = await send(
        api, "PUT", api.path("deployments", "web", "status", group="apps"), {**made, "status": status}
    )
    assert (code, answer["status"]) == (200, status), answer
    _, found = await api.call("GET", api.path("deployments", "web", group="apps"))
    assert found["status"] == status
    assert found["spec"] == made["spec"]
    assert found["metadata"]["generation"] == 1

    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 5},
    }
    made = await api.make("horizontalpodautoscalers", hpa, group="autoscaling", version="v2")
    current = {
        "type": "Resource",
        "resource": {"name": "cpu", "current": {"averageValue": "71m", "averageUtilization": 0}},
    }
    status = {
        "lastScaleTime": AT,
        "currentReplicas": 3,
        "desiredReplicas": 0,
        "currentMetrics": [current],
        "conditions": [
            {"type": "ScalingActive", "status": "False", "lastTransitionTime": AT, "reason": "R", "message": ""}
        ],
    }
    path = api.path("horizontalpodautoscalers", "web", "status", group="autoscaling", version="v2")
    code, answer = await send(api, "PUT", path, {**made, "status": status})
    assert code == 200, answer
    kept = {**answer["status"], "conditions": [{"message": "", **one} for one in answer["status"]["conditions"]]}
    assert kept == status


@case
async def subresources_take_protobuf(api: Api) -> None:
    await api.make("deployments", deployment("web", 3), group="apps")
    path = api.path("deployments", "web", "scale", group="apps")
    _, scale = await api.call("GET", path)
    code, answer = await send(api, "PUT", path, {**scale, "spec": {"replicas": 0}})
    assert (code, answer["spec"].get("replicas", 0)) == (200, 0), answer

    await api.make("pods", pod("one"))
    code, answer = await send(api, "POST", api.path("pods", "one", "binding"), binding("one"))
    assert code == 201, answer
    _, bound = await api.call("GET", api.path("pods", "one"))
    assert bound["spec"]["nodeName"] == "n"
    status = {"phase": "Running", "startTime": AT, "podIPs": [{"ip": "10.1.2.3"}], "podIP": "10.1.2.3"}
    code, answer = await send(api, "PUT", api.path("pods", "one", "status"), {**bound, "status": status})
    assert (code, answer["status"]["startTime"], answer["status"]["podIPs"]) == (200, AT, [{"ip": "10.1.2.3"}]), answer

    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "one", "namespace": api.namespace},
        "deleteOptions": {"preconditions": {"uid": "another"}},
    }
    code, answer = await send(api, "POST", api.path("pods", "one", "eviction"), eviction)
    assert (code, answer["reason"]) == (409, "Conflict"), answer

    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
    assert (await send(api, "POST", api.path("serviceaccounts"), account))[0] == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    code, answer = await send(api, "POST", api.path("serviceaccounts", "me", "token"), request)
    assert (code, bool(answer["status"]["token"])) == (201, True), answer

    asked = {"resourceAttributes": {"verb": "get", "resource": "pods"}, "user": "nobody", "groups": ["none"]}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
    code, answer = await send(api, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert (code, answer["status"]["allowed"]) == (201, False), answer
    assert answer["spec"] == asked


@case
async def how_to_delete_comes_in_protobuf(api: Api) -> None:
    for name in ("one", "two"):
        await api.make("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}
    code, answer = await send(api, "DELETE", api.path("configmaps", "one"), options)
    assert (code, answer["reason"]) == (409, "Conflict"), answer
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
    assert (await send(api, "DELETE", api.path("configmaps", "one"), options))[0] == 200
    assert (await api.call("GET", api.path("configmaps", "one")))[0] == 200
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert (await send(api, "DELETE", api.path("configmaps", "one"), options))[0] == 200
    assert (await api.call("GET", api.path("configmaps", "one")))[0] == 404
    assert (await send(api, "DELETE", api.path("configmaps"), options))[0] == 200
    assert (await api.call("GET", api.path("configmaps", "two")))[0] == 404


@case
async def a_definition_of_a_type_comes_in_protobuf(api: Api) -> None:
    group = f"{api.namespace}.example.com"
    properties = {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
                "mode": {"type": "string", "enum": ["a", "b"], "nullable": True},
                "parts": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "more": {"type": "object", "additionalProperties": {"type": "number", "multipleOf": 0.5}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
            "x-kubernetes-validations": [{"rule": "self.size < 9", "message": "too large"}],
        }
    }
    versions = [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
            },
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        }
    ]
    names = {"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"boxes.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": versions},
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    code, made = await send(api, "POST", path, crd)
    assert code == 201, made
    assert made["spec"]["versions"] == versions
    assert (await api.call("DELETE", f"{path}/boxes.{group}"))[0] == 200
