"""What a pod is compared with, and what it is given: recommendations as targets by container."""

from collections.abc import Iterable

from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.errors import InvalidInput
from kubetide.vpa.admission.core.mutate import Fitted
from kubetide.vpa.core.policy import Recommended, recommendations
from kubetide.vpa.updater.core.inplace import Targets
from kubetide.vpa.updater.core.priority import Fitting


def fitting_of(fitted: Fitted | None) -> Fitting:
    """Return the recommendation to judge a pod by; containers that the API server would refuse do not count."""
    if fitted is None or fitted.adjusted is None:
        return {}
    refused = {new.name for new in fitted.containers if new.refused}
    whole = () if fitted.pod is None or fitted.pod.new.refused else (fitted.pod.bounds,)
    return {one.container: one for one in (*fitted.adjusted.recommendations, *whole) if one.container not in refused}


def new_requests(fitted: Fitted) -> Targets:
    """Return the requests that the containers of a pod should have."""
    return {new.name: dict(new.requests) for new in fitted.containers if new.requests}


def status_targets(vpa: VerticalPodAutoscaler) -> Targets | None:
    """Return the targets in the status; None when there is no recommendation, or none that can be read."""
    try:
        given = recommendations(vpa.status.recommendation if vpa.status is not None else None)
    except InvalidInput:
        return None
    return None if given is None else targets_of(given)


def targets_of(given: Iterable[Recommended]) -> Targets:
    """Return the targets of a recommendation by container."""
    return {one.container: dict(one.target) for one in given}
