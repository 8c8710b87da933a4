"""Upstream's recommender, as far as a hand-over needs it: histograms, percentiles, checkpoints and statuses."""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from drills.stage import Scene
from drills.upstream import VPA_LIST, Upstream, stamp
from kubetide.api.objects.scheme import VPA_CHECKPOINTS, VPAS
from kubetide.api.values.patch import JsonPatch
from kubetide.api.values.quantity import parse_quantity
from kubetide.kube.client.errors import NotFound

Raw = dict[str, Any]
DAY = 86_400.0
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
CHECKPOINT_LIST = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalercheckpoints"
RATIO = 1.05


@dataclass(slots=True)
class Histogram:
    """Weights of exponential buckets; a day halves them."""

    first: float
    weights: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    reference: datetime | None = None

    def add(self, value: float, weight: float, at: datetime) -> None:
        """Take in a sample."""
        if self.reference is None:
            midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
            self.reference = midnight + timedelta(days=1 if at.hour >= 12 else 0)
        bucket = 0 if value < self.first else int(math.log(value * (RATIO - 1) / self.first + 1) / math.log(RATIO))
        self.weights[bucket] += weight * 2 ** ((at - self.reference).total_seconds() / DAY)

    def percentile(self, share: float) -> float:
        """Return the end of the bucket below which so much of the weight is."""
        left = share * sum(self.weights.values())
        for bucket in sorted(self.weights):
            left -= self.weights[bucket]
            if left <= 0:
                break
        return self.first * (RATIO ** (bucket + 1) - 1) / (RATIO - 1) if self.weights else 0.0

    def saved(self) -> Raw:
        """Return the form in a checkpoint."""
        most = max(self.weights.values(), default=1.0)
        buckets = {str(bucket): int(weight * 10_000 / most + 0.5) for bucket, weight in sorted(self.weights.items())}
        return {
            "referenceTimestamp": stamp(self.reference) if self.reference else None,
            "bucketWeights": {bucket: weight for bucket, weight in buckets.items() if weight},
            "totalWeight": sum(self.weights.values()),
        }

    def load(self, saved: Raw) -> None:
        """Start from a checkpoint."""
        given = {int(bucket): weight for bucket, weight in (saved.get("bucketWeights") or {}).items()}
        assert all(isinstance(weight, int) and 0 < weight <= 10_000 for weight in given.values()), given
        total = sum(given.values())
        for bucket, weight in given.items():
            self.weights[bucket] += weight * saved["totalWeight"] / total
        if saved.get("referenceTimestamp"):
            self.reference = datetime.fromisoformat(saved["referenceTimestamp"])


@dataclass(slots=True)
class Learned:
    """What is known of the container of one VPA."""

    cpu: Histogram = field(default_factory=lambda: Histogram(0.01))
    memory: Histogram = field(default_factory=lambda: Histogram(1e7))
    peaks: dict[str, tuple[float, datetime]] = field(default_factory=dict)
    """The highest memory of each pod in its running window, which is in no checkpoint."""
    samples: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def bounds(self) -> Raw:
        """Return what is recommended for it."""
        whole = Histogram(1e7, self.memory.weights.copy(), self.memory.reference)
        for peak, at in self.peaks.values():
            whole.add(peak, 1.0, at)
        days = (self.last - self.first).total_seconds() / DAY if self.last and self.first else 0.0
        confidence = max(min(days, self.samples / 1440), 1e-9)
        factors = {"target": (0.9, 1.0), "lowerBound": (0.5, (1 + 0.001 / confidence) ** -2)}
        factors["upperBound"] = (0.95, 1 + 1 / confidence)
        found: Raw = {"containerName": "main"}
        for bound, (share, factor) in factors.items():
            amounts = (int(self.cpu.percentile(share) * 1000), int(whole.percentile(share)))
            cpu, memory = (min(int((a + int(a * 0.15)) * factor), 10**14) for a in amounts)
            found[bound] = {"cpu": f"{max(cpu, 25)}m", "memory": str(max(memory, 250 * 2**20))}
        return {**found, "uncappedTarget": found["target"]}


class UpstreamRecommender(Upstream):
    """Learns from usage, and writes statuses and checkpoints once a minute."""

    name, lease = "vpa-recommender", "vpa-recommender-lease"

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, number)
        self._learned: dict[str, Learned] = {}

    async def act(self) -> None:
        vpas = {vpa["metadata"]["name"]: vpa for vpa in await self.items(VPA_LIST)}
        if not self._learned:
            self._learned = {name: Learned() for name in vpas}
            await self._load()
        for item in await self.items(USAGE):
            name = item["metadata"]["labels"]["app"]
            self._take_in(self._learned[name], item)
        for name, vpa in vpas.items():
            await self._write_status(name, vpa)
            await self._write_checkpoint(name)

    async def _load(self) -> None:
        for raw in await self.items(CHECKPOINT_LIST):
            learned, status = self._learned[raw["spec"]["vpaObjectName"]], raw["status"]
            assert status["version"] == "v3"
            learned.cpu.load(status.get("cpuHistogram") or {})
            learned.memory.load(status.get("memoryHistogram") or {})
            learned.samples = status.get("totalSamplesCount") or 0
            times = (status.get("firstSampleStart"), status.get("lastSampleStart"))
            learned.first, learned.last = (datetime.fromisoformat(at) if at else None for at in times)

    def _take_in(self, learned: Learned, item: Raw) -> None:
        at, usage = datetime.fromisoformat(item["timestamp"]), item["containers"][0]["usage"]
        if learned.last is None or at > learned.last or item["metadata"]["name"] not in learned.peaks:
            learned.cpu.add(parse_quantity(usage["cpu"]).nanos / 1e9, 0.5, at)
            learned.samples += 1
            learned.first, learned.last = learned.first or at, max(at, learned.last or at)
        memory = float(parse_quantity(usage["memory"]).value)
        highest, since = learned.peaks.get(item["metadata"]["name"], (0.0, at))
        learned.peaks[item["metadata"]["name"]] = (max(memory, highest), since)

    async def _write_status(self, name: str, vpa: Raw) -> None:
        before = vpa.get("status") or {}
        kept = [one for one in before.get("conditions") or () if one["type"] != "RecommendationProvided"]
        given = {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": stamp(self.scene.now)}
        old = next((one for one in before.get("conditions") or () if one["type"] == given["type"]), given)
        recommendation = {"containerRecommendations": [self._learned[name].bounds()]}
        status = {"conditions": [*kept, old if old["status"] == "True" else given], "recommendation": recommendation}
        if status != before:
            patch = JsonPatch([{"op": "add", "path": "/status", "value": status}])
            await self.client.patch(VPAS, name, patch, namespace="default", subresource="status")

    async def _write_checkpoint(self, name: str) -> None:
        learned = self._learned[name]
        status = {
            "version": "v3",
            "lastUpdateTime": stamp(self.scene.now),
            "firstSampleStart": stamp(learned.first) if learned.first else None,
            "lastSampleStart": stamp(learned.last) if learned.last else None,
            "totalSamplesCount": learned.samples,
            "cpuHistogram": learned.cpu.saved(),
            "memoryHistogram": learned.memory.saved(),
        }
        path = f"{name}-main"
        try:
            patch = JsonPatch([{"op": "replace", "path": "/status", "value": status}])
            await self.client.patch(VPA_CHECKPOINTS, path, patch, namespace="default")
        except NotFound:
            made = {
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscalerCheckpoint",
                "metadata": {"name": path, "namespace": "default"},
                "spec": {"vpaObjectName": name, "containerName": "main"},
                "status": status,
            }
            await self.client.create(VPA_CHECKPOINTS, made, namespace="default")
