"""Raw objects for tests, complete enough for an API server and short enough to read in one line.

    make_pod("web-1", cpu="500m", memory="1Gi", node="node-1", phase="Running", ready=True)
    make_deployment("web", replicas=3, cpu="500m")
    make_hpa("web", target="web", maximum=10, cpu_percent=50)

Whatever a builder has no argument for is set on the result: they return plain dictionaries.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Raw = dict[str, Any]
Amount = str | int | float


def make_meta(
    name: str,
    namespace: str | None = "default",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    uid: str | None = None,
    owner: Raw | None = None,
    created: str | None = None,
) -> Raw:
    """Return metadata; `owner` is the raw object that controls it."""
    meta: Raw = {"name": name}
    if namespace is not None:
        meta["namespace"] = namespace
    if labels:
        meta["labels"] = dict(labels)
    if annotations:
        meta["annotations"] = dict(annotations)
    if uid is not None:
        meta["uid"] = uid
    if created is not None:
        meta["creationTimestamp"] = created
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"].get("uid", ""),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return meta


def make_resources(
    *,
    cpu: Amount | None = None,
    memory: Amount | None = None,
    cpu_limit: Amount | None = None,
    memory_limit: Amount | None = None,
    requests: Mapping[str, Amount] | None = None,
    limits: Mapping[str, Amount] | None = None,
) -> Raw:
    """Return the resources of a container, only what is given."""
    asked = {"cpu": cpu, "memory": memory, **(requests or {})}
    allowed = {"cpu": cpu_limit, "memory": memory_limit, **(limits or {})}
    result: Raw = {}
    for part, amounts in (("requests", asked), ("limits", allowed)):
        present = {name: amount for name, amount in amounts.items() if amount is not None}
        if present:
            result[part] = present
    return result


def make_container(name: str = "main", image: str = "sim/app:1", **resources: Any) -> Raw:
    """Return a container; the keywords are those of `make_resources`."""
    container: Raw = {"name": name, "image": image}
    amounts = make_resources(**resources)
    if amounts:
        container["resources"] = amounts
    return container


def make_pod(
    name: str = "pod",
    namespace: str = "default",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    uid: str | None = None,
    owner: Raw | None = None,
    created: str | None = None,
    node: str | None = None,
    containers: Sequence[Raw] | None = None,
    phase: str | None = None,
    ready: bool | None = None,
    started: str | None = None,
    priority: int | None = None,
    **resources: Any,
) -> Raw:
    """Return a pod with one container unless `containers` says otherwise; status only if phase or ready is given."""
    spec: Raw = {"containers": list(containers) if containers is not None else [make_container(**resources)]}
    if node is not None:
        spec["nodeName"] = node
    if priority is not None:
        spec["priority"] = priority
    pod: Raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": make_meta(
            name, namespace, labels=labels, annotations=annotations, uid=uid, owner=owner, created=created
        ),
        "spec": spec,
    }
    if phase is not None or ready is not None:
        status: Raw = {"phase": phase or "Running"}
        if started is not None:
            status["startTime"] = started
        if ready is not None:
            status["conditions"] = [
                {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": started or created}
            ]
        status["containerStatuses"] = [
            {"name": c["name"], "ready": bool(ready), "restartCount": 0, "state": {"running": {}}, "image": c["image"]}
            for c in spec["containers"]
        ]
        pod["status"] = status
    return pod


def make_node(
    name: str = "node-1",
    *,
    cpu: Amount = "8",
    memory: Amount = "32Gi",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    allocatable: Mapping[str, Amount] | None = None,
    taints: Sequence[Raw] | None = None,
) -> Raw:
    """Return a ready node; allocatable is its capacity unless given."""
    capacity: Raw = {"cpu": cpu, "memory": memory, "pods": "110"}
    node: Raw = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": make_meta(
            name, None, labels={"kubernetes.io/hostname": name, **(labels or {})}, annotations=annotations
        ),
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, **(allocatable or {})},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
    if taints:
        node["spec"]["taints"] = list(taints)
    return node


def make_template(
    labels: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    containers: Sequence[Raw] | None = None,
    spec: Raw | None = None,
    **resources: Any,
) -> Raw:
    """Return a pod template."""
    metadata: Raw = {"labels": dict(labels)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    body = {"containers": list(containers) if containers is not None else [make_container(**resources)]}
    return {"metadata": metadata, "spec": {**body, **(spec or {})}}


def _workload(
    kind: str, name: str, namespace: str, labels: Mapping[str, str] | None, body: Raw, **template: Any
) -> Raw:
    own = {"app": name, **(labels or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": make_meta(name, namespace, labels=own),
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": make_template(own, **template), **body},
    }


def make_deployment(
    name: str = "web",
    namespace: str = "default",
    *,
    replicas: int = 1,
    labels: Mapping[str, str] | None = None,
    strategy: Raw | None = None,
    **template: Any,
) -> Raw:
    """Return a Deployment; other keywords go to the pod template (`cpu="500m"`, `annotations={…}`)."""
    body: Raw = {"replicas": replicas}
    if strategy is not None:
        body["strategy"] = strategy
    return _workload("Deployment", name, namespace, labels, body, **template)


def make_replica_set(name: str = "web", namespace: str = "default", *, replicas: int = 1, **template: Any) -> Raw:
    """Return a ReplicaSet."""
    return _workload("ReplicaSet", name, namespace, None, {"replicas": replicas}, **template)


def make_stateful_set(name: str = "db", namespace: str = "default", *, replicas: int = 1, **template: Any) -> Raw:
    """Return a StatefulSet."""
    return _workload("StatefulSet", name, namespace, None, {"replicas": replicas, "serviceName": name}, **template)


def make_daemon_set(name: str = "agent", namespace: str = "default", **template: Any) -> Raw:
    """Return a DaemonSet."""
    return _workload("DaemonSet", name, namespace, None, {}, **template)


def make_replication_controller(
    name: str = "old", namespace: str = "default", *, replicas: int = 1, **template: Any
) -> Raw:
    """Return a ReplicationController."""
    labels = {"app": name}
    return {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": make_meta(name, namespace, labels=labels),
        "spec": {"replicas": replicas, "selector": labels, "template": make_template(labels, **template)},
    }


def make_job(
    name: str = "job",
    namespace: str = "default",
    *,
    completions: int = 1,
    parallelism: int = 1,
    restart_policy: str = "Never",
    backoff_limit: int = 6,
    **template: Any,
) -> Raw:
    """Return a Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": make_meta(name, namespace),
        "spec": {
            "completions": completions,
            "parallelism": parallelism,
            "backoffLimit": backoff_limit,
            "template": make_template({"app": name}, spec={"restartPolicy": restart_policy}, **template),
        },
    }


def make_cron_job(name: str = "cron", namespace: str = "default", *, schedule: str = "*/5 * * * *", **job: Any) -> Raw:
    """Return a CronJob; other keywords go to its Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": make_meta(name, namespace),
        "spec": {"schedule": schedule, "jobTemplate": {"spec": make_job(name, namespace, **job)["spec"]}},
    }


def make_pdb(
    name: str = "budget",
    namespace: str = "default",
    *,
    labels: Mapping[str, str],
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
) -> Raw:
    """Return a PodDisruptionBudget."""
    spec: Raw = {"selector": {"matchLabels": dict(labels)}}
    if min_available is not None:
        spec["minAvailable"] = min_available
    if max_unavailable is not None:
        spec["maxUnavailable"] = max_unavailable
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": make_meta(name, namespace),
        "spec": spec,
    }


def resource_metric(name: str = "cpu", *, percent: int | None = None, value: Amount | None = None) -> Raw:
    """Return a Resource metric of an HPA: a utilisation in percent, or an average value."""
    target: Raw = {"type": "Utilization", "averageUtilization": percent}
    if value is not None:
        target = {"type": "AverageValue", "averageValue": value}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def make_hpa(
    name: str = "web",
    namespace: str = "default",
    *,
    target: str = "web",
    kind: str = "Deployment",
    api_version: str = "apps/v1",
    minimum: int | None = 1,
    maximum: int = 10,
    cpu_percent: int | None = None,
    metrics: Sequence[Raw] | None = None,
    behavior: Raw | None = None,
) -> Raw:
    """Return an autoscaling/v2 HorizontalPodAutoscaler."""
    spec: Raw = {"scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": target}, "maxReplicas": maximum}
    if minimum is not None:
        spec["minReplicas"] = minimum
    if cpu_percent is not None:
        metrics = [*(metrics or ()), resource_metric("cpu", percent=cpu_percent)]
    if metrics is not None:
        spec["metrics"] = list(metrics)
    if behavior is not None:
        spec["behavior"] = behavior
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": make_meta(name, namespace),
        "spec": spec,
    }


def make_vpa(
    name: str = "web",
    namespace: str = "default",
    *,
    target: str = "web",
    kind: str = "Deployment",
    api_version: str = "apps/v1",
    mode: str | None = "Auto",
    policies: Sequence[Raw] | None = None,
    min_replicas: int | None = None,
    recommendation: Mapping[str, Mapping[str, Amount]] | None = None,
) -> Raw:
    """Return a VerticalPodAutoscaler; `recommendation` maps containers to target amounts and becomes its status."""
    spec: Raw = {"targetRef": {"apiVersion": api_version, "kind": kind, "name": target}}
    policy: Raw = {}
    if mode is not None:
        policy["updateMode"] = mode
    if min_replicas is not None:
        policy["minReplicas"] = min_replicas
    if policy:
        spec["updatePolicy"] = policy
    if policies is not None:
        spec["resourcePolicy"] = {"containerPolicies": list(policies)}
    vpa: Raw = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": make_meta(name, namespace),
        "spec": spec,
    }
    if recommendation is not None:
        vpa["status"] = {
            "recommendation": {
                "containerRecommendations": [
                    {
                        "containerName": container,
                        "target": dict(amounts),
                        "lowerBound": dict(amounts),
                        "upperBound": dict(amounts),
                        "uncappedTarget": dict(amounts),
                    }
                    for container, amounts in recommendation.items()
                ]
            }
        }
    return vpa


def make_config_map(name: str, namespace: str = "default", data: Mapping[str, str] | None = None) -> Raw:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": make_meta(name, namespace),
        "data": dict(data or {}),
    }


def make_limit_range(name: str = "limits", namespace: str = "default", *limits: Raw) -> Raw:
    """Return a LimitRange with the given limit items."""
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": make_meta(name, namespace),
        "spec": {"limits": list(limits)},
    }


def make_quota(name: str = "quota", namespace: str = "default", *, hard: Mapping[str, str]) -> Raw:
    """A ResourceQuota with what it allows."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": make_meta(name, namespace),
        "spec": {"hard": dict(hard)},
    }
