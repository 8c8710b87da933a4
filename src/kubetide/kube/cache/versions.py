"""Which changes of a watch are news: versions of a collection, by key, deletions included.

After a list at version L, a change at version v of key k is news when v > L and v is above the last version known
of k, be it an object or its deletion. Deletions are remembered up to a limit; forgetting one raises the floor to
its version, so that nothing older can bring the object back.

A stream is taken up a little before its last change, so that a change which was overtaken by others just before the
stream broke is sent again: after the oldest of the last `OVERLAP` news, or after the last point at which the server
vouched for everything (the list, a bookmark), whichever is later.

Resource versions are integers on every Kubernetes API server; where one is not, any different version is news.
"""

from collections import OrderedDict, deque

from kubetide.api.objects.meta import ObjectKey

REMEMBERED_DELETIONS = 10_000
OVERLAP = 16


def newer(version: str, than: str) -> bool:
    """Return whether `version` comes after `than`."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


def went_back(version: str, seen: str) -> bool:
    """Return whether `version` comes before one that was `seen`; of versions that are no numbers nobody knows."""
    return version.isdecimal() and seen.isdecimal() and int(version) < int(seen)


class Versions:
    """What was seen of one collection since it was last listed."""

    def __init__(self, remembered: int = REMEMBERED_DELETIONS) -> None:
        self._remembered = remembered
        self.progress = 0
        """Counts news and points of completeness: a stream that does not move it brought nothing."""
        self.start("")

    def start(self, listed: str) -> None:
        """Begin anew after a list at version `listed`."""
        self.listed = listed
        self._floor = listed
        self._deleted: OrderedDict[ObjectKey, str] = OrderedDict()
        self._recent: deque[str] = deque(maxlen=OVERLAP + 1)
        self._vouched = listed
        self.latest = listed

    @property
    def resume(self) -> str:
        """The version to take up a stream from."""
        if len(self._recent) <= OVERLAP:
            return self._vouched
        if all(version.isdecimal() for version in self._recent):
            return min(self._recent, key=int)
        return self._recent[0]

    def vouch(self, version: str) -> None:
        """Note that everything up to `version` was delivered."""
        if version:
            self._advance(version)
            if not self._vouched or newer(version, self._vouched):
                self._vouched = version
                self._recent.clear()
                self.progress += 1

    def accept(self, key: ObjectKey, version: str, known: str, *, deleted: bool) -> bool:
        """Return whether a change is news for `key`, whose object in hand has version `known`; remember it."""
        if not version:
            return True
        # What is above the newest number is above the floor too; only versions that are no numbers have to be compared.
        if not self._advance(version) and self._floor and not newer(version, self._floor):
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
        self._recent.append(version)
        self.progress += 1
        return True

    def repeat(self, version: str) -> None:
        """Note a change that was known before it came, from the answer to a write of our own: the stream goes on."""
        self._advance(version)
        self._recent.append(version)
        self.progress += 1

    def _remember(self, key: ObjectKey, version: str) -> None:
        self._deleted[key] = version
        self._deleted.move_to_end(key)
        if len(self._deleted) > self._remembered:
            _, oldest = self._deleted.popitem(last=False)
            if newer(oldest, self._floor):
                self._floor = oldest

    def _advance(self, version: str) -> bool:
        """Move on to a newer version; return whether it is the highest number so far."""
        if not self.latest or newer(version, self.latest):
            before, self.latest = self.latest, version
            return before.isdecimal() and version.isdecimal()
        return False
