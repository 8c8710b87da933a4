"""Docker's way of saying what CRI says: names, labels, paths and environment of its HTTP API."""

from collections.abc import Iterable, Mapping

from kubetide.errors import InvalidInput

ANNOTATION_PREFIX = "annotation."
SYSTEMD = "systemd"


def full_cgroup_parent(parent: str, driver: str) -> str:
    """Return the cgroup path that docker's cgroup parent stands for; systemd slices are written out in full."""
    if driver != SYSTEMD or "/" in parent or not parent.endswith(".slice"):
        return parent
    names = parent.removesuffix(".slice").split("-")
    return "/" + "/".join("-".join(names[: count + 1]) + ".slice" for count in range(len(names)))


def docker_cgroup_parent(path: str, driver: str) -> str:
    """Return what docker wants to hear for a cgroup path: the last slice with systemd, the path otherwise."""
    return path.rstrip("/").rpartition("/")[2] if driver == SYSTEMD else path


def container_id(url_path: str) -> str:
    """Return the container that a request is about: the second last element of its path."""
    parts = url_path.split("/")
    if len(parts) < 2 or not parts[-2]:
        raise InvalidInput(f"{url_path!r} names no container", field="path")
    return parts[-2]


def split_labels(labels: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return labels and annotations; docker keeps annotations as labels with a prefix."""
    plain: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for name, value in (labels or {}).items():
        if name.startswith(ANNOTATION_PREFIX):
            annotations[name.removeprefix(ANNOTATION_PREFIX)] = value
        else:
            plain[name] = value
    return plain, annotations


def split_env(env: Iterable[str] | None) -> dict[str, str]:
    """Return the environment as a map; entries without an equals sign are dropped."""
    return {name: value for name, separator, value in (entry.partition("=") for entry in env or ()) if separator}
