"""Whether new pods get what a VPA recommends: the admission webhook, by its lease and its registration."""

from dataclasses import dataclass
from typing import cast

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import MUTATING_WEBHOOKS
from kubetide.api.objects.vpa import OFF, VerticalPodAutoscaler, update_mode
from kubetide.verdicts.core.commands import deployed, restart_of
from kubetide.verdicts.core.finding import age, found
from kubetide.verdicts.core.verdict import Finding
from kubetide.verdicts.core.view import ClusterView
from kubetide.vpa.admission.core.heartbeat import ADMISSION_LEASE, read_heartbeat
from kubetide.vpa.admission.core.registration import CONFIGURATION

KIND = "webhook"
KEY = ObjectKey("", "admission")
_INSTALL = "kubetide manifests admission | kubectl apply -f -"
_DEPLOYMENTS = ("kubetide-admission", "vpa-admission-controller")


@dataclass(frozen=True, slots=True)
class WebhookProblem:
    """Why pods are not patched, as a VPA tells it."""

    text: str
    remedy: str


def applies(vpa: VerticalPodAutoscaler) -> bool:
    """Return whether a VPA sets the size of new pods."""
    return update_mode(vpa) != OFF


def judge_webhook(view: ClusterView) -> list[Finding]:
    """Return what there is to say about the admission webhook; nothing where nobody needs it."""
    sizing = view.sizing_vpas
    lease = view.lease(ADMISSION_LEASE)
    if lease is None:
        return [found("webhook-missing", KIND, KEY, count=sizing)] if sizing else []
    heartbeat = read_heartbeat(lease, now=view.now)
    if not heartbeat.fresh:
        if not sizing:
            return []
        since = age(lease.spec.renew_time or view.now, view.now)
        return [found("webhook-silent", KIND, KEY, age=since, restart=_restart(view))]
    if heartbeat.patching is False:
        return [found("webhook-not-patching", KIND, KEY, restart=_restart(view))]
    readable = str(MUTATING_WEBHOOKS) not in view.unreadable
    if readable and sizing and all(one.metadata.name != CONFIGURATION for one in view.webhooks):
        return [found("webhook-unregistered", KIND, KEY, restart=_restart(view))]
    return [found("webhook-ok", KIND, KEY)]


def webhook_problem(view: ClusterView) -> WebhookProblem | None:
    """Return why pods are not patched; None where they are, or where the leases could not be read."""
    if webhook_problem not in view.worked_out:
        view.worked_out[webhook_problem] = _problem(view)
    return cast(WebhookProblem | None, view.worked_out[webhook_problem])


def _problem(view: ClusterView) -> WebhookProblem | None:
    if "leases.coordination.k8s.io" in view.unreadable:
        return None
    for finding in judge_webhook(view):
        if finding.verdict.id == "webhook-missing":
            return WebhookProblem("no admission webhook runs", _INSTALL)
        if finding.severity.is_problem:
            return WebhookProblem("the admission webhook does not patch new pods", finding.remedy)
    return None


def _restart(view: ClusterView) -> str:
    key = deployed(view, _DEPLOYMENTS)
    return "kubetide run admission" if key is None else restart_of(key)
