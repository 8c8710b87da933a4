"""Paths of cgroup files, built and checked once: the same thousands of them are read and written every second."""

from kubetide.node.core.files import CgroupFile
from kubetide.node.core.layout import Layout

MOST_PATHS = 20_000


class PathCache:
    """The paths of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: dict[tuple[str, str], str] = {}

    def path(self, file: CgroupFile, directory: str) -> str:
        """Return the absolute path of a cgroup file; raise NotOnThisVersion or EscapesRoot."""
        key = (file.name, directory)
        path = self._known.get(key)
        if path is None:
            if len(self._known) >= MOST_PATHS:
                self.clear()
            path = self._known[key] = self._layout.cgroup_file(file, directory)
        return path

    def clear(self) -> None:
        """Forget all paths, those of cgroups that are gone among them."""
        self._known.clear()
