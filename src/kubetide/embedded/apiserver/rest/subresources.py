"""Subresources with a meaning of their own: scale, eviction, binding, in-place resize."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kubetide.api.values.selectors import selector_from
from kubetide.embedded.apiserver.admission.calls import AdmissionCall, Steps
from kubetide.embedded.apiserver.apply import managers
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest import deletion, strategy
from kubetide.embedded.apiserver.rest.bodies import decode_body, is_dry_run, with_warnings
from kubetide.embedded.apiserver.rest.render import answer_raw
from kubetide.embedded.apiserver.rest.requests import Request, RequestTarget
from kubetide.embedded.apiserver.rest.status import (
    Cause,
    Raw,
    StatusError,
    bad_request,
    conflict,
    internal,
    invalid,
    not_found,
    too_many_requests,
)
from kubetide.embedded.apiserver.storage.objects import Entry, ResourceKey, StoreKey
from kubetide.embedded.apiserver.tables.workload_printers import label_selector, selector_of
from kubetide.embedded.apiserver.validation import strictness, validation
from kubetide.errors import InvalidInput

if TYPE_CHECKING:
    from kubetide.embedded.apiserver.rest.verbs import Verbs

SCALE = ("autoscaling/v1", "Scale")
PDBS = ResourceKey("policy", "poddisruptionbudgets")
_BUDGET_PENDING = "DisruptionBudget"


# -- scale


def scale_of(resource: ApiResource, obj: Raw) -> Raw:
    """Return the autoscaling/v1 Scale of an object."""
    metadata = obj["metadata"]
    if resource.crd is not None:
        spec_path, status_path, selector_path = resource.crd.scale_paths()
        replicas = get_path(obj, spec_path)
        if not isinstance(replicas, int):
            raise not_found_scale(resource, metadata["name"])
        selector = get_path(obj, selector_path) if selector_path else None
        current = get_path(obj, status_path)
    else:
        replicas = (obj.get("spec") or {}).get("replicas") or 0
        current = (obj.get("status") or {}).get("replicas")
        selector = selector_of(obj)
    status: Raw = {"replicas": current if isinstance(current, int) else 0}
    if selector:
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in kept if field in metadata},
        "spec": {"replicas": replicas},
        "status": status,
    }


def not_found_scale(resource: ApiResource, name: str) -> StatusError:
    """The object has no replica count where its CRD says it would be."""
    return internal(f"the spec replicas field of {resource.plural} {name!r} does not exist")


def update_scale(
    verbs: "Verbs",
    request: Request,
    target: RequestTarget,
    resource: ApiResource,
    transform: Callable[[Raw], Raw],
    *,
    noticed: Sequence[str] = (),
) -> Steps:
    """Change the replica count through the scale subresource. `noticed` is what is wrong with the request's fields."""
    for _ in range(16):
        entry = verbs.existing(resource, target)
        old = yield from verbs.current(resource, entry)
        before = scale_of(resource, old)
        after = transform(scale_of(resource, old))
        warnings = strictness.check_patched(
            request, [*noticed, *strictness.drop_from("autoscaling/v1", "Scale", after)]
        )
        replicas = _check_scale(resource, target, before, after)
        new = entry.copy() if old is entry.obj else strategy.deep_copy(old)
        path = resource.crd.scale_paths()[0] if resource.crd is not None else ("spec", "replicas")
        set_path(new, path, replicas)
        strategy.count_generation(resource, new, old)
        managers.record(resource, request, new, old, now=verbs.clock.now(), subresource="scale")
        yield AdmissionCall(
            operation="UPDATE",
            resource=resource,
            subresource="scale",
            namespace=target.namespace,
            name=target.name,
            obj=after,
            old=before,
            request=request,
            dry_run=is_dry_run(request),
            options={"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
            kind=("autoscaling", "v1", "Scale"),
        )
        validation.check_change(resource, "scale", new, old)
        stored = yield from verbs.converted(resource, new)
        if verbs.store.get(resource.storage, entry.key) is not entry:
            if (after.get("metadata") or {}).get("resourceVersion"):
                raise conflict(resource.group, resource.plural, target.name)
            continue
        if not (managers.same_but_for_times(new, old) or is_dry_run(request)):
            committed = verbs.commit(resource, entry.key, stored).obj
            new["metadata"]["resourceVersion"] = committed["metadata"]["resourceVersion"]
        return with_warnings(answer_raw(scale_of(resource, new)), warnings)
    raise conflict(resource.group, resource.plural, target.name)


def _check_scale(resource: ApiResource, target: RequestTarget, before: Raw, after: Raw) -> int:
    metadata = after.get("metadata") or {}
    if metadata.get("name", target.name) != target.name:
        raise bad_request("the name of the scale does not match the name on the URL")
    version = metadata.get("resourceVersion")
    if version and version != before["metadata"]["resourceVersion"]:
        raise conflict(resource.group, resource.plural, target.name)
    replicas = (after.get("spec") or {}).get("replicas", 0)
    if replicas is None:
        replicas = 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("spec.replicas of a scale is a whole number")
    if replicas < 0:
        cause = Cause(
            "spec.replicas",
            "FieldValueInvalid",
            f"Invalid value: {replicas}: must be greater than or equal to 0",
        )
        raise invalid("autoscaling", "Scale", target.name, [cause])
    return replicas


def get_path(obj: Raw, path: tuple[str, ...]) -> Any:
    """Return the value at a path, or None."""
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def set_path(obj: Raw, path: tuple[str, ...], value: Any) -> None:
    """Set the value at a path, making the objects on the way."""
    for part in path[:-1]:
        below = obj.get(part)
        if not isinstance(below, dict):
            below = obj[part] = {}
        obj = below
    obj[path[-1]] = value


# -- eviction


def evict(verbs: "Verbs", request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
    """Delete a pod if its disruption budgets allow it."""
    body = decode_body(request)
    strictness.check_part(request, "policy/v1", "Eviction", body)
    if body.get("kind") not in (None, "", "Eviction") or body.get("apiVersion") not in (None, "", "policy/v1"):
        raise bad_request("the body of an eviction is a policy/v1 Eviction")
    name = (body.get("metadata") or {}).get("name") or target.name
    if name != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options: Raw = dict(body.get("deleteOptions") or {})
    entry = verbs.existing(resource, target)
    eviction = {**body, "kind": "Eviction", "apiVersion": "policy/v1"}
    yield AdmissionCall(
        operation="CREATE",
        resource=resource,
        subresource="eviction",
        namespace=target.namespace,
        name=target.name,
        obj=eviction,
        old=None,
        request=request,
        dry_run=is_dry_run(request),
        options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        kind=("policy", "v1", "Eviction"),
    )
    entry = verbs.existing(resource, target)
    dry_run = is_dry_run(request) or options.get("dryRun") == ["All"]
    if not _needs_no_budget(entry.obj):
        _spend_budget(verbs, entry, dry_run=dry_run)
    plain = Request(
        "DELETE",
        request.path,
        {key: value for key, value in request.query.items() if key == "dryRun"},
        user=request.user,
    )
    pod = RequestTarget(target.group, target.version, target.plural, target.namespace, target.name)
    options.pop("dryRun", None)
    yield from deletion.delete_one(verbs, plain, pod, resource, options)
    return answer_raw({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _needs_no_budget(pod: Raw) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def _spend_budget(verbs: "Verbs", pod: Entry, *, dry_run: bool) -> None:
    budgets = [
        entry
        for entry in verbs.store.collection(PDBS).entries(pod.key.namespace)
        if _selects(entry.obj, pod.obj["metadata"].get("labels") or {})
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        raise internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = budgets[0]
    spec, status = budget.obj.get("spec") or {}, budget.obj.get("status") or {}
    if not is_ready(pod.obj) and _unready_may_go(spec, status):
        return
    observed = int(status.get("observedGeneration") or 0)
    if observed < int(budget.obj["metadata"].get("generation") or 0):
        cause = Cause(
            "", _BUDGET_PENDING, f"The disruption budget {budget.key.name} is still being processed by the server."
        )
        raise too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.", retry_after=10, causes=[cause]
        )
    allowed = int(status.get("disruptionsAllowed") or 0)
    if allowed <= 0:
        text = (
            f"The disruption budget {budget.key.name} needs {int(status.get('desiredHealthy') or 0)} healthy pods "
            f"and has {int(status.get('currentHealthy') or 0)} currently"
        )
        # No Retry-After here: only the budget's controller can say when there is room again.
        raise StatusError(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            causes=[Cause("", "DisruptionBudget", text)],
        )
    if dry_run:
        return
    disrupted = dict(status.get("disruptedPods") or {})
    disrupted[pod.key.name] = strategy.timestamp(verbs.clock.now())
    new = budget.copy()
    new["status"] = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    verbs.store.put(PDBS, budget.key, new)


def _selects(budget: Raw, labels: dict[str, str]) -> bool:
    raw = (budget.get("spec") or {}).get("selector")
    if raw is None:
        return False
    try:
        return selector_from(label_selector(raw)).matches(labels)
    except InvalidInput:
        return False


def is_ready(pod: Raw) -> bool:
    """Whether a pod's Ready condition is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _unready_may_go(spec: Raw, status: Raw) -> bool:
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = int(status.get("desiredHealthy") or 0)
    return desired > 0 and int(status.get("currentHealthy") or 0) >= desired


# -- binding


def bind(verbs: "Verbs", request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
    """Assign a pod to a node."""
    body = decode_body(request)
    strictness.check_part(request, "v1", "Binding", body)
    name = target.name or (body.get("metadata") or {}).get("name") or ""
    node = (body.get("target") or {}).get("name")
    if not node:
        cause = Cause("target.name", "FieldValueRequired", "Required value")
        raise invalid("", "Binding", name, [cause])
    key = StoreKey(target.namespace, name)
    yield AdmissionCall(
        operation="CREATE",
        resource=resource,
        subresource="binding",
        namespace=target.namespace,
        name=name,
        obj=body,
        old=None,
        request=request,
        dry_run=is_dry_run(request),
        options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        kind=("", "v1", "Binding"),
    )
    entry = verbs.store.get(strategy.PODS, key)
    if entry is None:
        raise not_found("", "pods", name)
    metadata = entry.obj["metadata"]
    if metadata.get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if (entry.obj.get("spec") or {}).get("nodeName"):
        raise conflict(
            "", "pods/binding", name, f'pod {name} is already assigned to node "{entry.obj["spec"]["nodeName"]}"'
        )
    wanted_uid = (body.get("metadata") or {}).get("uid")
    if wanted_uid and wanted_uid != metadata["uid"]:
        raise conflict("", "pods/binding", name, "Precondition failed: UID differs")
    if is_dry_run(request):
        return verbs.success()
    new = entry.copy()
    new["spec"]["nodeName"] = node
    annotations = (body.get("metadata") or {}).get("annotations")
    if annotations:
        new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), **annotations}
    status = new.setdefault("status", {})
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    now = strategy.timestamp(verbs.clock.now())
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = [*conditions, scheduled]
    verbs.store.put(strategy.PODS, key, new)
    return answer_raw({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


# -- resize


def only_resources(new: Raw, old: Raw) -> Raw:
    """Return the old pod with the container resources of the new one: all that a resize may change."""
    result = {**old, "metadata": dict(old["metadata"])}
    spec = dict(old.get("spec") or {})
    new_spec = new.get("spec") or {}
    for field in ("containers", "initContainers"):
        if field not in spec:
            continue
        wanted = {c.get("name"): c for c in new_spec.get(field) or () if isinstance(c, dict)}
        containers = []
        for container in spec[field]:
            changed = wanted.get(container.get("name"))
            if changed is None:
                cause = Cause(
                    "spec." + field, "FieldValueForbidden", "Forbidden: containers may not be added or removed"
                )
                raise invalid("", "Pod", old["metadata"]["name"], [cause])
            kept = dict(container)
            for part in ("resources", "resizePolicy"):
                if part in changed:
                    kept[part] = changed[part]
                else:
                    kept.pop(part, None)
            containers.append(kept)
        spec[field] = containers
    result["spec"] = spec
    return result
