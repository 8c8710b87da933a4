"""A scenario: nodes, workloads with their load, other objects, and what happens when. Read from YAML.

    name: web shop
    start: 2026-01-05T06:00:00Z
    nodes:
    - {name: node, count: 3, cpu: "8", memory: 32Gi}
    workloads:
    - name: shop
      replicas: 2
      requests: {cpu: 500m, memory: 256Mi}
      load: {curve: diurnal, low: 20, high: 200, peak-hour: 14, noise: 0.1}
      cpu-per-request: 10m
    events:
    - {at: 2h, do: outage, of: metrics, for: 10m}

This is its form, and what its curves and profiles mean; `scenario_file` reads it, `scenario_checks` refuses mistakes.
"""

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from kubetide.api.values.quantity import quantity_float
from kubetide.durations import parse_duration
from kubetide.embedded.sim.load.curves import (
    Constant,
    Curve,
    Diurnal,
    Noisy,
    Ramp,
    Spike,
    Step,
    Weekly,
    trace_from_csv,
)
from kubetide.embedded.sim.load.profile import Profile
from kubetide.embedded.sim.time.loop import DEFAULT_START
from kubetide.errors import InvalidInput

Raw = dict[str, Any]
Amount = str | int | float


class ScenarioError(InvalidInput):
    """A scenario says something that cannot be simulated."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A piece of a scenario; unknown fields are mistakes."""


class ScenarioNodes(_Part, frozen=True, kw_only=True):
    """`count` equal machines, named `name` or `name-1`, `name-2` …"""

    name: str
    count: int = 1
    cpu: Amount = "8"
    memory: Amount = "32Gi"
    disk: Amount = "200Mi"
    pods: int = 110
    cgroup: Literal["v1", "v2"] = "v2"
    driver: Literal["systemd", "cgroupfs"] = "systemd"
    sockets: int = 1
    threads: int = 1
    anolis: bool = False
    labels: dict[str, str] = {}
    taints: list[Raw] = []


class LoadSpec(_Part, frozen=True, kw_only=True):
    """A curve by name; which of the other fields count depends on it."""

    curve: Literal["constant", "step", "ramp", "diurnal", "weekly", "spike", "trace"]
    level: float | None = None
    low: float | None = None
    high: float | None = None
    peak_hour: float = 14.0
    sharpness: float = 1.0
    begin: str = "0s"
    duration: str | None = None
    every: str | None = None
    base: float | None = None
    peak: float | None = None
    steps: dict[str, float] = {}
    factors: tuple[float, ...] = (1, 1, 1, 1, 1, 0.6, 0.5)
    file: str | None = None
    repeat: bool = False
    noise: float = 0.0
    seed: int = 0


class MemorySpec(_Part, frozen=True, kw_only=True):
    """What a pod holds."""

    base: Amount = "64Mi"
    per_request: Amount = 0
    leak_per_hour: Amount = 0
    cache: Amount = "16Mi"


class ScenarioWorkload(_Part, frozen=True, kw_only=True):
    """One workload and how it behaves."""

    name: str
    namespace: str = "default"
    kind: Literal["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"] = "Deployment"
    replicas: int = 1
    requests: dict[str, Amount] = {}
    limits: dict[str, Amount] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    priority_class: str | None = None
    load: LoadSpec | None = None
    cpu_per_request: Amount = "10m"
    cpu_idle: Amount = "5m"
    cpu: Amount | None = None
    start_cpu: Amount = "100m"
    start_delay: str = "5s"
    memory: MemorySpec = MemorySpec()
    disk: Amount = 0
    disk_per_request: Amount = 0
    work: str | None = None
    threads: Amount = 1
    schedule: str = "*/10 * * * *"
    completions: int = 1
    parallelism: int = 1
    imbalance: float = 0.05


class EventSpec(_Part, frozen=True, kw_only=True):
    """Something that happens `at` a time after the start."""

    at: str
    do: Literal["outage", "load", "spike", "scale", "cordon", "uncordon", "apply", "delete", "rollout", "kill"]
    of: str = ""
    """What it happens to: `metrics`, a node, or NAMESPACE/NAME of a workload or pod."""
    duration: str | None = msgspec.field(default=None, name="for")
    load: LoadSpec | None = None
    factor: float = 3.0
    replicas: int | None = None
    object: Raw | None = None


class MetricsSpec(_Part, frozen=True, kw_only=True):
    """How the metrics APIs see the cluster."""

    interval: str = "15s"
    delay: str = "2s"
    gaps: float = 0.0
    external: dict[str, LoadSpec] = {}


class Scenario(_Part, frozen=True, kw_only=True):
    """The whole."""

    source: str = ""
    """The file it comes from, for messages; not a field of the file."""
    name: str = "scenario"
    description: str = ""
    start: datetime = DEFAULT_START
    seed: int = 0
    duration: str = "24h"
    tick: str = "5s"
    nodes: list[ScenarioNodes] = []
    workloads: list[ScenarioWorkload] = []
    objects: list[Raw] = []
    events: list[EventSpec] = []
    metrics: MetricsSpec = MetricsSpec()


def seconds(text: str, field: str = "", subject: str = "") -> float:
    """Return a duration such as `1h30m` in seconds."""
    try:
        value: timedelta = parse_duration(text)
    except (InvalidInput, ValueError) as error:
        raise ScenarioError(f"{text!r} is not a duration such as 90s or 1h30m", subject=subject, field=field) from error
    if value < timedelta(0):
        raise ScenarioError("must not be negative", subject=subject, field=field)
    return value.total_seconds()


def amount(text: Amount, field: str = "", subject: str = "") -> float:
    """Return a quantity such as `500m` or `2Gi` as a number."""
    try:
        value = quantity_float(text)
    except InvalidInput as error:
        raise ScenarioError(f"{text!r} is not a quantity such as 500m or 2Gi", subject=subject, field=field) from error
    if value < 0:
        raise ScenarioError("must not be negative", subject=subject, field=field)
    return value


def make_curve(spec: LoadSpec, *, where: str = "load", subject: str = "", seed: int = 0) -> Curve:
    """Return the curve that a load describes."""

    def need(value: float | None, name: str) -> float:
        if value is None:
            raise ScenarioError(f"is needed for the curve {spec.curve}", subject=subject, field=f"{where}.{name}")
        if not 0 <= value < 1e18:
            raise ScenarioError("must be a number, and not negative", subject=subject, field=f"{where}.{name}")
        return value

    def time(text: str | None, name: str) -> float:
        if text is None:
            raise ScenarioError(f"is needed for the curve {spec.curve}", subject=subject, field=f"{where}.{name}")
        return seconds(text, f"{where}.{name}", subject)

    curve: Curve
    match spec.curve:
        case "constant":
            curve = Constant(need(spec.level, "level"))
        case "step":
            if not spec.steps:
                raise ScenarioError("is needed for the curve step", subject=subject, field=f"{where}.steps")
            steps = sorted((seconds(at, f"{where}.steps", subject), level) for at, level in spec.steps.items())
            curve = Step(tuple(steps), initial=spec.level or 0.0)
        case "ramp":
            low, high = need(spec.low, "low"), need(spec.high, "high")
            curve = Ramp(low, high, time(spec.begin, "begin"), max(1e-9, time(spec.duration, "duration")))
        case "diurnal" | "weekly":
            curve = Diurnal(
                need(spec.low, "low"), need(spec.high, "high"), spec.peak_hour, need(spec.sharpness, "sharpness")
            )
            if spec.curve == "weekly":
                if len(spec.factors) != 7:
                    raise ScenarioError("must have seven numbers", subject=subject, field=f"{where}.factors")
                curve = Weekly(curve, tuple(spec.factors))
        case "spike":
            every = None if spec.every is None else time(spec.every, "every")
            curve = Spike(
                need(spec.base, "base"), need(spec.peak, "peak"), time(spec.begin, "begin"),
                time(spec.duration, "duration"), every or None,
            )  # fmt: skip
        case "trace":
            if spec.file is None:
                raise ScenarioError("is needed for the curve trace", subject=subject, field=f"{where}.file")
            curve = trace_from_csv(spec.file, subject=f"{where}.file", repeat=spec.repeat)
    if spec.noise:
        curve = Noisy(curve, spec.noise, seed=seed * 1_000_003 + spec.seed)
    return curve


def make_profile(spec: ScenarioWorkload, *, where: str = "workload", subject: str = "", seed: int = 0) -> Profile:
    """Return how the containers of a workload behave."""

    def number(value: Amount, name: str) -> float:
        return amount(value, f"{where}.{name}", subject)

    name_seed = sum((index + 1) * ord(letter) for index, letter in enumerate(f"{spec.namespace}/{spec.name}"))
    return Profile(
        curve=None
        if spec.load is None
        else make_curve(spec.load, where=f"{where}.load", subject=subject, seed=seed * 8191 + name_seed),
        cpu_per_request=number(spec.cpu_per_request, "cpu-per-request"),
        cpu_idle=number(spec.cpu_idle, "cpu-idle"),
        cpu_steady=None if spec.cpu is None else number(spec.cpu, "cpu"),
        start_cpu=number(spec.start_cpu, "start-cpu"),
        start_seconds=seconds(spec.start_delay, f"{where}.start-delay", subject),
        memory_base=number(spec.memory.base, "memory.base"),
        memory_per_request=number(spec.memory.per_request, "memory.per-request"),
        leak_per_hour=number(spec.memory.leak_per_hour, "memory.leak-per-hour"),
        cache=number(spec.memory.cache, "memory.cache"),
        disk=number(spec.disk, "disk"),
        disk_per_request=number(spec.disk_per_request, "disk-per-request"),
        work=None if spec.work is None else seconds(spec.work, f"{where}.work", subject),
        threads=number(spec.threads, "threads"),
        imbalance=spec.imbalance,
    )
