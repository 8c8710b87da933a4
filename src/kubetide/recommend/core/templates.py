"""Where the pod template of a workload stands, and which object a change of sizes belongs to.

    Deployment, StatefulSet, …          spec.template
    CronJob                             spec.jobTemplate.spec.template
    custom resource (Argo's Rollout)    spec.template
    Rollout with spec.workloadRef       the template of the Deployment that it names

A Rollout that refers to a Deployment makes the pods, but sizes are the Deployment's: the row is the Deployment's, with
the pods of both. A custom resource without a template is sized by the containers of its pods; where the sizes are
written is not known then, and the row says so. What an operator makes (a StatefulSet of a Prometheus) has rows with the
name of its manager, which would undo a patch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kubetide.api.objects.core import Container as PodContainer
from kubetide.api.objects.core import Pod, PodSpec, PodTemplate
from kubetide.api.objects.meta import ApiObject, ObjectMeta, TypedObject, controller_of
from kubetide.api.objects.scheme import Resource
from kubetide.recommend.core.workloads import NOTHING, Container, Maker, Place, Sizes, Workload, sizes
from kubetide.vpa.core.policy import CPU, MEMORY

TEMPLATE = "spec.template"
Owner = tuple[str, str, str]
"""Namespace, kind, name."""


class _JobTemplateSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    template: PodTemplate | None = None
    parallelism: int | None = None


class _JobTemplate(ApiObject, frozen=True, kw_only=True, gc=False):
    spec: _JobTemplateSpec = _JobTemplateSpec()


class _Reference(ApiObject, frozen=True, kw_only=True, gc=False):
    kind: str = ""
    name: str = ""


class _Spec(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int | None = None
    parallelism: int | None = None
    template: PodTemplate | None = None
    job_template: _JobTemplate | None = None
    workload_ref: _Reference | None = None


class _Status(ApiObject, frozen=True, kw_only=True, gc=False):
    desired_number_scheduled: int = 0


class Templated(TypedObject, frozen=True, kw_only=True, gc=False):
    """A built-in workload."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


class Custom(TypedObject, frozen=True, kw_only=True, gc=False):
    """An object of a custom resource: nothing about its shape is certain."""

    spec: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One object that was listed, read as far as it can be."""

    resource: Resource[Any]
    meta: ObjectMeta
    spec: _Spec
    status: _Status | None = None
    custom: bool = False
    raw: Any = None
    """The spec of a custom resource as it is."""

    @property
    def key(self) -> Owner:
        """What names it among all that was listed."""
        return (self.meta.namespace, self.resource.kind, self.meta.name)

    @property
    def manager(self) -> Owner | None:
        """What controls it, as an operator's resource does."""
        owner = controller_of(self.meta)
        return None if owner is None else (self.meta.namespace, owner.kind, owner.name)

    @property
    def refers_to(self) -> Owner | None:
        """The workload whose template it takes, where it has none of its own."""
        reference = self.spec.workload_ref
        if not self.custom or self.template is not None or reference is None or not reference.name:
            return None
        return (self.meta.namespace, reference.kind, reference.name)

    @property
    def template(self) -> PodTemplate | None:
        """The pod template, if it has one with containers."""
        job = self.spec.job_template
        found = job.spec.template if job is not None else self.spec.template
        return found if found is not None and found.spec.containers else None

    @property
    def replicas(self) -> int:
        """How many pods it wants."""
        if self.resource.kind == "DaemonSet":
            return self.status.desired_number_scheduled if self.status is not None else 0
        if self.resource.kind in ("Job", "CronJob"):
            job = self.spec.job_template
            return (job.spec.parallelism if job is not None else self.spec.parallelism) or 1
        return self.spec.replicas if self.spec.replicas is not None else 1


def read(resource: Resource[Any], each: Templated | Custom) -> Found:
    """Return what can be read of an object; a template of another shape is none."""
    if isinstance(each, Templated):
        return Found(resource=resource, meta=each.metadata, spec=each.spec, status=each.status)
    raw = each.spec if isinstance(each.spec, Mapping) else {}
    parts: dict[str, Any] = {}
    for name, shape in (("replicas", int), ("template", PodTemplate), ("workloadRef", _Reference)):
        try:
            parts[name] = msgspec.convert(raw.get(name), shape | None)
        except msgspec.ValidationError:
            continue
    spec = _Spec(replicas=parts.get("replicas"), template=parts.get("template"), workload_ref=parts.get("workloadRef"))
    return Found(resource=resource, meta=each.metadata, spec=spec, custom=True, raw=raw)


def referrers(objects: Iterable[Found]) -> dict[Owner, Found]:
    """Return which custom resource takes the template of which workload; of several, the first by name."""
    listed = {each.key: each for each in objects}
    found: dict[Owner, Found] = {}
    for key in sorted(listed):
        target = listed[key].refers_to
        if target is not None and target in listed and listed[target].template is not None:
            found.setdefault(target, listed[key])
    return found


def workload_of(each: Found, pods: Sequence[Pod]) -> Workload | None:
    """Return an object as something to be sized; None where it has no pods."""
    running = [pod for pod in pods if pod.status.phase in ("Pending", "Running")]
    found = Workload(
        api_version=each.resource.api_version,
        kind=each.resource.kind,
        namespace=each.meta.namespace,
        name=each.meta.name,
        replicas=each.replicas,
        containers=(),
        pods=frozenset(pod.metadata.name for pod in pods),
        nodes=frozenset(pod.spec.node_name for pod in running if pod.spec.node_name),
        managed_by="" if each.manager is None else " ".join(each.manager[1:]),
    )
    if each.template is not None:
        if not each.custom:
            return replace(found, containers=_containers(each.template.spec))
        containers = _containers(each.template.spec, str(each.resource), each.raw["template"]["spec"])
        return replace(found, containers=containers)
    if not each.custom:
        return None
    if running:
        newest = max(running, key=lambda pod: (str(pod.metadata.creation_timestamp or ""), pod.metadata.name))
        return replace(found, containers=_containers(newest.spec), no_template=_why(each))
    return replace(found, containers=(Container(""),), no_template=_why(each))


def made_by(workload: Workload, maker: Found) -> Workload:
    """Return a workload whose pods another object makes: it has the replicas of both, as one is scaled down."""
    return replace(
        workload,
        replicas=workload.replicas + maker.replicas,
        maker=Maker(api_version=maker.resource.api_version, kind=maker.resource.kind, name=maker.meta.name),
    )


def _why(each: Found) -> str:
    if each.refers_to is not None:
        _, kind, name = each.refers_to
        return f"its pod template is that of {kind} {name}, which was not found or has another one"
    return f"no pod template at {TEMPLATE}"


def _containers(pod: PodSpec, resource: str = "", raw: Any = None) -> tuple[Container, ...]:
    """Return the containers that keep running; with a resource and its pod also where a patch finds them."""
    found: list[Container] = []
    for among, listed in (("containers", pod.containers or ()), ("initContainers", pod.init_containers or ())):
        names = tuple(one.name for one in listed)
        for index, one in enumerate(listed):
            if among == "containers" or one.restart_policy == "Always":
                path = f"/{TEMPLATE.replace('.', '/')}/spec/{among}/{index}"
                place = None
                if resource:
                    others = _others(raw[among][index].get("resources") or {})
                    place = Place(resource=resource, path=path, holds=_holds(one), others=others)
                found.append(_container(one, among == "initContainers", place, names[:index]))
    return tuple(found)


def _holds(one: PodContainer) -> tuple[str, ...]:
    held = one.resources
    parts = {"resources": held, "requests": held and held.requests, "limits": held and held.limits}
    return tuple(name for name, part in parts.items() if part is not None)


def _others(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return resources without CPU and memory, and without what is empty then."""
    parts = {
        part: {name: amount for name, amount in held.items() if name not in (CPU, MEMORY)}
        if isinstance(held, Mapping)
        else held
        for part, held in held.items()
    }
    return {part: held for part, held in parts.items() if held}


def _container(one: PodContainer, sidecar: bool, place: Place | None, after: tuple[str, ...]) -> Container:
    held = one.resources
    requests, limits = (NOTHING, NOTHING) if held is None else (sizes(held.requests), sizes(held.limits))
    # Pods request their limit where a template names nothing else.
    effective = Sizes(
        requests.cpu_millis if requests.cpu_millis is not None else limits.cpu_millis,
        requests.memory_bytes if requests.memory_bytes is not None else limits.memory_bytes,
    )
    return Container(one.name, effective, limits, sidecar=sidecar, place=place, after=after)
