"""The Kubernetes objects of a scenario's workloads and nodes."""

from kubetide.api.values.quantity import Quantity, cpu_millis, memory_bytes, parse_quantity
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.sim.load.scenario import Amount, ScenarioWorkload

NODE_RESERVED_CPU_MILLIS = 100
NODE_RESERVED_MEMORY = 256 * 2**20


def workload_manifest(spec: ScenarioWorkload) -> Raw:
    """Return the object that runs a workload of a scenario."""
    labels = {"app": spec.name, **spec.labels}
    container: Raw = {"name": "main", "image": f"sim/{spec.name}:1"}
    resources = {
        part: {name: str(value) for name, value in amounts.items()}
        for part, amounts in (("requests", spec.requests), ("limits", spec.limits))
        if amounts
    }
    if resources:
        container["resources"] = resources
    pod_spec: Raw = {"containers": [container]}
    if spec.node_selector:
        pod_spec["nodeSelector"] = spec.node_selector
    if spec.priority_class:
        pod_spec["priorityClassName"] = spec.priority_class
    template_meta: Raw = {"labels": labels}
    if spec.annotations:
        template_meta["annotations"] = spec.annotations
    template: Raw = {"metadata": template_meta, "spec": pod_spec}
    metadata: Raw = {"name": spec.name, "namespace": spec.namespace, "labels": labels}
    if spec.kind in ("Job", "CronJob"):
        pod_spec["restartPolicy"] = "OnFailure"
        job: Raw = {"completions": spec.completions, "parallelism": spec.parallelism, "template": template}
        if spec.kind == "Job":
            return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}
        return {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": {"schedule": spec.schedule, "jobTemplate": {"spec": job}, "concurrencyPolicy": "Forbid"},
        }
    body: Raw = {"selector": {"matchLabels": {"app": spec.name}}, "template": template}
    if spec.kind != "DaemonSet":
        body["replicas"] = spec.replicas
    if spec.kind == "StatefulSet":
        body["serviceName"] = spec.name
    return {"apiVersion": "apps/v1", "kind": spec.kind, "metadata": metadata, "spec": body}


def node_manifest(
    name: str,
    *,
    cpu: Amount,
    memory: Amount,
    pods: int,
    labels: dict[str, str],
    taints: list[Raw],
    index: int,
    now: str,
) -> Raw:
    """Return a node that is up; a little of it is kept for the system."""
    millis, size = cpu_millis(cpu), memory_bytes(memory)
    capacity = {
        "cpu": str(parse_quantity(cpu)),
        "memory": str(Quantity.of(size, binary=True)),
        "pods": str(pods),
        "ephemeral-storage": "100Gi",
    }
    allocatable = {
        **capacity,
        "cpu": str(Quantity.of_milli(max(0, millis - NODE_RESERVED_CPU_MILLIS))),
        "memory": str(Quantity.of(max(0, size - NODE_RESERVED_MEMORY), binary=True)),
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status, reason in (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID"),
            ("Ready", "True", "KubeletReady"),
        )
    ]
    spec: Raw = {"podCIDR": f"10.{200 + index // 256}.{index % 256}.0/24"}
    if taints:
        spec["taints"] = taints
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **labels,
            },
        },
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": f"192.168.{index // 250}.{index % 250 + 1}"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": f"{index:032x}",
                "systemUUID": f"{index:032x}",
                "bootID": f"{index:032x}",
                "kernelVersion": "6.1.0-sim",
                "osImage": "kubetide simulated node",
                "containerRuntimeVersion": "containerd://1.7.0",
                "kubeletVersion": "v1.34.0",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }
