"""Room: what is recommended, given and resized fits the nodes and the quotas there are."""

from collections.abc import Iterable, Mapping
from random import Random

from drills.drill import Run, drill
from kubetide.api.objects.core import Node, Pod, ResourceQuota
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import Quantity
from kubetide.testing.builders import make_container, make_node, make_pod, make_quota
from kubetide.vpa.core.ceilings import Capped, Room, Workload, under_ceilings
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.core.safety import fit, fits_somewhere

MIB = 2**20
NAMES = ("cpu", "memory")
Amounts = dict[str, Quantity]


@drill(
    "random-sets",
    shows="10,000 random sets of pods, nodes and quotas: what is recommended, and what updater and webhook make of it, "
    "fits a node and the quota, unless it does not today",
    figure="pods made unschedulable, or refused by a quota",
    bound=0,
    unit="pods",
    tier="pure",
    short="2,000 sets",
)
def test_no_random_set_of_pods_nodes_and_quotas_is_made_unschedulable(run: Run) -> float:
    random = Random(22)
    return float(sum(_broken(random) for _ in range(10_000 if run.whole else 2_000)))


def _broken(random: Random) -> int:
    nodes = [_amounts(random, 64_000, 64 * 1024) for _ in range(random.randint(1, 6))]
    workloads = [_workload(random, number) for number in range(random.randint(1, 3))]
    today = [_today(workload) for workload in workloads]
    used = _total(
        [
            each
            for asked, workload in zip(today, workloads, strict=True)
            for each in asked.values()
            for _ in workload.pods
        ]
    )
    hard = {
        "cpu": Quantity.of_milli(used["cpu"].milli * random.randint(80, 400) // 100),
        "memory": Quantity.of(used["memory"].value * random.randint(80, 400) // 100),
    }
    limited = random.random() < 0.7
    room = Room(
        nodes=[_node(f"n{number}", each) for number, each in enumerate(nodes)],
        quotas=[_quota(hard, used)] if limited else [],
    )
    done = under_ceilings(workloads, room)
    broken, needed = 0, dict.fromkeys(NAMES, 0)
    for workload, asked in zip(workloads, today, strict=True):
        recommended = _targets(done[workload.key])
        given, _ = fit(recommended, asked, {}, nodes)
        fits_today = fits_somewhere(_total(asked.values()), nodes)
        broken += fits_today and not fits_somewhere(_total(recommended.values()), nodes)
        broken += fits_today and not fits_somewhere(_total(given.values()), nodes)
        for name in NAMES:
            needed[name] += sum(each[name].nanos for each in recommended.values()) * len(workload.pods)
    # What is below the quota today must stay below it; what is above may not grow.
    return broken + sum(limited and needed[name] > max(hard[name].nanos, used[name].nanos) for name in NAMES)


def _workload(random: Random, number: int) -> Workload:
    containers = [f"c{place}" for place in range(random.randint(1, 4))]
    asked = {name: _amounts(random, 4_000, 4 * 1024) for name in containers}
    made = [
        make_container(name, cpu=f"{each['cpu'].milli}m", memory=str(each["memory"].value))
        for name, each in asked.items()
    ]
    pods = [
        convert(make_pod(f"w{number}-{place}", containers=made, phase="Running", ready=True), Pod)
        for place in range(random.randint(1, 5))
    ]
    found = []
    for name in containers:
        target = _amounts(random, 24_000, 24 * 1024)
        found.append(Recommended(container=name, target=target, lower=target, upper=target, uncapped=target))
    key = ObjectKey("default", f"w{number}")
    return Workload(key=key, found=tuple(found), policy=None, pods=pods, replicas=len(pods))


def _today(workload: Workload) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    for container in workload.pods[0].spec.containers or ():
        assert container.resources is not None
        requests = container.resources.requests or {}
        found[container.name] = {
            "cpu": Quantity.of_milli(int(str(requests["cpu"]).removesuffix("m"))),
            "memory": Quantity.of(int(str(requests["memory"]))),
        }
    return found


def _targets(capped: Capped) -> dict[str, Amounts]:
    return {one.container: dict(one.target) for one in capped.found}


def _node(name: str, offered: Amounts) -> Node:
    made = make_node(name, cpu=f"{offered['cpu'].milli}m", memory=str(offered["memory"].value))
    return convert(made, Node)


def _quota(hard: Amounts, used: Amounts) -> ResourceQuota:
    def listed(amounts: Amounts) -> dict[str, str]:
        return {
            "requests.cpu": f"{amounts['cpu'].milli}m",
            "requests.memory": str(amounts["memory"].value),
        }

    raw = make_quota("compute", hard=listed(hard))
    return convert({**raw, "status": {"hard": listed(hard), "used": listed(used)}}, ResourceQuota)


def _amounts(random: Random, millis: int, mebibytes: int) -> Amounts:
    return {
        "cpu": Quantity.of_milli(random.randint(1, millis)),
        "memory": Quantity.of(random.randint(1, mebibytes) * MIB),
    }


def _total(parts: Iterable[Mapping[str, Quantity]]) -> Amounts:
    listed = list(parts)
    return {name: Quantity(sum(part[name].nanos for part in listed)) for name in NAMES}
