"""Which changes of a watch are news: versions of a collection, by key, deletions included.

After a list at version L, a change at version v of key k is news when v > L and v is above the last version known
of k, be it an object or its deletion. Deletions are remembered up to a limit; forgetting one raises the floor to
its version, so that nothing older can bring the object back.

Resource versions are integers on every Kubernetes API server; where one is not, any different version is news.
"""

from collections import OrderedDict

from kubetide.api.meta import ObjectKey

REMEMBERED_DELETIONS = 10_000


def newer(version: str, than: str) -> bool:
    """Say whether `version` comes after `than`."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


class Versions:
    """What was seen of one collection since it was last listed."""

    def __init__(self, remembered: int = REMEMBERED_DELETIONS) -> None:
        self._remembered = remembered
        self.start("")

    def start(self, listed: str) -> None:
        """Begin anew after a list at version `listed`."""
        self._floor = listed
        self._deleted: OrderedDict[ObjectKey, str] = OrderedDict()
        self.latest = listed
        self.vouched = listed

    def vouch(self, version: str) -> None:
        """Note that everything up to `version` was delivered."""
        if version:
            self._advance(version)
            self.vouched = self.latest

    def accept(self, key: ObjectKey, version: str, known: str, *, deleted: bool) -> bool:
        """Say whether a change is news for `key`, whose object in hand has version `known`; remember that it came."""
        if not version:
            return True
        self._advance(version)
        if not self._floor or newer(version, self._floor):
            pass
        else:
            return False
        if known and not newer(version, known):
            return False
        gone = self._deleted.get(key)
        if gone is not None and not newer(version, gone):
            return False
        if deleted:
            self._remember(key, version)
        elif gone is not None:
            del self._deleted[key]
        return True

    def _remember(self, key: ObjectKey, version: str) -> None:
        self._deleted[key] = version
        self._deleted.move_to_end(key)
        if len(self._deleted) > self._remembered:
            _, oldest = self._deleted.popitem(last=False)
            if newer(oldest, self._floor):
                self._floor = oldest

    def _advance(self, version: str) -> None:
        if not self.latest or newer(version, self.latest):
            self.latest = version
