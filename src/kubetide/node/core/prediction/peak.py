"""Predicted peaks: one CPU and one memory histogram per model, fed once per training interval.

Models: each pod by its uid, the node, each priority class, the system (what no pod uses). A training sync adds the
p90 of the last interval with weight 1; older samples fade with a half-life of 12 h (CPU) and 24 h (memory). The
prediction is a percentile of the histogram, that is the end of a bucket: an idle model is not zero.

    CPU     first bucket 0.025 cores, ratio 1.05, up to 1024 cores
    memory  first bucket 5 MiB, ratio 1.05, up to 2^41 bytes
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kubetide.api.qos import qos
from kubetide.stats.bank import Bank
from kubetide.stats.buckets import exponential
from kubetide.stats.instants import microseconds
from kubetide.stats.saved import Saved, save

NODE = "__node__"
SYSTEM = "__node-sys__"
CLASSES = (*qos.PRIORITY_CLASSES, qos.NONE)

PERCENTILES = {"p60": 0.6, "p90": 0.9, "p95": 0.95, "p98": 0.98, "max": 1.0}

CPU_BUCKETS = exponential(maximum=1024.0, first=0.025, ratio=1.05, epsilon=0.0001)
MEMORY_BUCKETS = exponential(maximum=2.0**41, first=5.0 * 1024 * 1024, ratio=1.05, epsilon=0.0001)
CPU_HALF_LIFE = timedelta(hours=12)
MEMORY_HALF_LIFE = timedelta(hours=24)


def class_model(priority: str) -> str:
    """Return the model id of a priority class; none has one too."""
    return f"__node-{priority}__"


CLASS_MODELS = tuple(class_model(priority) for priority in CLASSES)
BUILT_IN = frozenset({NODE, SYSTEM, *CLASS_MODELS})


@dataclass(frozen=True, slots=True)
class Peak:
    """Predicted usage at one percentile."""

    cpu_millis: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod used in the last training interval; None where there is no data."""

    uid: str
    priority: str
    cpu_cores: float | None
    memory_bytes: float | None


@dataclass(slots=True)
class _Model:
    cpu: int
    memory: int
    updated: datetime
    saved: datetime | None = None


@dataclass(slots=True)
class PeakModels:
    """All models of a node."""

    cpu_half_life: timedelta = CPU_HALF_LIFE
    memory_half_life: timedelta = MEMORY_HALF_LIFE
    _cpu: Bank = field(init=False)
    _memory: Bank = field(init=False)
    _models: dict[str, _Model] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cpu = Bank(CPU_BUCKETS, self.cpu_half_life, block_width=128)
        self._memory = Bank(MEMORY_BUCKETS, self.memory_half_life, block_width=128)

    def __len__(self) -> int:
        return len(self._models)

    def __contains__(self, model: object) -> bool:
        return model in self._models

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all models."""
        return tuple(self._models)

    def train(self, now: datetime, pods: Iterable[PodUsage], node_cpu: float | None, node_memory: float | None) -> None:
        """Add one sync of usage to the models of pods, node, priority classes and system."""
        samples: dict[str, tuple[float, float]] = {}
        sums = dict.fromkeys(CLASSES, (0.0, 0.0))
        all_cpu = all_memory = 0.0
        for pod in pods:
            if pod.cpu_cores is None or pod.memory_bytes is None:
                continue
            samples[pod.uid] = (pod.cpu_cores, pod.memory_bytes)
            cpu, memory = sums.get(pod.priority, (0.0, 0.0))
            sums[pod.priority] = (cpu + pod.cpu_cores, memory + pod.memory_bytes)
            all_cpu += pod.cpu_cores
            all_memory += pod.memory_bytes
        if node_cpu is not None and node_memory is not None:
            samples[NODE] = (node_cpu, node_memory)
        for priority in CLASSES:
            samples[class_model(priority)] = sums[priority]
        samples[SYSTEM] = (max((node_cpu or 0.0) - all_cpu, 0.0), max((node_memory or 0.0) - all_memory, 0.0))
        self._add(now, samples)

    def _add(self, now: datetime, samples: Mapping[str, tuple[float, float]]) -> None:
        models = [self._model(identity, now) for identity in samples]
        at = microseconds(now)
        self._cpu.add([model.cpu for model in models], [cpu for cpu, _ in samples.values()], 1.0, at)
        self._memory.add([model.memory for model in models], [memory for _, memory in samples.values()], 1.0, at)
        for model in models:
            model.updated = now

    def _model(self, identity: str, now: datetime) -> _Model:
        model = self._models.get(identity)
        if model is None:
            model = self._models[identity] = _Model(self._cpu.allocate(), self._memory.allocate(), now)
        return model

    def predict(self, identity: str) -> dict[str, Peak] | None:
        """Return the peaks of a model by percentile; None if there is no such model."""
        return self.predict_many((identity,)).get(identity)

    def predict_many(self, identities: Iterable[str]) -> dict[str, dict[str, Peak]]:
        """Return the peaks of all the given models that exist."""
        known = [identity for identity in identities if identity in self._models]
        if not known:
            return {}
        fractions = list(PERCENTILES.values())
        cpu = self._cpu.select([self._models[one].cpu for one in known]).percentiles(fractions)
        memory = self._memory.select([self._models[one].memory for one in known]).percentiles(fractions)
        return {
            identity: {
                name: Peak(int(cpu[row, column] * 1000), int(memory[row, column]))
                for row, name in enumerate(PERCENTILES)
            }
            for column, identity in enumerate(known)
        }

    def expire(self, now: datetime, older_than: timedelta) -> tuple[str, ...]:
        """Drop models that were not trained for longer; return their ids."""
        gone = tuple(one for one, model in self._models.items() if now - model.updated > older_than)
        self.drop(gone)
        return gone

    def drop(self, identities: Iterable[str]) -> None:
        """Forget models."""
        models = [self._models.pop(identity) for identity in identities if identity in self._models]
        if models:
            self._cpu.free([model.cpu for model in models])
            self._memory.free([model.memory for model in models])

    def due_for_checkpoint(self, now: datetime, *, every: timedelta, at_most: int) -> tuple[str, ...]:
        """Return the models to save next: never saved ones first, then the oldest."""
        waiting = [
            (model.saved is not None, model.saved or now, identity)
            for identity, model in self._models.items()
            if model.saved is None or now - model.saved >= every
        ]
        return tuple(identity for _, _, identity in sorted(waiting)[:at_most])

    def save(self, identity: str, now: datetime) -> tuple[Saved, Saved]:
        """Return the CPU and memory histograms of a model and note that it was saved."""
        model = self._models[identity]
        model.saved = now
        return save(self._cpu.select([model.cpu]))[0], save(self._memory.select([model.memory]))[0]

    def load(self, identity: str, cpu: Saved | None, memory: Saved | None, now: datetime) -> list[str]:
        """Restore a model; a histogram that cannot be used stays empty and is named in the result."""
        model = self._model(identity, now)
        problems: list[str] = []
        for name, bank, column, saved in (
            ("CPU", self._cpu, model.cpu, cpu),
            ("Memory", self._memory, model.memory, memory),
        ):
            if saved is None:
                problems.append(f"{name}: missing")
                continue
            try:
                bank.load(column, saved)
            except ValueError as error:
                problems.append(f"{name}: {error}")
        return problems
