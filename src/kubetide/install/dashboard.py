"""The objects that run the dashboard in a cluster: a Deployment behind a Service, with no permission at all.

Whoever looks logs in with a token of their own, and everything is read with it. The service account exists only for
the CA certificate of the API server, which comes with its volume.
"""

from typing import Any

from kubetide.install.sizes import DEFAULT, resources
from kubetide.install.workloads import account, labels_of, plain_deployment, plain_object

Raw = dict[str, Any]
COMPONENT = "dashboard"
PORT = 8950


def dashboard_manifests(*, namespace: str, image: str, replicas: int = 1, size: str = DEFAULT) -> list[Raw]:
    """Return the objects in the order in which they must be created; with `replicas`, sessions stick to one of them."""
    objects = [plain_object("v1", "ServiceAccount", account(COMPONENT), namespace)]
    container = {
        "name": COMPONENT,
        "image": image,
        "args": ["dashboard", "--auth", "token", "--host", "0.0.0.0", "--port", str(PORT)],
        "resources": resources(COMPONENT, size),
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": PORT},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
        },
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 5},
    }
    objects.append(plain_deployment(COMPONENT, namespace, container, replicas, priority=""))
    objects.append(
        {
            **plain_object("v1", "Service", account(COMPONENT), namespace),
            "spec": {
                "selector": labels_of(COMPONENT),
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
                # A session lives in the memory of one pod.
                "sessionAffinity": "ClientIP",
            },
        }
    )
    return objects
