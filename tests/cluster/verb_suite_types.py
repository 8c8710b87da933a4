"""More of the verb suite: what the built-in types default, refuse and keep."""

import copy

from cluster.verb_suite import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Api,
    Raw,
    binding,
    case,
    config,
    deployment,
    pod,
    reason,
)


def fields(body: Raw) -> list[str]:
    return sorted({cause["field"] for cause in body["details"]["causes"]})


@case
async def a_new_object_begins_without_the_status_its_creator_sent(api: Api) -> None:
    body = {**deployment("web"), "status": {"replicas": 7}}
    made = await api.make("deployments", body, group="apps")
    assert "replicas" not in made["status"] if "status" in made else True
    made = await api.make("pods", {**pod("one"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "Burstable"


@case
async def a_pod_is_defaulted(api: Api) -> None:
    spec = (await api.make("pods", pod("one")))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"


@case
async def limits_become_requests_and_quantities_are_canonical(api: Api) -> None:
    body = pod("one")
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "0.5", "memory": "1024Mi"}}
    made = await api.make("pods", body)
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert made["status"]["qosClass"] == "Guaranteed"


@case
async def a_deployment_is_defaulted(api: Api) -> None:
    body = deployment("web")
    del body["spec"]["replicas"]
    spec = (await api.make("deployments", body, group="apps"))["spec"]
    assert spec["replicas"] == 1
    assert spec["revisionHistoryLimit"] == 10
    assert spec["progressDeadlineSeconds"] == 600
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }


@case
async def a_job_gets_a_selector_of_its_own(api: Api) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/job:1"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": template}}
    made = await api.make("jobs", job, group="batch")
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == "once"
    assert (made["spec"]["parallelism"], made["spec"]["completions"], made["spec"]["backoffLimit"]) == (1, 1, 6)


@case
async def a_service_gets_an_address(api: Api) -> None:
    service = {"metadata": {"name": "front"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}
    spec = (await api.make("services", service))["spec"]
    assert spec["type"] == "ClusterIP"
    assert spec["clusterIP"].count(".") == 3
    assert spec["ports"][0]["protocol"] == "TCP"
    assert spec["ports"][0]["targetPort"] == 80


def autoscaler(**spec: object) -> Raw:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 4, **spec},
    }


@case
async def an_autoscaler_counts_its_generation(api: Api) -> None:
    made = await api.make("horizontalpodautoscalers", autoscaler(), group="autoscaling", version="v2")
    path = api.path("horizontalpodautoscalers", "web", group="autoscaling", version="v2")
    seen = [made["metadata"]["generation"]]
    for patch in ({"metadata": {"labels": {"a": "b"}, "generation": 9}}, {"spec": {"maxReplicas": 5}}):
        _, changed = await api.call("PATCH", path, patch, kind=MERGE)
        seen.append(changed["metadata"]["generation"])
    assert seen == [1, 1, 2]


@case
async def an_autoscaler_names_the_group_of_its_target_and_a_maximum(api: Api) -> None:
    path = api.path("horizontalpodautoscalers", group="autoscaling", version="v2")
    body = autoscaler(scaleTargetRef={"apiVersion": "v1", "kind": "Deployment", "name": "web"}, maxReplicas=0)
    status, refused = await api.call("POST", path, body)
    assert status == 422
    causes = {(cause["field"], cause["reason"]) for cause in refused["details"]["causes"]}
    assert causes == {
        ("spec.scaleTargetRef.apiVersion", "FieldValueInvalid"),
        ("spec.maxReplicas", "FieldValueRequired"),
        ("spec.maxReplicas", "FieldValueInvalid"),
    }


@case
async def an_autoscaler_may_go_down_to_zero_by_a_metric_from_outside(api: Api) -> None:
    path = api.path("horizontalpodautoscalers", group="autoscaling", version="v2")
    status, refused = await api.call("POST", path, autoscaler(minReplicas=0))
    assert (status, fields(refused)) == (422, ["spec.metrics"])
    target = {"type": "AverageValue", "averageValue": "30"}
    queue = {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}
    status, made = await api.call("POST", path, autoscaler(minReplicas=0, metrics=[queue]))
    assert (status, made["spec"]["minReplicas"]) == (201, 0)


@case
async def an_autoscaler_behavior_is_completed(api: Api) -> None:
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 4,
            "behavior": {"scaleUp": {"stabilizationWindowSeconds": 30}},
        },
    }
    made = await api.make("horizontalpodautoscalers", body, group="autoscaling", version="v2")
    up, down = made["spec"]["behavior"]["scaleUp"], made["spec"]["behavior"]["scaleDown"]
    assert (up["stabilizationWindowSeconds"], up["selectPolicy"], len(up["policies"])) == (30, "Max", 2)
    assert "stabilizationWindowSeconds" not in down
    assert made["spec"]["minReplicas"] == 1


@case
async def broken_pods_are_refused_field_by_field(api: Api) -> None:
    body = pod("one")
    body["spec"]["containers"].append(copy.deepcopy(body["spec"]["containers"][0]))
    status, answer = await api.call("POST", api.path("pods"), body)
    assert (status, fields(answer)) == (422, ["spec.containers[1].name"])
    body = pod("one")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    status, answer = await api.call("POST", api.path("pods"), body)
    assert (status, fields(answer)) == (422, ["spec.containers[0].resources.requests"])
    body = pod("one")
    del body["spec"]["containers"][0]["image"]
    status, answer = await api.call("POST", api.path("pods"), body)
    assert (status, fields(answer)) == (422, ["spec.containers[0].image"])
    body = pod("one")
    body["spec"]["containers"] = "none"
    assert (await api.call("POST", api.path("pods"), body))[0] == 400


@case
async def broken_deployments_are_refused(api: Api) -> None:
    body = deployment("web")
    body["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    status, answer = await api.call("POST", api.path("deployments", group="apps"), body)
    assert (status, fields(answer)) == (422, ["spec.template.metadata.labels"])
    body = deployment("web", -1)
    status, answer = await api.call("POST", api.path("deployments", group="apps"), body)
    assert (status, fields(answer)) == (422, ["spec.replicas"])
    body = deployment("web")
    body["spec"]["replicas"] = "many"
    assert (await api.call("POST", api.path("deployments", group="apps"), body))[0] == 400


@case
async def bad_labels_are_refused(api: Api) -> None:
    body = config("one")
    body["metadata"]["labels"] = {"a": "not a value"}
    status, answer = await api.call("POST", api.path("configmaps"), body)
    assert (status, fields(answer)) == (422, ["metadata.labels"])


@case
async def a_strategic_patch_puts_new_elements_first_and_deletes_on_demand(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", group="apps")

    async def patched(*containers: Raw) -> list[str]:
        change = {"spec": {"template": {"spec": {"containers": list(containers)}}}}
        status, body = await api.call("PATCH", path, change, kind=STRATEGIC)
        assert status == 200, body
        return [container["name"] for container in body["spec"]["template"]["spec"]["containers"]]

    assert await patched({"name": "side", "image": "example.com/side:1"}) == ["side", "main"]
    assert await patched({"name": "main", "$patch": "delete"}) == ["side"]


@case
async def conditions_of_a_pod_merge_by_type(api: Api) -> None:
    await api.make("pods", pod("one"))
    path = api.path("pods", "one", "status")
    for kind, status in (("Ready", "False"), ("Initialized", "True"), ("Ready", "True")):
        change = {"status": {"conditions": [{"type": kind, "status": status}]}}
        assert (await api.call("PATCH", path, change, kind=STRATEGIC))[0] == 200
    _, body = await api.call("GET", api.path("pods", "one"))
    found = {condition["type"]: condition["status"] for condition in body["status"]["conditions"]}
    assert found == {"Ready": "True", "Initialized": "True"}


@case
async def foreground_and_orphan_deletion_leave_their_finalizers(api: Api) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        await api.make("deployments", deployment("web"), group="apps")
        path = api.path("deployments", "web", group="apps")
        status, marked = await api.call("DELETE", path, propagationPolicy=policy)
        assert (status, marked["metadata"]["finalizers"]) == (200, [finalizer])
        remove = [{"op": "remove", "path": "/metadata/finalizers"}]
        assert (await api.call("PATCH", path, remove, kind=JSON_PATCH))[0] == 200
        assert (await api.call("GET", path))[0] == 404


@case
async def a_patch_of_what_is_not_there_is_not_found(api: Api) -> None:
    status, body = await api.call("PATCH", api.path("configmaps", "nope"), {"data": {}}, kind=MERGE)
    assert (status, reason(body)) == (404, "NotFound")
    status, body = await api.call("DELETE", api.path("configmaps", "nope"))
    assert (status, reason(body)) == (404, "NotFound")


@case
async def a_method_that_is_not_served_is_refused(api: Api) -> None:
    answer = await api.transport.request("POST", api.path("configmaps", "one"), body=b"{}")
    assert answer.status == 405
    answer = await api.transport.request("PUT", api.path("configmaps"), body=b"{}")
    assert answer.status == 405


@case
async def a_namespace_knows_its_name_and_phase(api: Api) -> None:
    _, body = await api.call("GET", f"/api/v1/namespaces/{api.namespace}")
    assert body["metadata"]["labels"]["kubernetes.io/metadata.name"] == api.namespace
    assert body["status"]["phase"] == "Active"
    assert body["spec"]["finalizers"] == ["kubernetes"]


@case
async def an_event_has_two_faces(api: Api) -> None:
    event = {
        "metadata": {"name": "happened"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "one"},
        "reason": "Tested",
        "message": "it was tested",
        "type": "Normal",
        "source": {"component": "suite"},
    }
    await api.make("events", event)
    _, modern = await api.call("GET", api.path("events", "happened", group="events.k8s.io"))
    assert (modern["note"], modern["regarding"]["name"]) == ("it was tested", "one")
    selector = "involvedObject.name=one,reason=Tested"
    _, found = await api.call("GET", api.path("events"), fieldSelector=selector)
    assert len(found["items"]) == 1


@case
async def a_lease_is_renewed_with_optimistic_concurrency(api: Api) -> None:
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    made = await api.make("leases", lease, group="coordination.k8s.io")
    path = api.path("leases", "leader", group="coordination.k8s.io")
    renewed = {**made, "spec": {**made["spec"], "renewTime": "2026-01-01T00:00:00.123456Z"}}
    status, body = await api.call("PUT", path, renewed)
    assert (status, body["spec"]["renewTime"]) == (200, "2026-01-01T00:00:00.123456Z")
    assert (await api.call("PUT", path, {**made, "spec": {"holderIdentity": "b"}}))[0] == 409


@case
async def a_bound_pod_knows_that_it_is_scheduled(api: Api) -> None:
    await api.make("pods", pod("one"))
    assert (await api.call("POST", api.path("pods", "one", "binding"), binding("one")))[0] == 201
    _, body = await api.call("GET", api.path("pods", "one"))
    assert {c["type"]: c["status"] for c in body["status"]["conditions"]} == {"PodScheduled": "True"}
    _, found = await api.call("GET", api.path("pods"), fieldSelector="spec.nodeName=n")
    assert [item["metadata"]["name"] for item in found["items"]] == ["one"]


@case
async def a_role_binding_cannot_change_its_role(api: Api) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}
    body = {"metadata": {"name": "b"}, "roleRef": role, "subjects": []}
    await api.make("rolebindings", body, group="rbac.authorization.k8s.io")
    path = api.path("rolebindings", "b", group="rbac.authorization.k8s.io")
    status, answer = await api.call("PATCH", path, {"roleRef": {"name": "two"}}, kind=MERGE)
    assert (status, reason(answer)) == (422, "Invalid")


@case
async def remaining_items_are_counted(api: Api) -> None:
    for number in range(4):
        await api.make("secrets", {"metadata": {"name": f"s{number}"}})
    _, page = await api.call("GET", api.path("secrets"), limit="3")
    assert page["metadata"]["remainingItemCount"] == 1


@case
async def secrets_take_plain_texts_and_keep_them_encoded(api: Api) -> None:
    made = await api.make("secrets", {"metadata": {"name": "s"}, "stringData": {"p": "q"}})
    assert made["data"] == {"p": "cQ=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


@case
async def immutable_config_stays_as_it_is(api: Api) -> None:
    await api.make("configmaps", {**config("one", a="1"), "immutable": True})
    status, answer = await api.call("PATCH", api.path("configmaps", "one"), {"data": {"a": "2"}}, kind=MERGE)
    assert (status, reason(answer)) == (422, "Invalid")


@case
async def owner_references_must_be_complete(api: Api) -> None:
    body = config("one")
    body["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "x"}]
    status, answer = await api.call("POST", api.path("configmaps"), body)
    assert status == 422
    # The second is how Kubernetes says it since 1.37.
    assert fields(answer) in (["metadata.ownerReferences.uid"], ["metadata.ownerReferences[0].uid"])
