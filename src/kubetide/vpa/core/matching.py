"""Which VPA controls a pod, for updater and webhook.

The pod's owner is its *last* owner reference with `controller: true`; the topmost controller above it must be the
target of the VPA by kind and name (not apiVersion), in the same namespace, and the VPA's selector must match the
pod's labels. Of several the oldest wins, then the smaller name. The recommender matches by labels alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectMeta, OwnerReference
from kubetide.api.values.selectors import Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A VPA as far as matching looks at it."""

    namespace: str
    name: str
    created: datetime | None
    target: CrossVersionObjectReference | None
    selector: Selector


def pod_owner(meta: ObjectMeta) -> OwnerReference | None:
    """Return the owner that decides which VPA a pod belongs to."""
    found = None
    for owner in meta.owner_references or ():
        if owner.controller:
            found = owner
    return found


def controlling(
    candidates: Iterable[Candidate], *, namespace: str, labels: Mapping[str, str] | None, kind: str, name: str
) -> Candidate | None:
    """Return the strongest VPA for a pod whose topmost controller has this kind and name."""
    fitting = [
        candidate
        for candidate in candidates
        if candidate.namespace == namespace
        and candidate.target is not None
        and candidate.target.kind == kind
        and candidate.target.name == name
        and candidate.selector.matches(labels)
    ]
    return min(fitting, key=_age, default=None)


def _age(candidate: Candidate) -> tuple[float, str]:
    created = candidate.created
    return (created.timestamp() if created is not None else float("-inf"), candidate.name)
