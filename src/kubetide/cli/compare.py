"""Beside the upstream controller: in which decisions would kubetide differ?

Upstream acts, kubetide decides on the same cluster at the same time and writes nothing:

    hpa          the replicas wanted here and in the status of the autoscaler differ in two reconciles in a row
    recommender  a target differs from the one in the status by more than a bucket of the histogram (5 %), or is missing
    updater      upstream evicted or resized a pod that would be left alone or treated otherwise here, or leaves one
                 alone that would be evicted or resized here in three loops in a row

Both sides look at different moments, so what differs only once is no difference. A difference is a line of the output,
a warning in the log, and counts in `kubetide_compare_differences_total` and, while it lasts, in
`kubetide_compare_differing_objects`; `/explain/compare/all` lists them, which is what `kubetide doctor` reads.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import EVENTS, VPAS
from kubetide.api.values.codec import decode_raw, encode
from kubetide.api.values.quantity import Quantity, readable
from kubetide.cli.dry_run import Asked, targets_of
from kubetide.cli.main import Invocation
from kubetide.clock import Clock
from kubetide.errors import KubetideError, QuantityError
from kubetide.hpa.core.observation import ScaleDecision
from kubetide.kube.client.client import Client
from kubetide.kube.client.dry_run import HeldWrite
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("compare")

COMPARED = ("hpa", "recommender", "updater")
TOLERANCE = 0.05
"""Neighbouring buckets of the histograms are 5 % apart: one of them more or less is no other decision."""
PATIENCE = 3
"""Loops in which upstream may be slower than kubetide before leaving a pod alone is a decision."""
LASTS = timedelta(minutes=5)
"""How long a difference counts that is not seen again."""
_ACTIONS = {"EvictedByVPA": "evict", "InPlaceResizedByVPA": "resize"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One decision that kubetide would make otherwise."""

    component: str
    object: str
    upstream: str
    kubetide: str
    why: str = ""

    def as_line(self) -> str:
        """Return it for a person."""
        why = f"  ({self.why})" if self.why else ""
        return f"{self.component}: {self.object} differs: upstream {self.upstream}, kubetide {self.kubetide}{why}"

    def as_fields(self) -> dict[str, str]:
        """Return it for a program."""
        names = ("component", "object", "upstream", "kubetide", "why")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class Comparison(Asked):
    """Compares; a component of the process, so that it can be asked."""

    echo: Callable[[str], None]
    clock: Clock
    telemetry: Telemetry
    client: Client
    as_json: bool = False
    name: str = "compare"
    found: dict[tuple[str, str], tuple[Difference, datetime]] = field(default_factory=dict)
    _suspected: dict[ObjectKey, tuple[int, int]] = field(default_factory=dict)
    _wanted: dict[str, int] = field(default_factory=dict)
    _judged: dict[str, dict[str, Any]] = field(default_factory=dict)
    _seen_events: dict[str, str] | None = None

    def __post_init__(self) -> None:
        gauge = self.telemetry.gauge(
            "kubetide_compare_differing_objects", "Objects about which kubetide would decide otherwise.", ("component",)
        )
        for component in COMPARED:
            gauge.labels(component).set_function(partial(self._count, component))

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the differences that last, for `/explain/compare/all`."""
        if (kind, key) != ("compare", "all"):
            return None
        return {"differences": [one.as_fields() for one in self.lasting()]}

    def notes(self) -> tuple[str, ...]:
        """Return a line for health answers: nothing is written."""
        return (f"compares with upstream and writes nothing; {len(self.lasting())} objects differ",)

    def lasting(self, component: str = "") -> list[Difference]:
        """Return the differences that were seen lately."""
        oldest = self.clock.now() - LASTS
        return [one for one, at in self.found.values() if at >= oldest and component in ("", one.component)]

    def _count(self, component: str) -> float:
        return len(self.lasting(component))

    def differs(self, difference: Difference) -> None:
        """Report a difference when it is new."""
        key, now = (difference.component, difference.object), self.clock.now()
        last = self.found.get(key)
        self.found[key] = (difference, now)
        if last is not None and last[1] >= now - LASTS and _same(last[0], difference):
            return
        fields = difference.as_fields()
        self.telemetry.counter(
            "kubetide_compare_differences_total", "Decisions that kubetide would have made otherwise.", ("component",)
        ).labels(difference.component).inc()
        log.warning("differs from upstream", **fields)
        at = now.isoformat(timespec="seconds")
        self.echo(encode({"at": at, **fields}).decode() if self.as_json else difference.as_line())

    def agrees(self, component: str, subject: str) -> None:
        """Take note that both decide alike, and tell it where they did not."""
        if self.found.pop((component, subject), None) is not None:
            fields = {"component": component, "object": subject, "agrees": True}
            self.echo(encode(fields).decode() if self.as_json else f"{component}: {subject} agrees again")

    # Where decisions come from.

    def decided(self, key: ObjectKey, decision: ScaleDecision) -> None:
        """Compare a decision of the horizontal autoscaler with the status that upstream wrote."""
        status = decision.hpa.status
        if status is None or not (status.desired_replicas or status.conditions):
            return  # upstream has not looked at it yet
        upstream, ours = status.desired_replicas, decision.desired
        subject = f"HorizontalPodAutoscaler {key}"
        if upstream == ours:
            self._suspected.pop(key, None)
            self.agrees("hpa", subject)
            return
        # Upstream may be about to decide the same: it is a difference once the same one is seen again.
        before = self._suspected.get(key)
        self._suspected[key] = (upstream, ours)
        if before is not None and before[0] == upstream:
            self.differs(
                Difference(
                    component="hpa",
                    object=subject,
                    upstream=f"wants {upstream} replicas",
                    kubetide=f"wants {ours}",
                    why=decision.why or (decision.problem.message if decision.problem is not None else ""),
                )
            )

    def holder(self, component: str) -> Callable[[HeldWrite], None]:
        """Return what gets the writes that a component's transport holds back: the recommender's statuses count."""
        return self._recommended if component == "recommender" else _ignored

    def _recommended(self, write: HeldWrite) -> None:
        if write.place.plural != VPAS.plural or write.after is None or not (write.before or {}).get("status"):
            return  # upstream has not looked at it yet
        old, new = targets_of(write.before or {}), targets_of(write.after)
        other = [key for key in dict.fromkeys((*new, *old)) if _apart(old.get(key), new.get(key))]
        subject = f"VerticalPodAutoscaler {write.place.key}"
        if not other:
            self.agrees("recommender", subject)
            return
        self.differs(
            Difference(
                component="recommender",
                object=subject,
                upstream=_listed(other, old),
                kubetide=_listed(other, new),
            )
        )

    async def judged(self, traces: Iterable[dict[str, Any]], problem: str) -> None:
        """Compare what the updater would do with what upstream did since the last loop, or did not do for long."""
        done = await self._done_by_upstream()
        now = {trace["pod"]: trace for trace in traces}
        for pod, action in done:
            self._compare_done(pod, action, self._judged.get(pod) or now.get(pod))
        disturbed = {(self._judged.get(pod) or now.get(pod) or {}).get("vpa") for pod, _ in done}
        wanted = {}
        for pod, trace in now.items():
            if trace["action"] not in ("evict", "resize") or trace["vpa"] in disturbed:
                continue
            wanted[pod] = self._wanted.get(pod, 0) + 1
            if wanted[pod] >= PATIENCE:
                self._differs_about(pod, "leaves it alone", trace)
        for pod in self._wanted.keys() - wanted.keys():
            self.agrees("updater", f"Pod {pod}")
        self._wanted, self._judged = wanted, now

    def _compare_done(self, pod: str, action: str, trace: dict[str, Any] | None) -> None:
        if trace is None:
            return  # its VPA is not one of ours, or it came and went between two loops
        if trace["action"] == action:
            self.agrees("updater", f"Pod {pod}")
            return
        self._differs_about(pod, "evicted it" if action == "evict" else "resized it in place", trace)

    def _differs_about(self, pod: str, upstream: str, trace: dict[str, Any]) -> None:
        ours = {"evict": "would evict it", "resize": "would resize it in place"}.get(
            trace["action"], "would leave it alone"
        )
        why = f"VPA {trace['vpa']}: {trace['reason']}"
        self.differs(Difference(component="updater", object=f"Pod {pod}", upstream=upstream, kubetide=ours, why=why))

    async def _done_by_upstream(self) -> list[tuple[str, str]]:
        """Return what events tell since the last call: pods, and what was done to them."""
        found: dict[str, tuple[str, str, str]] = {}
        for reason, action in _ACTIONS.items():
            try:
                answer = await self.client.request("GET", EVENTS.path(), query={"fieldSelector": f"reason={reason}"})
            except KubetideError as error:
                log.warning("what upstream did cannot be read", error=str(error))
                return []
            for event in decode_raw(answer.body, what="events").get("items") or ():
                about = event.get("involvedObject") or {}
                key = str(ObjectKey(str(about.get("namespace", "")), str(about.get("name", ""))))
                stamp = f"{event.get('count')}/{event.get('lastTimestamp') or event.get('eventTime')}"
                found[str(event["metadata"].get("uid"))] = (stamp, key, action)
        before, self._seen_events = self._seen_events, {uid: stamp for uid, (stamp, _, _) in found.items()}
        # What was there at the start is the past.
        return [] if before is None else [(key, act) for uid, (at, key, act) in found.items() if before.get(uid) != at]


async def differences(invocation: Invocation) -> list[dict[str, str]]:
    """Return what a running `kubetide run … --compare` has found; nothing where none can be asked."""
    from kubetide.cli.places import ask_everywhere

    answers = await ask_everywhere(invocation, "/explain/compare/all")
    return [one for _, answer in answers if isinstance(answer, dict) for one in answer.get("differences") or ()]


def _listed(keys: list[tuple[str, str]], targets: dict[tuple[str, str], str]) -> str:
    shown = {key: readable(key[1], targets.get(key, "nothing")) for key in keys}
    return "recommends " + ", ".join(f"{container} {name} {shown[container, name]}" for container, name in keys)


def _same(one: Difference, other: Difference) -> bool:
    return (one.upstream, one.kubetide) == (other.upstream, other.kubetide)


def _apart(one: str | None, other: str | None) -> bool:
    """Return whether two amounts are further apart than the tolerance."""
    if one is None or other is None:
        return one != other
    try:
        low, high = sorted((Quantity.parse(one).nanos, Quantity.parse(other).nanos))
    except QuantityError:
        return one != other
    return high - low > TOLERANCE * max(low, 1)


def _ignored(_: HeldWrite) -> None:
    """Ignore the write of a component that is not compared."""
