"""Which VPAs a recommender serves, and what is wrong with those whose target cannot be used.

A VPA names at most one recommender; one that names none belongs to the one called `default`. Ignored namespaces and,
with sharding, VPAs of other shards are left alone. The shard is a stable hash of namespace and name, so it does not
depend on Python's seed, the process or the order of arrival.
"""

import zlib

from kubetide.api.vpa import DEFAULT_RECOMMENDER, CrossVersionObjectReference, VerticalPodAutoscaler
from kubetide.vpa.settings import RecommenderSettings


def serves(settings: RecommenderSettings, vpa: VerticalPodAutoscaler) -> bool:
    """Tell whether this recommender is responsible for a VPA."""
    namespace, name = vpa.metadata.namespace, vpa.metadata.name
    if namespace in settings.ignored_vpa_object_namespaces:
        return False
    if settings.vpa_object_namespace and namespace != settings.vpa_object_namespace:
        return False
    number, count = settings.shard_of
    return names_recommender(settings.recommender_name, vpa) and shard(namespace, name, count) == number


def names_recommender(own: str, vpa: VerticalPodAutoscaler) -> bool:
    """Tell whether a VPA asks for the recommender of that name."""
    named = vpa.spec.recommenders or ()
    if not named:
        return own == DEFAULT_RECOMMENDER
    return any(one.name == own for one in named)


def shard(namespace: str, name: str, count: int) -> int:
    """Return the shard of a VPA."""
    return zlib.crc32(f"{namespace}/{name}".encode()) % count


def target_text(target: CrossVersionObjectReference | None) -> str:
    """Return a target as messages name it."""
    return "" if target is None else f"{target.api_version}.{target.kind}/{target.name}"


_TOPMOST = "a topmost well-known or scalable controller"


def unreadable_target(reason: str) -> str:
    """Return what ConfigUnsupported says when the selector cannot be read."""
    return f"Cannot read targetRef. Reason: {reason}" if reason else "Cannot read targetRef"


def failed_check(target: CrossVersionObjectReference, reason: str) -> str:
    """Return what ConfigUnsupported says when the owners of the target cannot be followed."""
    return f"Error checking if target {target_text(target)} is {_TOPMOST}: {reason}"


def no_controller(target: CrossVersionObjectReference) -> str:
    """Return what ConfigUnsupported says when nothing scalable was found."""
    return f"Unknown error during checking if target {target_text(target)} is {_TOPMOST}"


def has_parent(target: CrossVersionObjectReference) -> str:
    """Return what ConfigUnsupported says when the target is itself controlled."""
    return f"The target {target_text(target)} has a parent controller but it should point to {_TOPMOST}"
