"""Read your writes: no decision about an autoscaler from a cache that has not seen our last write of its status.

A decision from an older status would judge by conditions and a last scale time that are no longer true. The version
of the write is compared with the newest version that the watch of autoscalers has delivered, and with the version of
the object itself, whose event may have been lost; a version that cannot be compared keeps nobody waiting.

The cache gets one sync period to show the write. After that what the server answered to the write stands in for the
cached object: a watch that brings nothing must not stop an autoscaler for good.
"""

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey
from kubetide.kube.cache.versions import newer


class OwnWrites:
    """The status writes that the cache may not have seen yet."""

    def __init__(self) -> None:
        self._written: dict[ObjectKey, tuple[str, str]] = {}
        self._saved: dict[ObjectKey, HorizontalPodAutoscaler] = {}
        """Autoscalers as our last status write left them."""
        self._waiting: set[ObjectKey] = set()
        self._overdue: set[ObjectKey] = set()

    def saved(self, key: ObjectKey, hpa: HorizontalPodAutoscaler) -> None:
        """Remember what the server made of a write."""
        self._saved[key] = hpa
        self._overdue.discard(key)
        self.wrote(key, hpa.metadata.uid, hpa.metadata.resource_version)

    def wrote(self, key: ObjectKey, uid: str, version: str) -> None:
        """Remember the version that a write was given; of one object the newest counts."""
        known = self._written.get(key)
        if known is None or known[0] != uid or is_older(known[1], version):
            self._written[key] = (uid, version)

    def must_wait(self, key: ObjectKey, cached: HorizontalPodAutoscaler | None, cache_version: str) -> bool:
        """Return whether to skip this reconcile; never twice in a row, nor again after the cache was overdue."""
        behind = self.is_behind(key, cached, cache_version)
        waited = key in self._waiting
        if behind and not waited and key not in self._overdue:
            self._waiting.add(key)
            return True
        self._waiting.discard(key)
        return False

    def is_waiting(self, key: ObjectKey) -> bool:
        """Return whether the last reconcile was skipped."""
        return key in self._waiting

    def latest(self, key: ObjectKey, cached: HorizontalPodAutoscaler, cache_version: str) -> HorizontalPodAutoscaler:
        """Return the object to decide about: the cached one, or what was saved where the cache is still behind."""
        if self.is_behind(key, cached, cache_version) and (saved := self._saved.get(key)) is not None:
            self._overdue.add(key)
            return saved
        return cached

    def is_behind(self, key: ObjectKey, cached: HorizontalPodAutoscaler | None, cache_version: str) -> bool:
        """Return whether the cache, or the object in it, is older than our last write; if not, it is forgotten."""
        known, saved = self._written.get(key), self._saved.get(key)
        if known is not None:
            seen = cached is not None and known == (cached.metadata.uid, cached.metadata.resource_version)
            if not seen and is_older(cache_version, known[1]):
                return True
            del self._written[key]
        if cached is None or saved is None:
            return False
        if newer(saved.metadata.resource_version, cached.metadata.resource_version):
            return True
        del self._saved[key]
        return False

    def clear(self, key: ObjectKey, uid: str = "") -> None:
        """Forget the writes to an autoscaler; with a uid only if it is that one."""
        known = self._written.get(key)
        if uid and known is not None and known[0] != uid:
            return
        self._written.pop(key, None)
        self._saved.pop(key, None)
        self._overdue.discard(key)

    def reset(self) -> None:
        """Forget everything, as after a restart."""
        self._written.clear()
        self._saved.clear()
        self._waiting.clear()
        self._overdue.clear()


def is_older(version: str, than: str) -> bool:
    """Return whether one resource version comes before another; no if either is not a number without leading zeros."""
    if not (_is_version(version) and _is_version(than)):
        return False
    return (len(version), version) < (len(than), than)


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0"
