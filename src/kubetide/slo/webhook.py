"""Webhooks: the ConfigMap before it takes effect, nodes whose new labels match two entries, amplified allocatable.

Off unless a feature gate switches them on, as upstream. The rules are those of `slo.core.validate`: what the webhook
refuses and what the controller would report are found by the same code.
"""

from pathlib import Path
from typing import Any

from kubetide.api.objects.admission import AdmissionRequest, AdmissionReview, json_patch, review_response
from kubetide.api.objects.core import ConfigMap, Node
from kubetide.api.objects.scheme import CONFIG_MAPS, NODES
from kubetide.api.values.codec import decode, decode_raw
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.tls import Certificate, Pem
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.webhook import WebhookServer
from kubetide.log import get_logger
from kubetide.slo.core.amplify import amplified
from kubetide.slo.core.validate import Rejection, conflicting_entries, validate_configmap
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry

log = get_logger("slo-webhook")

CONFIG_PATH = "/validate-configmap"
NODE_PATH = "/validate-node"
STATUS_PATH = "/mutate-node-status"
CONFIG_GATE = "ConfigMapValidatingWebhook"
NODE_GATE = "NodeValidatingWebhook"
STATUS_GATE = "NodeMutatingWebhook"
FRAMEWORK_GATE = "WebhookFramework"
_REFUSED = 400
_FAILED = 500


class SloReviews:
    """Answers admission reviews."""

    def __init__(self, client: Client, settings: SloSettings) -> None:
        self._client = client
        self._settings = settings

    async def review_config(self, review: AdmissionReview) -> dict[str, Any]:
        """Refuse a ConfigMap that the controller could not use; others pass."""
        request = review.request or AdmissionRequest()
        ours = (request.namespace, request.name) == (self._settings.config_namespace, self._settings.config_name)
        if not ours or request.operation == "DELETE":
            return review_response(request.uid)
        new = decode(bytes(request.object), ConfigMap, what="ConfigMap")
        old = None if request.operation == "CREATE" else decode(bytes(request.old_object), ConfigMap, what="ConfigMap")
        nodes = await self._client.list(NODES)
        rejection = validate_configmap(
            None if old is None else old.data,
            new.data,
            nodes=nodes.items,
            names_needed=self._settings.names_needed,
            compat=self._settings.version,
        )
        return _answer(request.uid, rejection)

    async def review_node(self, review: AdmissionReview) -> dict[str, Any]:
        """Refuse a change of labels after which two entries would match the node."""
        request = review.request or AdmissionRequest()
        if request.operation != "UPDATE":
            return review_response(request.uid)
        new = decode(bytes(request.object), Node, what="Node")
        old = decode(bytes(request.old_object), Node, what="Node")
        if (new.metadata.labels or {}) == (old.metadata.labels or {}):
            return review_response(request.uid)
        try:
            config = await self._client.get(
                CONFIG_MAPS, self._settings.config_name, namespace=self._settings.config_namespace
            )
        except KubetideError as error:
            log.warning("cannot read the configuration, the node passes", node=request.name, error=str(error))
            return review_response(request.uid)
        return _answer(request.uid, conflicting_entries(config.data, new.metadata.labels or {}))

    async def review_node_status(self, review: AdmissionReview) -> dict[str, Any]:
        """Amplify allocatable in a status that is written; one whose annotations cannot be read is refused."""
        request = review.request or AdmissionRequest()
        if request.operation != "UPDATE" or request.sub_resource != "status":
            return review_response(request.uid)
        old = decode_raw(bytes(request.old_object), what="Node") or {}
        new = decode_raw(bytes(request.object), what="Node") or {}
        try:
            after = amplified(old, new)
        except InvalidInput as error:
            log.warning("node status refused", node=request.name, error=str(error))
            return review_response(request.uid, allowed=False, code=_FAILED, message=str(error))
        return review_response(request.uid, patch=json_patch(new, after))


def webhook_server(
    client: Client, settings: SloSettings, *, telemetry: Telemetry | None = None, limits: ConnectionLimits | None = None
) -> WebhookServer | None:
    """Return the server of the webhooks that are switched on, or None."""
    reviews = SloReviews(client, settings)
    handlers = {}
    if settings.gate(CONFIG_GATE):
        handlers[CONFIG_PATH] = reviews.review_config
    if settings.gate(NODE_GATE):
        handlers[NODE_PATH] = reviews.review_node
    if settings.gate(STATUS_GATE):
        handlers[STATUS_PATH] = reviews.review_node_status
    if not handlers or not settings.gate(FRAMEWORK_GATE):
        return None
    folder = Path(settings.webhook_cert_dir)
    certificate = Certificate(certificate=Pem(path=folder / "tls.crt"), key=Pem(path=folder / "tls.key"))
    return WebhookServer(
        handlers,
        certificate=certificate,
        port=settings.webhook_port,
        name="slo-webhook",
        telemetry=telemetry,
        limits=limits,
    )


def _answer(uid: str, rejection: Rejection | None) -> dict[str, Any]:
    if rejection is None:
        return review_response(uid)
    log.info("refused", reason=rejection.reason, error=rejection.message)
    return review_response(uid, allowed=False, code=_REFUSED, message=rejection.text)
