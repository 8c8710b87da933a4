"""What the updater does to the cluster: evict, resize, write the breaker's condition.

An eviction names the pod by uid and resource version: if anybody, another updater included, changed the pod since it
was looked at, the server refuses and nothing happens. An error that leaves open whether it happened counts as
happened; what a server was merely too busy for is tried again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import DEPLOYMENTS, PODS, VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert, encode
from kubetide.api.values.conditions import Condition, find_condition, set_condition, without_condition
from kubetide.api.values.patch import JsonPatch, MergePatch
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, Conflict, NotFound, ServerTimeout, TooManyRequests
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.vpa.updater.core.breaker import UPDATES_PAUSED, BreakerState, condition_from
from kubetide.vpa.updater.core.disturbing import RESTARTED_AT
from kubetide.vpa.updater.core.resizing import RESIZED

log = get_logger("updater")

T = TypeVar("T")

ATTEMPTS = 3
RETRY = Backoff(base=0.1, cap=2.0, jitter=0.5)


class Attempt(Enum):
    """How an attempt ended."""

    DONE = "done"
    UNKNOWN = "nobody said whether it happened"
    CHANGED = "the pod changed in the meantime"
    FORBIDDEN = "a PodDisruptionBudget forbids it"
    FAILED = "the API server refused it"
    INFEASIBLE = "the node can never hold it"
    BUSY = "the API server is too busy"


class Evictor:
    """Applies decisions to pods and VPAs."""

    def __init__(self, client: Client, *, rng: random.Random) -> None:
        self._client = client
        self._rng = rng

    async def roll_out(self, namespace: str, deployment: str, *, at: datetime) -> str:
        """Begin a rollout of a Deployment; return what went wrong, if anything did."""
        template = {"metadata": {"annotations": {RESTARTED_AT: at.isoformat(timespec="seconds")}}}
        patch = MergePatch({"spec": {"template": template}})
        try:
            await self._client.send_patch(DEPLOYMENTS, deployment, patch, namespace=namespace)
        except KubetideError as error:
            return str(error)
        return ""

    async def evict(self, pod: Pod) -> tuple[Attempt, str]:
        """Evict the pod, if it is still as it was seen."""
        meta = pod.metadata
        preconditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {key: value for key, value in preconditions.items() if value}},
        }
        path = PODS.path(namespace=meta.namespace, name=meta.name, subresource="eviction")
        try:
            await self._client.request("POST", path, body=encode(body), retries=0)
        except (Conflict, NotFound) as error:
            return Attempt.CHANGED, str(error)
        except TooManyRequests as error:
            return Attempt.FORBIDDEN, str(error)
        except (Unavailable, ServerTimeout) as error:
            return Attempt.UNKNOWN, str(error)
        except ApiError as error:
            return Attempt.FAILED, str(error)
        return Attempt.DONE, ""

    async def resize(
        self,
        pod: Pod,
        operations: Sequence[dict[str, Any]],
        *,
        without: Iterable[str] = (),
        noted: Mapping[str, str] | None = None,
    ) -> tuple[Attempt, str]:
        """Write new resources through the resize subresource, and note on the pod that this was done.

        `without` are annotations that go with the change, `noted` such as come with it.
        """
        meta = pod.metadata
        guard = {"op": "test", "path": "/metadata/uid", "value": meta.uid}
        patch = JsonPatch([guard, *operations] if meta.uid else list(operations))

        async def send() -> Pod:
            return await self._client.patch(PODS, meta.name, patch, namespace=meta.namespace, subresource="resize")

        try:
            await self._persist(send)
        except NotFound as error:
            return Attempt.CHANGED, str(error)
        except Unavailable as error:
            return Attempt.UNKNOWN, str(error)
        except ApiError as error:
            if never_fits(error):
                return Attempt.INFEASIBLE, str(error)
            return (Attempt.BUSY if _transient(error) else Attempt.FAILED), str(error)
        note = MergePatch({"metadata": {"annotations": {RESIZED: "true", **dict.fromkeys(without), **(noted or {})}}})
        try:
            await self._client.patch(PODS, meta.name, note, namespace=meta.namespace)
        except KubetideError as error:
            log.debug("could not annotate a resized pod", pod=f"{meta.namespace}/{meta.name}", error=str(error))
        return Attempt.DONE, ""

    async def write_breaker(
        self, key: ObjectKey, state: BreakerState, *, now: datetime, known: Sequence[Condition] = ()
    ) -> VerticalPodAutoscaler | None:
        """Write the condition that holds a breaker's state, whatever else is being written to the status.

        Where the conditions are as `known`, one request does it. Returns the VPA as written, None if nothing was.
        """
        operations = _operations(known, state, now=now)
        if operations:
            patch = JsonPatch(operations)
            try:
                return await self._client.patch(VPAS, key.name, patch, namespace=key.namespace, subresource="status")
            except (ApiError, Unavailable) as error:
                log.debug("conditions are not as they were", vpa=str(key), error=str(error))

        async def send() -> VerticalPodAutoscaler | None:
            raw = await self._client.get_raw(VPAS, key.name, namespace=key.namespace)
            status = raw.get("status") or {}
            old = tuple(convert(entry, Condition) for entry in status.get("conditions") or ())
            new = _with_state(old, state, now=now)
            conditions = _rendered(status.get("conditions") or [], new)
            if conditions == (status.get("conditions") or []):
                return None
            body = {
                "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
                "status": {"conditions": conditions},
            }
            return await self._client.patch(
                VPAS, key.name, MergePatch(body), namespace=key.namespace, subresource="status"
            )

        return await self._persist(send)

    async def _persist(self, send: Callable[[], Awaitable[T]]) -> T:
        """Try again what failed for a passing reason."""
        for attempt in range(ATTEMPTS - 1):
            try:
                return await send()
            except KubetideError as error:
                if not _transient(error):
                    raise
            await asyncio.sleep(RETRY.delay(attempt, self._rng))
        return await send()


def never_fits(error: BaseException | None) -> bool:
    """Return whether a resize was refused because the node can never hold the pod, looking through wrapped errors.

    The admission plugin PodResizeValidator (Kubernetes 1.36) says so with a cause; the status code says nothing.
    """
    while error is not None and not isinstance(error, ApiError):
        error = error.__cause__
    if error is None or error.reason != "Forbidden":
        return False
    return any(cause.get("reason") == "NodeCapacity" for cause in error.causes)


def _transient(error: KubetideError) -> bool:
    if isinstance(error, Unavailable | Conflict | TooManyRequests):
        return True
    return isinstance(error, ApiError) and error.status >= 500


def _with_state(conditions: tuple[Condition, ...], state: BreakerState, *, now: datetime) -> tuple[Condition, ...]:
    wanted = condition_from(state)
    if wanted is None:
        return without_condition(conditions, UPDATES_PAUSED)
    status, reason, message = wanted
    at = state.paused_since or now
    return set_condition(conditions, UPDATES_PAUSED, status, reason=reason, message=message, now=at)


def _operations(known: Sequence[Condition], state: BreakerState, *, now: datetime) -> list[dict[str, Any]]:
    """Return the patch that changes our condition alone; nothing where only a fresh look shows what to write."""
    if not known:
        return []
    index = next((i for i, condition in enumerate(known) if condition.type == UPDATES_PAUSED), None)
    new = find_condition(_with_state(tuple(known), state, now=now), UPDATES_PAUSED)
    if index is None:
        last = len(known) - 1
        guard = {"op": "test", "path": f"/status/conditions/{last}/type", "value": known[last].type}
        return [guard, {"op": "add", "path": "/status/conditions/-", "value": _entry(new)}] if new is not None else []
    path = f"/status/conditions/{index}"
    guard = {"op": "test", "path": f"{path}/type", "value": UPDATES_PAUSED}
    if new is None:
        return [guard, {"op": "remove", "path": path}]
    return [guard, {"op": "replace", "path": path, "value": _entry(new)}]


def _rendered(raw: list[dict[str, Any]], conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """Return the conditions as they are written: others untouched, sorted by type."""
    known = {entry.get("type"): entry for entry in raw}
    result = [_entry(each) if each.type == UPDATES_PAUSED else known[each.type] for each in conditions]
    return sorted(result, key=lambda entry: str(entry.get("type")))


def _entry(condition: Condition) -> dict[str, Any]:
    entry = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    since = condition.last_transition_time
    return {**entry, "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ")} if since is not None else entry
