"""What a VPA says about a workload, and what its updater did to the pods: for plots.

Events are kept for about an hour by default, so evictions and resizes of longer ago are not known.
"""

from collections.abc import Sequence

from kubetide.api.objects.events import RecordedEvent
from kubetide.api.objects.scheme import EVENTS, VPAS
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.plots import VpaMarks
from kubetide.recommend.core.workloads import Workload, sizes
from kubetide.vpa.updater.core.events import EVICTED_BY_VPA, RESIZED_BY_VPA


async def read_marks(client: Client, workload: Workload, problems: list[str]) -> dict[str, VpaMarks]:
    """Return what is known by container; what may not be read is named."""
    try:
        vpas = (await client.list(VPAS, namespace=workload.namespace)).items
        events = (await client.list(EVENTS, namespace=workload.namespace)).items
    except NotFound:
        return {}
    except KubetideError as error:
        problems.append(f"VPAs and events cannot be read: {' '.join(str(error).split())}")
        return {}
    evictions, resizes = (_times(events, workload, reason) for reason in (EVICTED_BY_VPA, RESIZED_BY_VPA))
    found = {one.name: VpaMarks(evictions=evictions, resizes=resizes) for one in workload.containers}
    meant = {(workload.kind, workload.name)}
    if workload.maker is not None:
        meant.add((workload.maker.kind, workload.maker.name))
    for vpa in vpas:
        target = vpa.spec.target_ref
        if target is None or (target.kind, target.name) not in meant:
            continue
        advice = vpa.status.recommendation if vpa.status is not None else None
        for each in (advice.container_recommendations if advice is not None else None) or ():
            found[each.container_name] = VpaMarks(
                target=sizes(each.target),
                lower=sizes(each.lower_bound),
                upper=sizes(each.upper_bound),
                evictions=evictions,
                resizes=resizes,
            )
    return found


def _times(events: Sequence[RecordedEvent], workload: Workload, reason: str) -> tuple[float, ...]:
    matcher = PodMatcher([workload])
    found = []
    for event in events:
        about = event.involved_object or event.regarding
        at = event.last_timestamp or event.event_time or event.first_timestamp
        if event.reason != reason or about is None or at is None or about.kind != "Pod":
            continue
        if matcher.match(workload.namespace, about.name) is not None:
            found.append(at.timestamp())
    return tuple(sorted(found))
