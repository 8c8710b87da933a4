"""Asks the API to evict pods: once per pod, in order, until enough is accepted; budgets are respected.

The eviction API comes first, always. What it accepts counts toward the amount to release; a 429 means that a
disruption budget protects the pod, which is left alone, reported, and does not count. Containers are stopped
directly only for plans that say so, and only after the API agreed. A pod that was evicted within the last two
minutes is not asked for again.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from kubetide.api.objects.events import Event, warning
from kubetide.api.objects.meta import ApiObject, ObjectReference
from kubetide.api.objects.scheme import PODS
from kubetide.api.values.codec import decode, encode
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound, TooManyRequests
from kubetide.log import get_logger
from kubetide.node.core.evictions.selection import Selection
from kubetide.node.core.plan import Eviction, Notice, Plan
from kubetide.telemetry import Telemetry

log = get_logger("node.evictor")

REMEMBERED = timedelta(minutes=2)
SUCCESS, FAILURE = "evictPodSuccess", "evictPodFail"
SUPPORTED_VERSIONS = ("v1", "v1beta1")


class EvictionUnsupported(KubetideError):
    """The API server offers no eviction that this agent can speak."""


class Outcome(StrEnum):
    """What became of one eviction."""

    ACCEPTED = "accepted"
    PROTECTED = "protected"
    FAILED = "failed"
    KNOWN = "known"


class EvictionAudit(Protocol):
    """Remembers what was decided about pods."""

    def record(
        self,
        *,
        reason: str,
        message: str,
        level: int = 3,
        type: str = "unknown",  # noqa: A002
        namespace: str = "",
        name: str = "",
    ) -> None:
        """Note a decision about one pod or the node."""
        ...


class _Resource(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resources(ApiObject, frozen=True, kw_only=True, gc=False):
    resources: tuple[_Resource, ...] | None = None


def eviction_version(groups: Mapping[str, Sequence[str]], core: Iterable[tuple[str, str, str]] | None) -> str | None:
    """Return the version of the policy group to speak, None when there is none that this agent knows.

    `groups` has the versions of each group, preferred first; `core` the (name, kind, version) of the core
    resources, None when the server has no core list.
    """
    if "policy" not in groups or core is None:
        return None
    version = next((version for name, kind, version in core if name == "pods/eviction" and kind == "Eviction"), "")
    if not version:
        version = next(iter(groups["policy"]), "")
    return version if version in SUPPORTED_VERSIONS else None


class NodeEvictor:
    """Evicts through the API in the name of one node."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        node_name: str,
        publish: Callable[[Event], None],
        telemetry: Telemetry,
        audit: EvictionAudit | None = None,
        stop_containers: Callable[[Eviction], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._node_name = node_name
        self._publish = publish
        self._audit = audit
        self._stop_containers = stop_containers
        self._version: str | None = None
        self._evicted: dict[str, datetime] = {}
        self._told: dict[tuple[str, str], datetime] = {}
        self._total = telemetry.counter(
            "koordlet_pod_eviction", "Pods evicted by this agent, by reason.", ("node", "reason")
        )
        self._detail = telemetry.counter(
            "koordlet_pod_eviction_detail",
            "Pods evicted by this agent.",
            ("node", "pod_namespace", "pod_name", "reason"),
        )
        self._refused = telemetry.counter(
            "kubetide_node_eviction_refused_total", "Evictions that a disruption budget refused.", ("node", "reason")
        )

    def evicted(self) -> dict[str, datetime]:
        """Return the pods whose eviction was accepted within the last two minutes: uid to time."""
        now = self._clock.now()
        self._evicted = {uid: at for uid, at in self._evicted.items() if now - at < REMEMBERED}
        return dict(self._evicted)

    async def carry_out(self, plan: Plan) -> list[Eviction]:
        """Ask for the pods of the plan's tasks until what was accepted releases their amounts; return those pods."""
        accepted: list[Eviction] = []
        selection = Selection(plan.tasks, plan.pending)
        while (eviction := selection.next()) is not None:
            outcome = await self.evict(eviction)
            if outcome is Outcome.ACCEPTED:
                accepted.append(eviction)
            if outcome in (Outcome.ACCEPTED, Outcome.KNOWN):
                selection.accepted(eviction)
        for notice in plan.notices:
            self._tell(notice)
        return accepted

    async def evict(self, eviction: Eviction) -> Outcome:
        """Ask the API to evict one pod."""
        if eviction.uid in self.evicted():
            return Outcome.KNOWN
        about = _reference(eviction)
        try:
            await self._post(eviction)
        except TooManyRequests as error:
            self._refused.labels(self._node_name, eviction.reason).inc()
            self._report(eviction, about, f"a disruption budget protects the pod: {error}")
            return Outcome.PROTECTED
        except NotFound:
            return Outcome.FAILED
        except (ApiError, Unavailable, EvictionUnsupported) as error:
            self._report(eviction, about, f"{eviction.message}; not evicted: {error}")
            return Outcome.FAILED
        self._evicted[eviction.uid] = self._clock.now()
        self._total.labels(self._node_name, eviction.reason).inc()
        self._detail.labels(self._node_name, eviction.namespace, eviction.name, eviction.reason).inc()
        self._publish(warning(about, SUCCESS, f"{eviction.reason}: {eviction.message}"))
        self._record(eviction, eviction.message)
        log.info("pod evicted", pod=f"{eviction.namespace}/{eviction.name}", reason=eviction.reason)
        if eviction.stop_containers and self._stop_containers is not None:
            await self._stop_containers(eviction)
        return Outcome.ACCEPTED

    async def _post(self, eviction: Eviction) -> None:
        version = await self._eviction_version()
        body: dict[str, Any] = {
            "apiVersion": f"policy/{version}",
            "kind": "Eviction",
            "metadata": {"name": eviction.name, "namespace": eviction.namespace},
            "deleteOptions": {"preconditions": {"uid": eviction.uid}},
        }
        path = PODS.path(namespace=eviction.namespace, name=eviction.name, subresource="eviction")
        await self._client.request("POST", path, body=encode(body), retries=0)

    async def _eviction_version(self) -> str:
        if self._version is None:
            groups = await self._client.discovery.groups()
            try:
                body = (await self._client.request("GET", "/api/v1")).body
                listed = decode(body, _Resources, what="/api/v1").resources or ()
                core = [(one.name, one.kind, one.version) for one in listed]
            except NotFound:
                core = None
            self._version = eviction_version(groups, core)
        if self._version is None:
            raise EvictionUnsupported("the API server serves no eviction of policy/v1 or policy/v1beta1")
        return self._version

    def _report(self, eviction: Eviction, about: ObjectReference, message: str) -> None:
        """Report a rejected eviction; the recorder folds repetitions, log and audit hear of it once a minute."""
        self._publish(warning(about, FAILURE, message))
        if self._first_in_a_while(eviction.uid, message):
            self._record(eviction, message)
            log.warning("pod not evicted", pod=f"{eviction.namespace}/{eviction.name}", why=message)

    def _tell(self, notice: Notice) -> None:
        if not self._first_in_a_while(notice.uid or self._node_name, notice.reason):
            return
        about = ObjectReference(
            api_version="v1",
            kind="Pod" if notice.name else "Node",
            namespace=notice.namespace,
            name=notice.name or self._node_name,
            uid=notice.uid,
        )
        self._publish(warning(about, notice.reason, notice.message))
        if self._audit is not None:
            self._audit.record(
                reason=notice.reason,
                message=notice.message,
                level=0,
                type="pod" if notice.name else "node",
                namespace=notice.namespace,
                name=about.name,
            )
        log.warning("eviction notice", reason=notice.reason, subject=about.name, detail=notice.message)

    def _first_in_a_while(self, subject: str, what: str) -> bool:
        now = self._clock.now()
        self._told = {key: at for key, at in self._told.items() if now - at < timedelta(minutes=1)}
        if (subject, what) in self._told:
            return False
        self._told[subject, what] = now
        return True

    def _record(self, eviction: Eviction, message: str) -> None:
        if self._audit is not None:
            self._audit.record(
                reason=eviction.reason,
                message=message,
                level=0,
                type="pod",
                namespace=eviction.namespace,
                name=eviction.name,
            )


def _reference(eviction: Eviction) -> ObjectReference:
    return ObjectReference(
        api_version="v1", kind="Pod", namespace=eviction.namespace, name=eviction.name, uid=eviction.uid
    )
