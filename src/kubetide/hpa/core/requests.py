"""What pods request, in thousandths: the denominator of utilization.

    container way   sum of containers and sidecars, each rounded up; one that requests nothing is an error
    pod-level way   max(running, starting), then pod-level requests replace, then overhead is added; rounded up once

The pod-level way is taken by a pod that has a pod-level request of cpu, memory or huge pages, whichever resource the
metric is about: such a pod is sized as a whole, so what the scheduler counts for it is what its usage is measured by.
"""

from collections.abc import Iterable, Mapping, Sequence

from kubetide.api.objects import resources
from kubetide.api.objects.core import Container, Pod
from kubetide.api.objects.hpa_compat import CONTAINER_MUST_EXIST, POD_LEVEL_REQUESTS, HpaCompat
from kubetide.api.values.quantity import milli_value
from kubetide.errors import QuantityError
from kubetide.hpa.core.pods import PodList
from kubetide.hpa.core.samples import ErrorKind, MetricFailure


def pod_requests(pods: Iterable[Pod], resource: str, compat: HpaCompat, container: str = "") -> Mapping[str, int]:
    """Return the request of each pod: all of it, or that of one container.

    A request that is missing makes the percentage of the whole target meaningless, so it is an error.
    """
    if not isinstance(pods, PodList):
        return _requests(pods, resource, compat, container)
    asked = (resource, container, compat)
    found = pods.requests.get(asked)
    if found is None:
        found = pods.requests[asked] = _requests(pods, resource, compat, container)
    return found


def has_pod_level_requests(pod: Pod) -> bool:
    """Tell whether a pod is sized as a whole."""
    requests = pod.spec.resources.requests if pod.spec.resources is not None else None
    return any(resources.is_pod_level(name) for name in requests or ())


def _requests(pods: Iterable[Pod], resource: str, compat: HpaCompat, container: str) -> dict[str, int]:
    whole = compat.has(POD_LEVEL_REQUESTS) and not container
    must_exist = compat.has(CONTAINER_MUST_EXIST)
    requests: dict[str, int] = {}
    for pod in pods:
        if whole and has_pod_level_requests(pod):
            requests[pod.metadata.name] = _pod_level(pod, resource)
            continue
        counted = _running(pod)
        if container:
            counted = [one for one in counted if one.name == container]
            if must_exist:
                if not counted:
                    raise MetricFailure(
                        ErrorKind.CONTAINER_NOT_FOUND,
                        f"pod {pod.metadata.name} has no container {container}; a rollout that adds the container "
                        "fails the metric until the pods without it are gone",
                    )
                counted = counted[:1]
        requests[pod.metadata.name] = sum([_container(pod, one, resource) for one in counted])
    return requests


def _running(pod: Pod) -> Sequence[Container]:
    """Return the containers that run side by side: the regular ones, then the sidecars."""
    sidecars = [one for one in pod.spec.init_containers or () if resources.is_sidecar(one)]
    return (*(pod.spec.containers or ()), *sidecars)


def _container(pod: Pod, container: Container, resource: str) -> int:
    requests = container.resources.requests if container.resources is not None else None
    text = (requests or {}).get(resource)
    if text is None:
        raise MetricFailure(
            ErrorKind.MISSING_REQUEST,
            f"container {container.name} of pod {pod.metadata.name} requests no {resource}",
        )
    try:
        return milli_value(text)
    except QuantityError as error:
        raise MetricFailure(
            ErrorKind.MISSING_REQUEST, f"the {resource} request of container {container.name}: {error}"
        ) from error


def _pod_level(pod: Pod, resource: str) -> int:
    """Return what the scheduler counts for a pod."""
    try:
        counted = resources.pod_requests(pod).get(resource)
    except QuantityError as error:
        raise MetricFailure(ErrorKind.MISSING_REQUEST, f"the requests of pod {pod.metadata.name}: {error}") from error
    if counted is None:
        raise MetricFailure(ErrorKind.MISSING_REQUEST, f"pod {pod.metadata.name} requests no {resource}")
    return counted.milli
