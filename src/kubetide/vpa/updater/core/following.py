"""CPU that follows its container hour by hour, in place: learned sizes move often, and only where that is free.

A pod within its bounds is left alone upstream. With learned sizes (`vpa.core.learned`) its CPU is resized in place
when it differs by 5 %, provided that no container restarts for it. Nothing else of the pod changes, no disruption
budget is used up, and what cannot be done in place is not done at all: no pod is evicted for such a move.
"""

from dataclasses import replace
from typing import Final

from kubetide.api.objects.core import Pod
from kubetide.api.values.quantity import Quantity
from kubetide.vpa.admission.core.mutate import Fitted
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.policy import CPU
from kubetide.vpa.updater.core.inplace import needs_restart
from kubetide.vpa.updater.core.priority import actual_requests

LEAST_CHANGE: Final = 0.05
REASON: Final = "its CPU follows what was learned, in place"
IN_PLACE_ONLY: Final = "its CPU follows what was learned, in place only"


def following(pod: Pod, fitted: Fitted) -> Fitted | None:
    """Return what a pod gets when nothing but its CPU follows; None when too little differs, or it would restart."""
    if needs_restart(pod):
        return None
    new = tuple(_cpu_alone(one) for one in fitted.containers)
    own = {container.name: actual_requests(pod, container) for container in pod.spec.containers or ()}
    if not any(_differs(own.get(one.name, {}).get(CPU), one.requests.get(CPU)) for one in new):
        return None
    return replace(fitted, containers=new, pod=None)


def _cpu_alone(new: NewResources) -> NewResources:
    return replace(
        new,
        requests={name: amount for name, amount in new.requests.items() if name == CPU},
        limits={name: amount for name, amount in new.limits.items() if name == CPU},
    )


def _differs(has: Quantity | None, wanted: Quantity | None) -> bool:
    if has is None or wanted is None:
        return False
    return abs(wanted.milli - has.milli) >= LEAST_CHANGE * max(has.milli, 1)
