"""What runs: Deployments of controllers that need nothing of their node, and the DaemonSet of the agent, which does."""

from typing import Any

from kubetide.install.metrics_api import give_stream_token
from kubetide.install.sizes import resources

Raw = dict[str, Any]

_HOST_PATHS = {
    "cgroup": "/sys/fs/cgroup",
    "sys": "/sys",
    "proc": "/proc",
    "kubelet": "/var/lib/kubelet",
    "run": "/run",
    "state": "/var/lib/kubetide-node",
    "audit": "/var/log/kubetide-node",
}
# What the agent does that root in a container may not: other users' files below the host's folders, oom_score_adj,
# /proc of other processes and core scheduling, traffic control, cycles per instruction. SELinux lets it at the host.
_AGENT_CAPABILITIES = ("DAC_OVERRIDE", "SYS_RESOURCE", "SYS_PTRACE", "NET_ADMIN", "PERFMON")
_AGENT_SECURITY: Raw = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsUser": 0,
    "capabilities": {"drop": ["ALL"], "add": list(_AGENT_CAPABILITIES)},
    "seLinuxOptions": {"type": "spc_t"},
}


def account(component: str) -> str:
    """Return the name of a component's service account."""
    return f"kubetide-{component}"


def labels_of(component: str) -> dict[str, str]:
    """Return the labels of a component's pods."""
    return {"app.kubernetes.io/name": "kubetide", "app.kubernetes.io/component": component}


def plain_object(api_version: str, kind: str, name: str, namespace: str = "") -> Raw:
    """Return an object that has a name and nothing else."""
    metadata: Raw = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def container_of(component: str, image: str, port: int, size: str) -> Raw:
    """Return what containers have in common: image, resources, and probes of the page with metrics and health."""
    return {
        "name": component,
        "image": image,
        "resources": resources(component, size),
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": port},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 5},
    }


def plain_deployment(component: str, namespace: str, container: Raw, replicas: int, *, priority: str) -> Raw:
    """Return the Deployment of a container that is not root, writes to /tmp alone and needs nothing of its node.

    It runs also where the Pod Security Standard `restricted` is enforced.
    """
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    spec = {
        "serviceAccountName": account(component),
        **({"priorityClassName": priority} if priority else {}),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    labels = labels_of(component)
    return {
        **plain_object("apps/v1", "Deployment", account(component), namespace),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def daemon_set(namespace: str, image: str, port: int, size: str) -> Raw:
    """Return the DaemonSet of the node agent: the host's folders below /host, and five capabilities."""
    node_name = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        **container_of("node", image, port, size),
        "args": [
            "node",
            "--cgroup-root-dir=/host/cgroup",
            "--sys-root-dir=/host/sys",
            "--sys-fs-root-dir=/host/sys/fs",
            "--proc-root-dir=/host/proc",
            "--run-root-dir=/host/run",
            "--var-run-root-dir=/host/run",
            "--kubelet-root-dir=/host/kubelet",
            "--metric-history-path=/host/state",
            "--prediction-checkpoint-filepath=/host/state/prediction",
            "--audit-log-dir=/host/audit",
            "--host-mode=false",
        ],
        "env": [node_name, {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"name": "metrics", "containerPort": port}],
        "securityContext": _AGENT_SECURITY,
        "volumeMounts": [{"name": name, "mountPath": f"/host/{name}"} for name in _HOST_PATHS],
    }
    create = {"state", "audit"}
    spec = {
        "serviceAccountName": account("node"),
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {
                "name": name,
                "hostPath": {"path": path, **({"type": "DirectoryOrCreate"} if name in create else {})},
            }
            for name, path in _HOST_PATHS.items()
        ],
    }
    give_stream_token(spec)
    labels = labels_of("node")
    return {
        **plain_object("apps/v1", "DaemonSet", account("node"), namespace),
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
