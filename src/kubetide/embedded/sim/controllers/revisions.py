"""ControllerRevisions: what the templates of a StatefulSet or DaemonSet were, so that one can go back to them.

Each template is one revision, named after its hash; a template that comes back is the newest revision again. kubectl
lists them (`rollout history`) and patches the data of one onto the set (`rollout undo`). As many as
`revisionHistoryLimit` are kept beside those that pods still run.
"""

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.adoption import with_owner
from kubetide.embedded.sim.controllers.deployments import template_hash
from kubetide.embedded.sim.world import CONTROLLER_REVISIONS, World, controller_of, key_of, owner_reference

REVISION_LABEL = "controller-revision-hash"
"""On pods: the name of their revision in a StatefulSet, its hash in a DaemonSet."""
_HASH_LABELS = {"DaemonSet": REVISION_LABEL, "StatefulSet": "controller.kubernetes.io/hash"}
_KEPT = 10


def revision_name(owner: Raw) -> str:
    """Return the name of the revision of the present template."""
    return f"{owner['metadata']['name']}-{template_hash(owner['spec']['template'])}"


async def record(world: World, owner: Raw) -> None:
    """See to it that the present template is the newest revision."""
    metadata, template = owner["metadata"], owner["spec"]["template"]
    known = world.children(metadata["uid"], CONTROLLER_REVISIONS)
    name = revision_name(owner)
    newest = max((int(each["revision"]) for each in known), default=0)
    present = world.get(CONTROLLER_REVISIONS, StoreKey(metadata["namespace"], name))
    if present is not None:
        if controller_of(present) is None:
            present = world.put(CONTROLLER_REVISIONS, present, metadata=with_owner(present, owner))
        if int(present["revision"]) < newest:
            world.put(CONTROLLER_REVISIONS, present, revision=newest + 1)
        return
    annotations = metadata.get("annotations")  # among them what kubectl shows as the cause of the change
    hashed = {_HASH_LABELS[owner["kind"]]: template_hash(template)}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), **hashed}
    body: Raw = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(owner)],
            **({"annotations": annotations} if annotations else {}),
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": newest + 1,
    }
    await world.create(CONTROLLER_REVISIONS, body)


async def forget_old(world: World, owner: Raw, pods: list[Raw]) -> None:
    """Delete the oldest revisions that no pod runs any more and that are beyond the limit."""
    limit = owner["spec"].get("revisionHistoryLimit")
    labels = {str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL)) for pod in pods}
    used = {revision_name(owner), *labels, *(f"{owner['metadata']['name']}-{label}" for label in labels)}
    known = world.children(owner["metadata"]["uid"], CONTROLLER_REVISIONS)
    idle = [each for each in known if each["metadata"]["name"] not in used]
    idle.sort(key=lambda each: int(each["revision"]))
    for each in idle[: max(0, len(idle) - (_KEPT if limit is None else int(limit)))]:
        await world.delete(CONTROLLER_REVISIONS, key_of(each), uid=each["metadata"]["uid"])
