"""Applies a target for latency-sensitive pods to a snapshot: which signal is read, and what is remembered of it."""

from dataclasses import dataclass
from datetime import datetime

from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.files import CgroupFile
from kubetide.node.core.formats import psi
from kubetide.node.core.qos.share_target import (
    ANNOTATION,
    DEFAULT_CEILING,
    FLOOR,
    Share,
    ShareTarget,
    Signal,
    felt,
    first_share,
    next_share,
    parse_target,
)
from kubetide.node.core.series import kinds
from kubetide.node.core.snapshot import PodState, Snapshot


@dataclass(slots=True)
class ShareControl:
    """The controlled threshold of a node: the agent's target, or the one in the annotation of the Node."""

    target: ShareTarget | None = None
    ceiling: int = DEFAULT_CEILING
    _share: Share | None = None
    _at: datetime | None = None
    _waited: dict[str, int] | None = None
    """Microseconds in which tasks of a pod had waited for CPU at the last sync, by uid."""

    def target_on(self, snapshot: Snapshot) -> tuple[ShareTarget | None, str]:
        """Return the target of the node, and what is wrong with its annotation: then there is no target."""
        annotations = (snapshot.node.metadata.annotations if snapshot.node else None) or {}
        text = annotations.get(ANNOTATION)
        if text is None:
            return self.target, ""
        try:
            return parse_target(text), ""
        except InvalidInput as error:
            return None, str(error)

    def places(self, snapshot: Snapshot) -> list[tuple[CgroupFile, str]]:
        """Return the files that the signal is read from."""
        target, _ = self.target_on(snapshot)
        if target is None or target.signal is not Signal.PRESSURE:
            return []
        return [(files.CPU_PRESSURE, pod.directory) for pod in _sensitive(snapshot)]

    def step(self, snapshot: Snapshot, fixed: int, floor: int | None) -> tuple[int, dict[str, object]]:
        """Return the threshold of this sync in percent, and what explains it; without a target the fixed one."""
        target, problem = self.target_on(snapshot)
        if target is None:
            self._share, self._at, self._waited = None, None, None
            return fixed, {"share": {"problem": problem}} if problem else {}
        elapsed = (snapshot.now - self._at).total_seconds() if self._at else 0.0
        observed = self._felt(snapshot, target, elapsed)
        before = self._share or first_share(fixed)
        least = FLOOR if floor is None else floor
        self._share = next_share(
            before, observed, target, fixed=fixed, ceiling=self.ceiling, floor=least, elapsed=elapsed
        )
        self._at = snapshot.now
        percent = int(self._share.percent)
        return percent, {
            "share": {
                "target": str(target),
                "observedPercent": None if observed is None else round(observed, 2),
                "percent": percent,
                "fixedPercent": fixed,
                "reason": self._share.reason,
            }
        }

    def _felt(self, snapshot: Snapshot, target: ShareTarget, elapsed: float) -> float | None:
        pods = _sensitive(snapshot)
        if not pods:
            return 0.0  # nobody is there to be protected
        uids = {pod.uid for pod in pods}
        used = snapshot.metrics.latest(kinds.POD_CPU, kinds.POD_UID)
        if target.signal is Signal.THROTTLED:
            throttled = snapshot.metrics.latest(kinds.POD_THROTTLED, kinds.POD_UID)
            return felt({uid: ratio for uid, ratio in throttled.items() if uid in uids}, used)
        before, self._waited = self._waited or {}, _waited(snapshot, pods)
        if elapsed <= 0:
            return None
        signals = {
            uid: min(max(total - before[uid], 0) / (elapsed * 1e6), 1.0)
            for uid, total in self._waited.items()
            if uid in before
        }
        return felt(signals, used)


def _sensitive(snapshot: Snapshot) -> list[PodState]:
    """Return the pods that best-effort work must make room for."""
    return [pod for pod in snapshot.pods if pod.is_active and pod.raw_qos != "BE" and pod.kube_qos != "BestEffort"]


def _waited(snapshot: Snapshot, pods: list[PodState]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in pods:
        text = snapshot.kernel.text(files.CPU_PRESSURE, pod.directory)
        if text is None:
            continue
        try:
            pressure = psi.pressure(text)
        except InvalidInput:
            continue  # what cannot be read says nothing
        if pressure.some_supported:
            found[pod.uid] = pressure.some.total
    return found
