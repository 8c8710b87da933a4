"""What a search found: as a table, as a policy file, as commands that put it in force, and as a report."""

from collections.abc import Sequence

import msgspec
import numpy as np
import yaml

from kubetide.charts import Axis, Chart, Points, Role, Unit
from kubetide.charts.page import Section, Table
from kubetide.replay.core.search import HPA, annotations, cost, flags, hpa_patch, policy_of, written
from kubetide.replay.tune import Candidate, TunedNumbers

_HEADINGS = ["", "footprint", "wrong", "cost", "held out: footprint", "wrong", "cost", "numbers"]
_NEEDS = "# needs --per-vpa-tuning"
_SHORT = {
    "target_memory": "memory {}",
    "memory_half_life": "{}",
    "target_cpu": "CPU {}",
    "cpu_half_life": "{}",
    "margin": "+{}",
    "days": "{:g} days",
    "percentile": "CPU {}",
    "factor": "×{}",
    "target": "{:g} %",
    "window": "down after {:g} s",
}


def table(found: TunedNumbers) -> tuple[list[str], list[list[str]]]:
    """Return the front, and the defaults before it, with the days searched on and the days held out side by side."""
    rows = [_row("defaults", found.defaults)]
    for number, each in enumerate(found.finalists, 1):
        rows.append(_row(f"{number} ← chosen" if each is found.chosen else str(number), each))
    if found.chosen is found.defaults:
        rows[0][0] = "defaults ← chosen"
    return list(_HEADINGS), rows


def _row(label: str, each: Candidate) -> list[str]:
    numbers = " ".join(_SHORT[name].format(value) for name, value in written(each.numbers).items())
    cells = [
        text
        for values in (each.train, each.held_out)
        for text in (f"{values[0]:.3f}", f"{values[1]:.2%}", f"{cost(values):.3f}")
    ]
    return [label, *cells, numbers]


def in_force(found: TunedNumbers) -> list[str]:
    """Return what to type: flags for the recommender of all, annotations of VPAs, patches of HPAs."""
    numbers = found.chosen.numbers
    if found.chosen is found.defaults:
        return [f"{found.workload_class}: on the held-out days no candidate is better than the defaults"]
    if found.estimator == HPA:
        body = msgspec.json.encode(hpa_patch(numbers)).decode()
        lines = [
            f"kubectl patch hpa {name} -n {namespace} --type merge -p '{body}'"
            for namespace, name in found.autoscalers.hpas
        ]
        return lines or [f"# no HPA on CPU utilization was recorded; as a patch of one: {body}"]
    if found.estimator != "vpa":
        return [f"# no controller runs {found.estimator}; replay with the policy file, or give its tool these numbers"]
    if found.classes == "all":
        return ["kubetide run recommender " + " ".join(flags(numbers))]
    given = " ".join(annotations(numbers))
    if found.classes == "namespace":
        lines = [f"kubectl annotate vpa --all -n {found.workload_class} --overwrite {given}"]
    else:
        by_namespace: dict[str, list[str]] = {}
        for namespace, name in found.autoscalers.vpas:
            by_namespace.setdefault(namespace, []).append(name)
        lines = [
            f"kubectl annotate vpa {' '.join(names)} -n {namespace} --overwrite {given}"
            for namespace, names in by_namespace.items()
        ]
    return [*(lines or [f"# no VPA of this class was recorded; annotate theirs with {given}"]), _NEEDS]


def policy_file(found: TunedNumbers) -> str:
    """Return the chosen policy as a file that `kubetide replay --policy` reads, with what puts it in force."""
    lines = [f"# {line.removeprefix('# ')}" for line in in_force(found)]
    policy = policy_of(found.estimator, found.chosen.numbers, f"tuned-{found.workload_class}")
    return "\n".join([*lines, yaml.safe_dump(msgspec.to_builtins(policy), sort_keys=False)])


def sections(found: Sequence[TunedNumbers]) -> list[Section]:
    """Return the report: a section per class."""
    parts = []
    for each in found:
        headings, rows = table(each)
        text = ["Candidates were searched on the first days; the days held out, which no search has seen, decide."]
        section = Section(
            heading=each.workload_class,
            text=[*text, *in_force(each)],
            table=Table(headings=headings, rows=rows),
            charts=[_chart(each)],
        )
        parts.append(section)
    return parts


def _chart(found: TunedNumbers) -> Chart:
    """Return the front on both sides of the split, with the defaults."""

    def points(label: str, values: Sequence[tuple[float, float]], role: Role, names: Sequence[str] = ()) -> Points:
        x, y = np.array(values, dtype=np.float64).reshape(-1, 2).T
        return Points(label=label, x=x, y=y, names=names, role=role)

    numbers = [str(number) for number in range(1, len(found.finalists) + 1)]
    layers = [
        points("searched on", [each.train for each in found.finalists], Role.USAGE, numbers),
        points("held out", [each.held_out for each in found.finalists], Role.REQUEST, numbers),
        points("defaults, held out", [found.defaults.held_out], Role.LIMIT, ["defaults"]),
    ]
    x, y = Axis(unit=Unit.NUMBER, label="footprint"), Axis(unit=Unit.RATIO, label="wrong")
    return Chart(title="Footprint against what goes wrong", x=x, y=y, layers=layers)
