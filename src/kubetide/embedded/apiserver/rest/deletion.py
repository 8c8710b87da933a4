"""Deleting: grace periods, finalizers, propagation, preconditions.

An object goes at once unless something must happen first: a pod on a node is given its grace period and is removed
by the kubelet; an object with finalizers waits until the last one is taken off. Foreground and orphan deletion are
finalizers too, which the garbage collector works off. A namespace waits for its content.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from kubetide.embedded.apiserver.admission.calls import AdmissionCall, Conversion, Steps
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest import strategy
from kubetide.embedded.apiserver.rest.bodies import decode_body, is_dry_run
from kubetide.embedded.apiserver.rest.render import answer_list, make_view, unconverted
from kubetide.embedded.apiserver.rest.requests import Request, RequestTarget
from kubetide.embedded.apiserver.rest.status import Cause, Raw, bad_request, conflict, forbidden, invalid
from kubetide.embedded.apiserver.storage.objects import Entry

if TYPE_CHECKING:
    from kubetide.embedded.apiserver.rest.verbs import Verbs

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_PROTECTED = ("default", "kube-system", "kube-public", "kube-node-lease")
_MAX_ATTEMPTS = 16


def delete(verbs: "Verbs", request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
    """Delete one object."""
    options = delete_options(request)
    return delete_one(verbs, request, target, resource, options)


def delete_one(verbs: "Verbs", request: Request, target: RequestTarget, resource: ApiResource, options: Raw) -> Steps:
    """Delete one object under options that are already read."""
    dry_run = is_dry_run(request) or options.get("dryRun") == ["All"]
    for _ in range(_MAX_ATTEMPTS):
        entry = verbs.existing(resource, target)
        _check_preconditions(resource, entry, options)
        if resource.storage == strategy.NAMESPACES and target.name in _PROTECTED:
            raise forbidden("", "namespaces", target.name, "this namespace may not be deleted")
        yield AdmissionCall(
            operation="DELETE",
            resource=resource,
            subresource="",
            namespace=target.namespace,
            name=target.name,
            obj=None,
            old=entry.obj,
            request=request,
            dry_run=dry_run,
            options={"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **options},
        )
        if verbs.store.get(resource.storage, entry.key) is not entry:
            continue
        marked = _marked(verbs, resource, entry, options)
        view = make_view(resource, request, verbs.clock.now())
        if marked is None:
            if not dry_run:
                verbs.store.delete(resource.storage, entry.key)
            metadata = entry.obj["metadata"]
            if resource.storage == strategy.PODS:
                return (yield from verbs.answer(view, entry))
            return verbs.success(
                {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
            )
        if marked == entry.obj or dry_run:
            return (yield from verbs.answer(view, entry))
        return (yield from verbs.answer(view, verbs.commit(resource, entry.key, marked)))
    raise conflict(resource.group, resource.plural, target.name)


def delete_collection(verbs: "Verbs", request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
    """Delete everything that the selectors of the request match."""
    options = delete_options(request)
    entries = verbs.matching(resource, target, request)
    for entry in entries:
        one = RequestTarget(
            target.group, target.version, target.plural, entry.key.namespace, entry.key.name, target.subresource
        )
        yield from delete_one(verbs, request, one, resource, options)
    view = make_view(resource, request, verbs.clock.now())
    waiting = unconverted(view, entries)
    if waiting:
        yield Conversion(resource=resource, entries=waiting)
    return answer_list(view, entries, {"resourceVersion": str(verbs.store.revision)})


def is_finished(resource: ApiResource, obj: Raw) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource.storage == strategy.NAMESPACES:
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def delete_options(request: Request) -> Raw:
    """Return the DeleteOptions of a request: its body, or its query."""
    options = decode_body(request, empty=True) if request.body else {}
    if options.get("kind") not in (None, "", "DeleteOptions"):
        raise bad_request(f"the body of a delete is DeleteOptions, not {options.get('kind')}")
    query = request.query
    if "gracePeriodSeconds" in query:
        try:
            options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        except ValueError:
            raise bad_request("gracePeriodSeconds is not a number") from None
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    policy = options.get("propagationPolicy")
    if policy not in (None, "", "Orphan", "Background", "Foreground"):
        cause = Cause(
            "propagationPolicy",
            "FieldValueNotSupported",
            f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan"',
        )
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    grace = options.get("gracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or grace < 0):
        cause = Cause("gracePeriodSeconds", "FieldValueInvalid", f"Invalid value: {grace}: must not be negative")
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    return options


def _check_preconditions(resource: ApiResource, entry: Entry, options: Raw) -> None:
    preconditions = options.get("preconditions") or {}
    metadata = entry.obj["metadata"]
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = preconditions.get(field)
        if wanted and wanted != metadata[field]:
            why = f"Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {metadata[field]}"
            raise conflict(resource.group, resource.plural, entry.key.name, why)


def _marked(verbs: "Verbs", resource: ApiResource, entry: Entry, options: Raw) -> Raw | None:
    """Return the object marked for deletion, or None if it can go at once."""
    old = entry.obj
    metadata = dict(old["metadata"])
    finalizers = _finalizers(metadata, options)
    grace = _grace_seconds(resource, old, options)
    waits_for_content = resource.storage == strategy.NAMESPACES and (old.get("spec") or {}).get("finalizers")
    if not finalizers and not grace and not waits_for_content:
        return None
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    already = metadata.get("deletionTimestamp")
    shorter = grace < int(metadata.get("deletionGracePeriodSeconds") or 0)
    if not already or shorter:
        metadata["deletionTimestamp"] = strategy.timestamp(verbs.clock.now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if not already and (resource.generation or resource.crd is not None):
            metadata["generation"] = int(metadata.get("generation") or 0) + 1
    marked = {**old, "metadata": metadata}
    if resource.storage == strategy.NAMESPACES:
        marked["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
    return marked


def _finalizers(metadata: Raw, options: Raw) -> list[str]:
    present = list(metadata.get("finalizers") or ())
    policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "")
    match policy:
        case "Orphan":
            wanted = [ORPHAN]
        case "Foreground":
            wanted = [FOREGROUND]
        case "Background":
            wanted = []
        case _:
            return present
    kept = [name for name in present if name not in (ORPHAN, FOREGROUND)]
    return kept + wanted


def _grace_seconds(resource: ApiResource, obj: Raw, options: Raw) -> int:
    if resource.storage != strategy.PODS:
        return 0
    spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds")
    pending = obj["metadata"].get("deletionGracePeriodSeconds")
    if pending is not None:
        grace = pending if grace is None or options.get("gracePeriodSeconds") is None else min(grace, pending)
    return int(30 if grace is None else grace)
