"""The validating webhook of the SLO controller, which is off unless asked for: certificate, Service, registration.

The certificate is made together with the manifests, because the API server has to know whom to trust. Printing the
manifests again makes new ones; the server loads them while it runs.
"""

import base64
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Raw = dict[str, Any]

DEFAULT_SLO_CONFIG = {
    "colocation-config": '{"enable": false}',
    "resource-threshold-config": '{"clusterStrategy": {"enable": false}}',
}
"""What the ConfigMap begins with: nothing is switched on."""

SERVICE = "kubetide-slo-webhook"
SECRET = "kubetide-slo-webhook-certs"
CONFIGURATION = "kubetide-slo"
PORT = 9876
FOLDER = "/etc/kubetide/slo-webhook"
LIFETIME = timedelta(days=3650)
CONFIG_NAMESPACE = "koordinator-system"


@dataclass(frozen=True, slots=True)
class SloWebhook:
    """The certificate of the webhook, and of who signed it, as PEM text."""

    ca: str
    certificate: str
    key: str


def make_slo_webhook(namespace: str, *, now: datetime) -> SloWebhook:
    """Make the certificate of a webhook that is reached through its Service."""
    # Here, because nothing else about manifests needs the cryptography library, which is slow to load.
    from kubetide.kube.client.certificates import issue, make_ca

    ca = make_ca("kubetide-slo-webhook-ca", now=now, lifetime=LIFETIME)
    name = f"{SERVICE}.{namespace}.svc"
    server = issue(ca, name, now=now, dns_names=(name, f"{name}.cluster.local"), lifetime=LIFETIME)
    return SloWebhook(ca.certificate, server.certificate, server.key)


def webhook_objects(webhook: SloWebhook, namespace: str, labels: Raw) -> list[Raw]:
    """Return the Secret, the Service and the configuration; `labels` are those of the controller's pods."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": namespace},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": _base64(webhook.certificate), "tls.key": _base64(webhook.key)},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": PORT}]},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": CONFIGURATION},
            "webhooks": [_config_maps(webhook, namespace), _nodes(webhook, namespace)],
        },
    ]


def switch_on(deployment: Raw) -> None:
    """Let the controller serve its webhook."""
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container["args"] += [
        "--feature-gates=ConfigMapValidatingWebhook=true,NodeValidatingWebhook=true",
        f"--webhook-port={PORT}",
        f"--webhook-cert-dir={FOLDER}",
    ]
    container["ports"].append({"name": "webhook", "containerPort": PORT})
    container["volumeMounts"].append({"name": "webhook-certs", "mountPath": FOLDER, "readOnly": True})
    spec["volumes"].append({"name": "webhook-certs", "secret": {"secretName": SECRET}})


def _config_maps(webhook: SloWebhook, namespace: str) -> Raw:
    chosen = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [CONFIG_NAMESPACE]}
    return {
        **_hook(webhook, namespace, "vconfigmap.koordinator.sh", "/validate-configmap"),
        # Deletions always pass; asking about them would only stand in the way of removing the namespace.
        "rules": [_rule(["CREATE", "UPDATE"], "configmaps")],
        "namespaceSelector": {"matchExpressions": [chosen]},
        "failurePolicy": "Fail",
    }


def _nodes(webhook: SloWebhook, namespace: str) -> Raw:
    return {
        **_hook(webhook, namespace, "vnode.koordinator.sh", "/validate-node"),
        "rules": [_rule(["UPDATE"], "nodes")],
        # Nodes must be able to change while nobody answers.
        "failurePolicy": "Ignore",
    }


def _hook(webhook: SloWebhook, namespace: str, name: str, path: str) -> Raw:
    service = {"namespace": namespace, "name": SERVICE, "path": path, "port": 443}
    return {
        "name": name,
        "clientConfig": {"service": service, "caBundle": _base64(webhook.ca)},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }


def _rule(operations: list[str], resource: str) -> Raw:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": [resource], "scope": "*"}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
