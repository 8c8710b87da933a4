"""Who of upstream is at work: its agent on a node, or its manager, found by the image that a pod runs.

Taking over should change as little as possible, so the release that was at work is compared with the one whose rules
are followed. The tag of an image says the release; one that says something else is told as it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubetide.api.objects.core import Pod
from kubetide.api.values.compat import Version, release_difference

AGENT, MANAGER = "koordlet", "koord-manager"


@dataclass(frozen=True, slots=True)
class AtWork:
    """A component of upstream that runs in a pod, and the tag of its image."""

    pod: str
    tag: str


def at_work(pods: Iterable[Pod], component: str) -> list[AtWork]:
    """Return the pods that run a component of upstream now, by name."""
    found: list[AtWork] = []
    for pod in pods:
        if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
            continue
        for container in pod.spec.containers or ():
            name, tag = split_image(container.image)
            if name == component:
                found.append(AtWork(f"{pod.metadata.namespace}/{pod.metadata.name}", tag))
                break
    return sorted(found, key=lambda one: one.pod)


def split_image(image: str) -> tuple[str, str]:
    """Return the last part of an image's name, and its tag; empty where it has none or only a digest."""
    name, _, _ = image.partition("@")
    last = name.rpartition("/")[2]
    base, _, tag = last.partition(":")
    return base, tag


def differences(found: Iterable[AtWork], component: str, followed: Version, known: Sequence[Version]) -> list[str]:
    """Return how the releases at work differ from the one that is followed, one line for each release."""
    by_tag: dict[str, list[str]] = {}
    for one in found:
        by_tag.setdefault(one.tag, []).append(one.pod)
    lines: list[str] = []
    for tag, pods in sorted(by_tag.items()):
        others = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        difference = release_difference(f"{component} in {pods[0]}{others}", tag, followed, known)
        lines += [difference] if difference else []
    return lines
