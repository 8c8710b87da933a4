"""Asks who knows how many pods are throttled, with the permissions of the visitor.

    agents that can be asked at once    those on this machine
    podsignals.metrics.k8s.io           kubetide's metrics server, for all nodes in one answer
    Prometheus                          cAdvisor's counters, where one was given; only pods that the visitor may list

The first that knows counts. Where nobody does, the reasons of all are told.
"""

from kubetide.api.objects.meta import key_of
from kubetide.api.objects.scheme import POD_SIGNALS
from kubetide.dashboard.core.throttling import Throttled, counted, told_by_signals
from kubetide.dashboard.web.components import UsageSource
from kubetide.dashboard.web.visitors import Session
from kubetide.dashboard.web.watching import Look
from kubetide.errors import KubetideError
from kubetide.kube.client.errors import Forbidden, NotFound


async def ask_throttled(session: Session, look: Look, source: UsageSource | None) -> Throttled:
    """Return what the metrics server or Prometheus knows about the pods that the visitor sees."""
    client, namespace = session.watch.client, session.watch.namespace
    visible = [key_of(pod) for pod in look.view.pods]
    reasons: list[str] = []
    try:
        listed = await client.list(POD_SIGNALS, namespace=namespace or None)
        if shares := told_by_signals(listed.items):
            return counted(shares, visible, "metrics server")
        reasons.append("no node streams signals to the metrics server")
    except NotFound:
        reasons.append("the metrics server is not kubetide's")
    except Forbidden:
        reasons.append("podsignals.metrics.k8s.io may not be listed")
    except KubetideError as error:
        reasons.append(f"the metrics server does not answer: {' '.join(str(error).split())}")
    if source is None:
        reasons.append("no --prometheus was given")
    else:
        try:
            if shares := dict(await source.throttled()):
                return counted(shares, visible, "Prometheus")
            reasons.append("Prometheus has no CPU periods of containers")
        except KubetideError as error:
            reasons.append(f"Prometheus does not answer: {' '.join(str(error).split())}")
    return Throttled(unknown=f"no agent on this machine; {'; '.join(reasons)}")
