"""Hand-over: was what ran before of the release that kubetide follows?

A component that takes over should not change how objects behave. So before it acts it looks for the controller that it
replaces, and where that is of another release than `--compat` names, it says so, once, as a warning:

    built into Kubernetes   a controller manager does not report its version, but it is of the API server's release or
                            just behind it (`/version`)
    a Deployment            the tag of its image, or its version label; one that is scaled to 0 counts, because that is
                            how people hand over
    a pod on the node       the tag of its image

What cannot be found or read is no difference: nothing is known of it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ApiObject
from kubetide.api.objects.scheme import DEPLOYMENTS
from kubetide.api.values.codec import decode, decode_raw
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.log import get_logger

log = get_logger("handover")

VERSION_LABEL = "app.kubernetes.io/version"
_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:[.+-].*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class AtWork:
    """A controller that is, or was, at work, and its version as it reports it."""

    name: str
    version: str


class _Container(ApiObject, frozen=True, kw_only=True, gc=False):
    image: str = ""


class _PodSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    containers: tuple[_Container, ...] | None = None


class _Template(ApiObject, frozen=True, kw_only=True, gc=False):
    spec: _PodSpec = _PodSpec()


class _Spec(ApiObject, frozen=True, kw_only=True, gc=False):
    template: _Template = _Template()


class _Meta(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    labels: Mapping[str, str] | None = None


class _Deployment(ApiObject, frozen=True, kw_only=True, gc=False):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Deployments(ApiObject, frozen=True, kw_only=True, gc=False):
    items: tuple[_Deployment, ...] | None = None


def difference(found: AtWork | None, follows: str, *, alike: Collection[str] = ()) -> str:
    """Return how a controller differs from the release that is followed; empty if it does not, or nothing is known.

    Releases in `alike` behave the same.
    """
    if found is None or not found.version:
        return ""
    release = release_of(found.version)
    if release == follows or {release, follows} <= set(alike):
        return ""
    return f"{found.name} is {release or found.version[:40]}, kubetide follows {follows}"


def release_of(version: str) -> str:
    """Return the `major.minor` of a version; empty when it is none."""
    found = _VERSION.fullmatch(version.strip())
    return "" if found is None else f"{int(found[1])}.{int(found[2])}"


def program_of(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def image_version(image: str) -> str:
    """Return the tag of an image; empty when it has none, or one that is no version."""
    name, _, _ = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return tag if colon and release_of(tag) else ""


def running(pods: Iterable[Pod], program: str) -> AtWork | None:
    """Return the first of the pods, by name, that runs this program now."""
    for pod in sorted(pods, key=lambda one: (one.metadata.namespace, one.metadata.name)):
        if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
            continue
        for container in pod.spec.containers or ():
            if program_of(container.image) == program:
                return AtWork(f"pod {pod.metadata.namespace}/{pod.metadata.name}", image_version(container.image))
    return None


async def in_cluster(client: Client) -> AtWork | None:
    """Return the release of the cluster, which built-in controllers are of."""
    try:
        found = decode_raw((await client.request("GET", "/version")).body, what="/version")
    except KubetideError as error:
        log.info("the version of the cluster cannot be read", error=str(error))
        return None
    return AtWork("the cluster", str(found.get("gitVersion") or ""))


async def deployed(client: Client, program: str, namespace: str) -> AtWork | None:
    """Return the Deployment of a namespace whose image is this program; None when there is none, or no permission."""
    try:
        answer = await client.request("GET", DEPLOYMENTS.path(namespace=namespace))
        listed = decode(answer.body, _Deployments, what="Deployments")
    except KubetideError as error:
        log.info("whether another controller was at work cannot be read", program=program, error=str(error))
        return None
    for item in listed.items or ():
        for container in item.spec.template.spec.containers or ():
            if program_of(container.image) == program:
                version = image_version(container.image) or (item.metadata.labels or {}).get(VERSION_LABEL, "")
                return AtWork(f"Deployment {namespace}/{item.metadata.name}", version)
    return None


async def compare_deployed(client: Client, component: str, *, program: str, namespace: str, follows: str) -> str:
    """Warn where the Deployment that a component replaces is of another release; return what was said."""
    return warn_of(await deployed(client, program, namespace), component, follows)


def warn_of(found: AtWork | None, component: str, follows: str, *, alike: Collection[str] = ()) -> str:
    """Warn where the controller at work is of another release; return what was said."""
    told = difference(found, follows, alike=alike)
    if told:
        log.warning("taking over from another release", component=component, difference=told, compat=follows)
    return told
