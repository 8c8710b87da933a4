"""How many smaller pods the vertical side announces, from a watch of VPAs (`--hpa-coordinate`).

A VPA that is sized for an HPA says in an annotation what its containers are about to request and how many such pods the
demand takes (`api.objects.coordination`). Until all pods have the new size the HPA keeps at least so many: they are
ready before any of them shrinks, and a mixture of sizes is not mistaken for load. A VPA that changes nothing announces
nothing, and one whose annotation cannot be read announces nothing either.
"""

from collections.abc import Iterable

from kubetide.api.objects.coordination import ANNOUNCEMENT_SECONDS, COORDINATION_ANNOTATION, read_note
from kubetide.api.objects.meta import CrossVersionObjectReference, group_of
from kubetide.api.objects.scheme import VPAS
from kubetide.api.objects.vpa import INITIAL, OFF, VerticalPodAutoscaler, update_mode
from kubetide.clock import Clock
from kubetide.errors import InvalidInput
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.log import get_logger

log = get_logger("hpa")

_BY_TARGET = "target"


class AnnouncedCounts:
    """What VPAs announce, by the workload they size. Without `--hpa-coordinate` nothing is watched or announced."""

    def __init__(self, client: Client, clock: Clock, settings: HpaSettings) -> None:
        self._clock = clock
        self.caches: tuple[Informer[VerticalPodAutoscaler], ...] = ()
        if settings.coordinate:
            namespace = settings.namespace or None
            self.caches = (
                Informer(client, VPAS, clock=clock, namespace=namespace, indexes={_BY_TARGET: _announced_for}),
            )

    def of(self, namespace: str, reference: CrossVersionObjectReference) -> int:
        """Return how many pods a workload has to have for smaller ones; 0: nothing is announced."""
        now = self._clock.now().timestamp()
        for informer in self.caches:
            for vpa in informer.store.by_index(_BY_TARGET, _target_key(namespace, reference)):
                try:
                    note = read_note(_text(vpa))
                except InvalidInput as error:
                    log.debug("announcement cannot be read", vpa=f"{namespace}/{vpa.metadata.name}", error=str(error))
                    continue
                # Whoever announced it may be gone.
                if note.count and now - note.announced <= ANNOUNCEMENT_SECONDS:
                    return note.count
        return 0


def _text(vpa: VerticalPodAutoscaler) -> str:
    return (vpa.metadata.annotations or {}).get(COORDINATION_ANNOTATION, "")


def _target_key(namespace: str, reference: CrossVersionObjectReference) -> str:
    return f"{namespace}/{group_of(reference.api_version)}/{reference.kind}/{reference.name}"


def _announced_for(vpa: VerticalPodAutoscaler) -> Iterable[str]:
    """Return the workload of a VPA that resizes running pods and has an announcement to read."""
    target = vpa.spec.target_ref
    if target is None or not _text(vpa) or update_mode(vpa) in (OFF, INITIAL):
        return ()
    return (_target_key(vpa.metadata.namespace, target),)
