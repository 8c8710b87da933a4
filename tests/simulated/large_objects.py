"""Objects as large as real clusters have them, for benchmarks: most of a pod is fields that nobody reads."""

from typing import Any


def pod(number: int) -> dict[str, Any]:
    """Return a pod of about 8 KB, most of it fields that nobody reads."""
    name = f"web-{number % 200}-{number:06}"
    managed: dict[str, Any] = {
        f"f:{part}": {".": {}, "f:x": {}} for part in (f"{key}{index}" for key in "abcdef" for index in range(18))
    }
    container = {
        "name": "app",
        "image": "registry.example.com/team/app:v1.2.3",
        "env": [{"name": f"SETTING_{index}", "value": "some value of a setting"} for index in range(12)],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    state = {"running": {"startedAt": "2026-01-05T10:00:00Z"}}
    condition = {"status": "True", "lastTransitionTime": "2026-01-05T10:00:00Z"}
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 50}",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": "2026-01-05T10:00:00Z",
            "labels": {"app": f"web-{number % 200}", "pod-template-hash": "abcdef1234"},
            "annotations": {"checksum/config": "0" * 64},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
            ],
            "managedFields": [
                {"manager": manager, "operation": "Update", "fieldsV1": managed} for manager in ("kcm", "kubelet")
            ],
        },
        "spec": {"nodeName": f"node-{number % 500}", "containers": [container], "restartPolicy": "Always"},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "startTime": "2026-01-05T10:00:00Z",
            "conditions": [
                {"type": kind, **condition} for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {"name": "app", "ready": True, "restartCount": 0, "image": "x", "imageID": "y", "state": state}
            ],
        },
    }


def pod_metrics(number: int) -> dict[str, Any]:
    """Return the usage of a pod with two containers."""
    usage = {"cpu": f"{number * 7919 % 900_000_000}n", "memory": f"{number % 500_000}Ki"}
    return {
        "metadata": {
            "name": f"web-{number:06}",
            "namespace": f"team-{number % 50}",
            "creationTimestamp": "2026-01-05T10:00:00Z",
            "labels": {"app": f"web-{number % 200}"},
        },
        "timestamp": "2026-01-05T10:00:00Z",
        "window": "15.2s",
        "containers": [{"name": "app", "usage": usage}, {"name": "sidecar", "usage": usage}],
    }
