"""What a scenario may not say: values that cannot be simulated, and events that happen to nothing.

What stands in `objects` is checked by the API server that takes it, before anything runs (`sim.cluster`).
"""

from collections.abc import Iterable

from kubetide.api.values.schedule import ScheduleError, parse_schedule
from kubetide.embedded.sim.load.scenario import (
    Amount,
    EventSpec,
    Scenario,
    ScenarioError,
    ScenarioNodes,
    ScenarioWorkload,
    amount,
    make_curve,
    make_profile,
    seconds,
)

_MOST_NAMED = 12


def check(scenario: Scenario, subject: str) -> None:
    """Raise ScenarioError for the first mistake, with its place."""
    _longer_than_nothing(scenario.duration, "duration", subject)
    _longer_than_nothing(scenario.tick, "tick", subject)
    for index, node in enumerate(scenario.nodes):
        _check_node(node, f"nodes[{index}]", subject)
    _unique(((name, f"nodes[{index}].name") for index, name in _nodes(scenario)), subject)
    for index, workload in enumerate(scenario.workloads):
        _check_workload(workload, f"workloads[{index}]", subject)
    keys = ((f"{w.namespace}/{w.name}", f"workloads[{i}].name") for i, w in enumerate(scenario.workloads))
    _unique(keys, subject)
    for index, obj in enumerate(scenario.objects):
        _check_object(obj, f"objects[{index}]", subject)
    for index, event in enumerate(scenario.events):
        check_event(event, scenario, f"events[{index}]", subject)
    metrics = scenario.metrics
    _longer_than_nothing(metrics.interval, "metrics.interval", subject)
    seconds(metrics.delay, "metrics.delay", subject)
    _within(metrics.gaps, 0, 1, "metrics.gaps", subject)
    for name, load in metrics.external.items():
        make_curve(load, where=f"metrics.external.{name}", subject=subject)


def check_event(event: EventSpec, scenario: Scenario, where: str, subject: str) -> None:
    """Raise ScenarioError if an event cannot happen."""
    seconds(event.at, f"{where}.at", subject)
    if event.duration is not None:
        _longer_than_nothing(event.duration, f"{where}.for", subject)
    nodes = [name for _, name in _nodes(scenario)]
    workloads = {f"{each.namespace}/{each.name}": each for each in scenario.workloads}
    place = f"{where}.of"
    match event.do:
        case "outage":
            _one_of(event.of, ["metrics", *(f"node/{name}" for name in nodes)], place, subject)
        case "cordon" | "uncordon":
            _one_of(event.of, nodes, place, subject)
        case "load" | "spike":
            loaded = [key for key, each in workloads.items() if event.do == "load" or each.load is not None]
            _one_of(_key(event.of), loaded, place, subject)
        case "scale" | "rollout":
            deployments = [key for key, each in workloads.items() if each.kind == "Deployment"]
            _one_of(_key(event.of), [*deployments, *_objects(scenario, "Deployment")], place, subject)
        case "delete" | "kill":
            _check_pod(_key(event.of), [*workloads, *_objects(scenario, "Pod")], place, subject)
    if event.do == "load":
        if event.load is None:
            raise ScenarioError("is needed for do: load", subject=subject, field=f"{where}.load")
        make_curve(event.load, where=f"{where}.load", subject=subject)
    if event.do == "scale" and (event.replicas is None or event.replicas < 0):
        raise ScenarioError("is needed for do: scale, 0 or more", subject=subject, field=f"{where}.replicas")
    if event.do == "spike":
        _within(event.factor, 0, 1e6, f"{where}.factor", subject)
    if event.do == "apply":
        _check_object(event.object or {}, f"{where}.object", subject)


def _check_node(node: ScenarioNodes, where: str, subject: str) -> None:
    for name, least in (("count", 1), ("pods", 1), ("sockets", 1), ("threads", 1)):
        if getattr(node, name) < least:
            raise ScenarioError(f"must be at least {least}", subject=subject, field=f"{where}.{name}")
    for name in ("cpu", "memory", "disk"):
        amount(getattr(node, name), f"{where}.{name}", subject)


def _check_workload(workload: ScenarioWorkload, where: str, subject: str) -> None:
    for name, least in (("replicas", 0), ("completions", 1), ("parallelism", 1)):
        if getattr(workload, name) < least:
            raise ScenarioError(f"must be at least {least}", subject=subject, field=f"{where}.{name}")
    _within(workload.imbalance, 0, 1, f"{where}.imbalance", subject)
    parts: tuple[tuple[str, dict[str, Amount]], ...] = (("requests", workload.requests), ("limits", workload.limits))
    for part, amounts in parts:
        for name, value in amounts.items():
            amount(value, f"{where}.{part}.{name}", subject)
    try:
        parse_schedule(workload.schedule)
    except ScheduleError as error:
        raise ScenarioError(error.message, subject=subject, field=f"{where}.schedule") from error
    make_profile(workload, where=where, subject=subject)


def _check_object(obj: dict[str, object], where: str, subject: str) -> None:
    for name in ("apiVersion", "kind", "metadata"):
        if not obj.get(name):
            raise ScenarioError("is needed", subject=subject, field=f"{where}.{name}")
    metadata = obj["metadata"]
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ScenarioError("is needed", subject=subject, field=f"{where}.metadata.name")


def _check_pod(name: str, known: list[str], place: str, subject: str) -> None:
    """A pod of a workload is meant by the workload's name, or by its own, which begins with it."""
    if not any(name == each or name.startswith(f"{each}-") for each in known):
        _one_of(name, known, place, subject)


def _nodes(scenario: Scenario) -> list[tuple[int, str]]:
    """Return the names of all nodes, with the index of the entry that makes them."""
    return [
        (index, node.name if node.count == 1 else f"{node.name}-{number + 1}")
        for index, node in enumerate(scenario.nodes)
        for number in range(node.count)
    ]


def _objects(scenario: Scenario, kind: str) -> list[str]:
    found = [obj.get("metadata") or {} for obj in scenario.objects if obj.get("kind") == kind]
    return [f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}" for metadata in found]


def _key(text: str) -> str:
    return text if "/" in text else f"default/{text}"


def _one_of(value: str, valid: list[str], place: str, subject: str) -> None:
    if value not in valid:
        more = ", …" if len(valid) > _MOST_NAMED else ""
        there = f"there are {', '.join(valid[:_MOST_NAMED])}{more}" if valid else "there are none"
        raise ScenarioError(f"{value!r} is not there to happen to; {there}", subject=subject, field=place)


def _unique(names: Iterable[tuple[str, str]], subject: str) -> None:
    seen: set[str] = set()
    for name, place in names:
        if name in seen:
            raise ScenarioError(f"{name} is there twice", subject=subject, field=place)
        seen.add(name)


def _longer_than_nothing(text: str, place: str, subject: str) -> None:
    if seconds(text, place, subject) <= 0:
        raise ScenarioError("must be longer than nothing", subject=subject, field=place)


def _within(value: float, low: float, high: float, place: str, subject: str) -> None:
    if not low <= value <= high:
        raise ScenarioError(f"must be from {low:g} to {high:g}", subject=subject, field=place)
