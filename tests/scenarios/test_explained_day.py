"""A working day explained: whatever is asked, people read words, not names of ours and not bare byte counts."""

import re
from collections.abc import Iterator
from datetime import timedelta

import click
import msgspec

from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import EVENTS
from kubetide.cli.asking import join
from kubetide.cli.demo.day import AGENT_INTERVAL
from kubetide.cli.explain.answer import render_answer
from kubetide.cli.explain.history import events_about
from kubetide.cli.explain.numbers import KINDS
from kubetide.cli.explain.workload import workload_trace
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import Scenario, ScenarioWorkload
from kubetide.simulate.controllers import ALL, Controllers
from kubetide.verdicts.cluster_reader import read_cluster
from kubetide.verdicts.core.judge import about
from simulated.cluster import run

# Fields of the API and names of metrics are words of the users'.
_FIELDS = frozenset({"minReplicas", "maxReplicas", "minAvailable", "maxUnavailable", "minAllowed", "maxAllowed"})
_METRIC = "http_requests_per_second"
_HUMPS = re.compile(r"\b[a-z]+[A-Z][A-Za-z]*\b")
_SNAKES = re.compile(r"\b[a-z]+_[a-z_]+\b")
_BYTES = re.compile(r"(?<![\w.-])\d{7,}(?![\w-])|\b\d{1,3}(?:,\d{3}){2,}\b")
_EMPTY = re.compile(r"reason: *$|because *$|: *None|\bdecided$")
LOOKS = (timedelta(minutes=1), timedelta(minutes=12), timedelta(minutes=40), timedelta(minutes=60))


def faults(text: str) -> Iterator[str]:
    """Yield what should not stand in an explanation; commands to paste and cgroups are names by nature."""
    for line in click.unstyle(text).replace(_METRIC, "METRIC").splitlines():
        if line.startswith("FIX: ") or line.strip().startswith("cgroup "):
            continue
        found = [word for word in _HUMPS.findall(line) if word not in _FIELDS]
        found += [match[0] for pattern in (_SNAKES, _BYTES, _EMPTY) for match in pattern.finditer(line)]
        yield from (f"{word!r} in {line!r}" for word in found)


async def explained(cluster: SimCluster, controllers: Controllers) -> dict[str, str]:
    """Return the explanation of every object of every kind, as `kubetide explain` prints it."""
    client = cluster.client()
    view = await read_cluster(client, cluster.clock)
    listed = {"hpa": view.hpas, "vpa": view.vpas, "pod": view.pods, "node": view.nodes}
    listed |= {"deploy": view.deployments, "statefulset": view.stateful_sets}
    texts = {}
    for kind, items in listed.items():
        for key in map(key_of, items):
            resource = KINDS[kind].resource
            if kind in ("deploy", "statefulset"):
                trace = workload_trace(view, resource.kind, ObjectKey(*key))
            else:
                agent = next((one for each in controllers.agents if (one := each.explain(kind, str(key)))), None)
                trace = join(kind, controllers.explain(kind, str(key)), agent) or {"unexplained": "nobody knows it"}
            trace = {**trace, "events": await events_about(client, [(resource.kind, key)])}
            texts[f"{kind} {key}"] = render_answer(KINDS[kind].renderer, trace, about(view, kind, key, trace))
    return texts


def webshop() -> Scenario:
    """Return the day of the demo, with a workload of the one kind that it lacks."""
    orders = ScenarioWorkload(name="orders", namespace="shop", kind="StatefulSet", replicas=2, requests={"cpu": "100m"})
    scenario = scenarios.load("webshop")
    return msgspec.structs.replace(scenario, workloads=[*scenario.workloads, orders])


def test_nothing_internal_reaches_a_person_on_a_simulated_day() -> None:
    async def main(cluster: SimCluster) -> tuple[list[dict[str, str]], list[str]]:
        controllers = Controllers()
        looks, before = [], timedelta(0)
        async with controllers.at_work(cluster, ALL, agent_interval=AGENT_INTERVAL):
            for at in LOOKS:
                await cluster.run_for(at - before)
                looks.append(await explained(cluster, controllers))
                before = at
        messages = [event.message for event in (await cluster.client().list(EVENTS)).items]
        return looks, messages

    looks, messages = run(main, scenario=webshop(), seed=1)
    found = {fault for look in looks for text in look.values() for fault in faults(text)}
    assert not found, "\n".join(sorted(found))
    for look in looks:
        # The demo has no WorkloadPlan; tests/cluster/test_plan.py explains one.
        assert {name.split()[0] for name in look} == set(KINDS) - {"plan"}
        for name, text in look.items():
            head = click.unstyle(text).splitlines()[0]
            assert re.match(r"[A-Z][A-Z ]+: .", head), f"{name} does not open with a verdict: {head}"
    assert not [message for message in messages if _EMPTY.search(message)], "a reason is never empty"
