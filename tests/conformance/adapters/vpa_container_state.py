"""The recommender's model: pods, samples, OOMs, recommendations, checkpoints, restarts and garbage collection."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from conformance.adapters.vpa_histogram import at_reference, micros, weight_differences
from conformance.registry import suite
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import PodResourcePolicy
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.stats.instants import ZERO_TIME
from kubetide.stats.saved import Saved
from kubetide.vpa.core.compat import V1_7, V1_8
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.recommender.core.aggregate import Columns, Tuning
from kubetide.vpa.recommender.core.checkpoint import Checkpoint, checkpoints
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, merge_rows, recommend, rows_of
from kubetide.vpa.recommender.core.status import conditions_after

Case = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RELEASE = Compat(V1_7, exactly=True)
DAY_MICROS = 86_400_000_000


def key(name: str) -> ObjectKey:
    return ObjectKey("ns1", name)


def at(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


class World:
    """One case: the model, and what a restart has to bring back."""

    def __init__(self, case: Case) -> None:
        self.options = Options(integer_cpu=case["cpuIntegerPostProcessor"])
        self.model = Model(compat=RELEASE)
        self.pods: dict[str, Case] = {}
        self.containers: dict[tuple[str, str], Case] = {}
        self.vpas: dict[str, Case] = {}

    def vpa(self, given: Case) -> None:
        self.vpas[given["name"]] = given
        policy = given.get("resourcePolicy")
        state = VpaState(
            key(given["name"]),
            selector_from(LabelSelector(match_labels=given.get("matchLabels") or {})),
            created=at(given["createdMs"]),
            policy=None if policy is None else convert(policy, PodResourcePolicy),
            annotations=given.get("annotations") or {},
        )
        known = self.model.vpas.get(state.key)
        if known is not None:
            state.conditions = known.conditions
        self.model.set_vpa(state, keep_history=False)

    def samples(self, op: Case, now: datetime) -> str:
        codes = []
        for kind, millis, amount in op["items"]:
            try:
                row = self.model.row(key(op["pod"]), op["container"], now=now)
            except KeyError:
                codes.append("k")
                continue
            table, rows, times, values = (
                self.model.containers,
                np.array([row]),
                np.array([millis * 1000]),
                np.array([amount]),
            )
            if kind == "c":
                good = bool(table.add_cpu(rows, times, values)[0])
            elif kind == "m":
                good = bool(table.add_memory(rows, times, values)[0])
            else:
                good = table.add_oom(row, millis * 1000, amount)
            codes.append("1" if good else "0")
        return "".join(codes)

    def restart(self, now: datetime) -> None:
        stored = checkpoints(self.model, list(self.model.vpas.values()), now=now)
        self.model = Model(compat=RELEASE)
        for vpa in list(self.vpas.values()):
            self.vpa(vpa)
        for state in self.model.vpas.values():
            for one in stored[str(state.key)]:
                self.model.restore(
                    state,
                    one.container,
                    cpu=whole_seconds(one.cpu),
                    memory=whole_seconds(one.memory),
                    first=one.first // 1_000_000 * 1_000_000,
                    last=one.last // 1_000_000 * 1_000_000,
                    count=one.count,
                    now=now,
                )
        for name, pod in self.pods.items():
            self.model.set_pod(key(name), pod["labels"], pod["phase"], now=now)
        for pod_name, container in self.containers:
            self.model.set_container(key(pod_name), container, now=now)


def whole_seconds(saved: Saved) -> Saved:
    return Saved(saved.reference // 1_000_000 * 1_000_000, saved.weights, saved.total)


@suite("vpa/container_state")
def container_state(case: Case) -> Iterable[str]:
    world = World(case)
    expected = {result["step"]: result for result in case["results"]}
    for step, op in enumerate(case["ops"]):
        want = expected.get(step, {})
        yield from (f"step {step} {op['op']}: {difference}" for difference in _step(world, op, want))


def _step(world: World, op: Case, want: Case) -> Iterator[str]:
    now, model = at(op["nowMs"]), world.model
    match op["op"]:
        case "vpa":
            world.vpa(op["vpa"])
        case "deleteVpa":
            world.vpas.pop(op["name"], None)
            model.delete_vpa(key(op["name"]))
        case "pod":
            world.pods[op["pod"]] = op
            model.set_pod(key(op["pod"]), op["labels"], op["phase"], now=now)
        case "deletePod":
            world.pods.pop(op["pod"], None)
            world.containers = {k: v for k, v in world.containers.items() if k[0] != op["pod"]}
            model.delete_pod(key(op["pod"]))
        case "container":
            try:
                model.set_container(key(op["pod"]), op["container"], now=now)
                world.containers[op["pod"], op["container"]] = op
                code = "1"
            except KeyError:
                code = "k"
            if code != want["codes"]:
                yield f"code {code}, expected {want['codes']}"
        case "samples":
            codes = world.samples(op, now)
            if codes != want["codes"]:
                yield f"codes {codes}, expected {want['codes']}"
        case "recommend":
            yield from _recommend(world, now, want.get("vpas") or [])
        case "checkpoint":
            yield from _checkpoint(world, now, want.get("vpas") or [])
        case "restart":
            yield from _checkpoint(world, now, want.get("vpas") or [])
            world.restart(now)
        case "gc":
            answers = dict.fromkeys(model.vpas, bool(op["controllerExists"]))
            model.collect_garbage(now=now, has_controller=answers)
            if model.aggregate_count() != want["aggregateStates"]:
                yield f"{model.aggregate_count()} aggregates, expected {want['aggregateStates']}"


def _recommend(world: World, now: datetime, want: list[Case]) -> Iterator[str]:
    model = world.model
    states = list(model.vpas.values())
    found = recommend(model, states, world.options)
    for state in states:
        state.recommendation = found[state.key]
        state.conditions = conditions_after(
            state.conditions, provided=bool(found[state.key]), pods=state.pod_count, problem=None, now=now
        )
    if sorted(str(k.name) for k in found) != sorted(vpa["vpa"] for vpa in want):
        yield f"VPAs {sorted(found)}"
        return
    for vpa in want:
        state = model.vpas[key(vpa["vpa"])]
        if state.pod_count != vpa["podCount"]:
            yield f"{vpa['vpa']} has {state.pod_count} pods, expected {vpa['podCount']}"
        yield from _same_recommendation(model, state, found[state.key], vpa.get("recommendation") or [])
        got = sorted((c.type, c.status, c.reason, c.message) for c in state.conditions)
        wanted = sorted(
            (c["type"], c["status"], c.get("reason", ""), c.get("message", "")) for c in vpa.get("conditions") or ()
        )
        if got != wanted:
            yield f"{vpa['vpa']} conditions {got}, expected {wanted}"


def _same_recommendation(
    model: Model, state: VpaState, got: tuple[Recommended, ...], want: list[Case]
) -> Iterator[str]:
    if [one.container for one in got] != [one["container"] for one in want]:
        yield f"containers {[one.container for one in got]}, expected {[one['container'] for one in want]}"
        return
    rows = rows_of([state])
    merged = merge_rows(model.aggregates, rows) if rows else None
    for i, (one, expected) in enumerate(zip(got, want, strict=True)):
        ignored = {*(expected.get("fpSensitive") or ()), *(expected.get("mergeShiftSensitive") or ())}
        for name, amounts in (
            ("target", one.target),
            ("lowerBound", one.lower),
            ("upperBound", one.upper),
            ("uncappedTarget", one.uncapped),
        ):
            yield from _same_amounts(f"{one.container} {name}", amounts or {}, expected.get(name) or {}, ignored)
        assert merged is not None
        seen = (int(merged.first[i]), int(merged.last[i]), int(merged.count[i]))
        wanted = (micros(expected["firstSampleMs"]), micros(expected["lastSampleMs"]), expected["totalSamplesCount"])
        if seen != wanted:
            yield f"{one.container} samples {seen}, expected {wanted}"


def _same_amounts(where: str, got: dict[str, Quantity], want: dict[str, str], ignored: set[str]) -> Iterator[str]:
    if got.keys() != want.keys():
        yield f"{where}: resources {sorted(got)}, expected {sorted(want)}"
        return
    for resource, text in want.items():
        if resource in ignored:
            continue
        wanted = parse_quantity(text)
        unit = 10**6 if resource == "cpu" else 10**9
        if abs(got[resource].nanos - wanted.nanos) > unit:
            yield f"{where} {resource}: got {got[resource]}, expected {text}"


def _checkpoint(world: World, now: datetime, want: list[Case]) -> Iterator[str]:
    stored = checkpoints(world.model, list(world.model.vpas.values()), now=now)
    for vpa in want:
        got = {one.container: one for one in stored[str(key(vpa["vpa"]))]}
        wanted = {one["container"]: one for one in vpa.get("checkpoints") or ()}
        if got.keys() != wanted.keys():
            yield f"checkpoints {sorted(got)}, expected {sorted(wanted)}"
            continue
        for name, expected in wanted.items():
            yield from _same_checkpoint(name, got[name], expected)


def _same_checkpoint(name: str, got: Checkpoint, want: Case) -> Iterator[str]:
    times = (micros(want["firstSampleMs"]), micros(want["lastSampleMs"]), want["totalSamplesCount"])
    if (got.first, got.last, got.count) != times:
        yield f"{name} samples {(got.first, got.last, got.count)}, expected {times}"
    for part, saved in (("cpuHistogram", got.cpu), ("memoryHistogram", got.memory)):
        if part in (want.get("mergeShiftSensitive") or ()):
            continue
        expected = want[part]
        yield from weight_differences(dict(saved.weights), expected.get("bucketWeights") or {}, f"{name} {part}")
        total = at_reference(expected, saved.reference, DAY_MICROS)
        if abs(saved.total - total) > 1e-9 * max(abs(total), abs(saved.total)):
            yield f"{name} {part} total {saved.total}, expected {total}"


class _Recorded:
    """Stands in front of the memory histograms and notes what reaches them."""

    def __init__(self, memory: Columns) -> None:
        self.calls: list[Case] = []
        self._replace = memory.replace

    def replace(self, slots: Any, old: Any, new: Any, weight: float, times: Any, back: Any) -> None:
        for before, after, time, gone in np.broadcast(old, new, times, back):
            for op, value in (("subtract", before), ("add", after))[0 if gone else 1 :]:
                self.calls.append({"bytes": int(value), "op": op, "tMs": int(time) // 1000})
        self._replace(slots, old, new, weight, times, back)


@suite("vpa-newer/oom_window_master")
def oom_window(case: Case) -> Iterable[str]:
    tuning = Tuning(
        interval=timedelta(milliseconds=case["intervalMs"]),
        oom_ratio=case["oomBumpUpRatio"],
        oom_min_bytes=float(case["oomMinBumpUpBytes"]),
    )
    model, now = Model(tuning, Compat(V1_8)), at(case["ops"][0]["tMs"])
    model.set_pod(key("pod"), {}, "Running", now=now)
    row = model.set_container(key("pod"), "app", now=now)
    table = model.containers
    recorded = _Recorded(model.aggregates.memory)
    model.aggregates.memory.replace = recorded.replace  # type: ignore[method-assign]
    codes = ""
    for number, (op, want) in enumerate(zip(case["ops"], case["results"], strict=True)):
        recorded.calls = []
        micro, amount = op["tMs"] * 1000, op["bytes"]
        if op["op"] == "oom":
            good = table.add_oom(row, micro, amount)
        else:
            good = bool(table.add_memory(np.array([row]), np.array([micro]), np.array([amount]))[0])
        codes += "1" if good else "0"
        end = int(table.window_end[row])
        got = {
            "calls": recorded.calls,
            "maxPeak": int(max(table.peak[row], table.oom_peak[row])),
            "windowEndMs": None if end == ZERO_TIME else end // 1000,
        }
        if got != want:
            yield f"ops[{number}] {op}: got {got}, expected {want}"
    if codes != case["codes"]:
        yield f"codes {codes}, expected {case['codes']}"
