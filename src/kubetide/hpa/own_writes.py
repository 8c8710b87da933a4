"""Read your writes: no decision about an autoscaler from a cache that has not seen our last write of its status.

A decision from an older status would judge by conditions and a last scale time that are no longer true. The version
of the write is compared with the newest version that the watch of autoscalers has delivered; a version that cannot
be compared keeps nobody waiting.
"""

from kubetide.api.objects.meta import ObjectKey


class OwnWrites:
    """The versions of status writes that the cache may not have seen yet."""

    def __init__(self) -> None:
        self._written: dict[ObjectKey, tuple[str, str]] = {}

    def wrote(self, key: ObjectKey, uid: str, version: str) -> None:
        """Remember the version that a write was given; of one object the newest counts."""
        known = self._written.get(key)
        if known is None or known[0] != uid or is_older(known[1], version):
            self._written[key] = (uid, version)

    def seen_by(self, key: ObjectKey, cache: str) -> bool:
        """Tell whether a cache at version `cache` has seen our last write; if so, it is forgotten."""
        known = self._written.get(key)
        if known is not None and is_older(cache, known[1]):
            return False
        self._written.pop(key, None)
        return True

    def clear(self, key: ObjectKey, uid: str = "") -> None:
        """Forget an autoscaler that is gone; with a uid only if it is that one."""
        known = self._written.get(key)
        if known is not None and uid in ("", known[0]):
            del self._written[key]


def is_older(version: str, than: str) -> bool:
    """Tell whether one resource version comes before another; no if either is not a number without leading zeros."""
    if not (_is_version(version) and _is_version(than)):
        return False
    return (len(version), version) < (len(than), than)


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0"
