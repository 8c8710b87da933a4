"""What the agent reports about the node's topology, by release: allocations, reservations, labels."""

import json
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.values.codec import convert
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.formats.processors import CpuBasicInfo
from kubetide.node.core.series.store import Facts
from kubetide.node.state.callbacks import Callbacks
from kubetide.node.state.topology import TOPOLOGIES, TopologyReporter
from simulated.cluster import run
from unit.node.memory_host import MemoryHost
from unit.node.topology.test_topology import machine, numa

RESERVATION = '{"resources":{"cpu":"2"},"applyPolicy":"ReservedCPUsOnly"}'
STATE = '{"policyName":"static","entries":{"u":{"main":"3"}}}'


def node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    amounts = {"capacity": {"cpu": "16", "memory": "8Gi"}, "allocatable": {"cpu": "14500m", "memory": "7Gi"}}
    meta = {"name": "n", "uid": "1", "labels": labels or {}, "annotations": annotations or {}}
    return convert({"metadata": meta, "status": amounts}, Node)


def reporter(cluster: SimCluster, of: Node, *, compat: str = "1.8", query: bool = True) -> TopologyReporter:
    facts = Facts(processors=tuple(machine()), basic=CpuBasicInfo(), numa=tuple(numa()))
    return TopologyReporter(
        cluster.client(),
        cluster.clock,
        MemoryHost({"/var/lib/kubelet/cpu_manager_state": STATE}),
        facts,
        Callbacks(),
        "n",
        node=lambda: of,
        pods=tuple,
        interval=timedelta(seconds=3),
        report=False,
        huge_pages=False,
        kubelet=None,
        kubelet_root="/var/lib/kubelet",
        query_kubelet=query,
        compat=parse_compat(compat),
    )


def calculated(of: Node, *, compat: str = "1.8", query: bool = True) -> tuple[dict[str, str], list[dict[str, Any]]]:
    found: list[tuple[dict[str, str], list[dict[str, Any]]]] = []

    async def body(cluster: SimCluster) -> None:
        annotations, _, zones = await reporter(cluster, of, compat=compat, query=query).calculate()
        found.append((annotations, zones))

    run(body)
    return found[0]


@pytest.mark.parametrize(
    ("compat", "query", "expected"),
    [
        pytest.param("1.8", True, ["3"], id="found-in-the-kubelets-state"),
        pytest.param("1.8", False, None, id="nothing-may-be-asked-and-null-is-written"),
        pytest.param("1.4", False, ["3"], id="before-1.5-the-state-is-always-read"),
    ],
)
def test_cpus_that_the_kubelet_gave_away(compat: str, query: bool, expected: list[str] | None) -> None:
    text = calculated(node(), compat=compat, query=query)[0][qos.ANNOTATION_POD_CPU_ALLOCS]
    found = json.loads(text)
    assert (found and [one["cpuset"] for one in found]) == expected


@pytest.mark.parametrize(
    ("compat", "annotation", "expected"),
    [
        ("1.8", RESERVATION, {"resources": {"cpu": "2"}, "applyPolicy": "ReservedCPUsOnly", "reservedCPUs": "0,8"}),
        ("1.7", RESERVATION, {"reservedCPUs": "0,8"}),
        ("1.8", "nonsense", {}),
        ("1.8", None, {}),
    ],
)
def test_the_reservation_keeps_all_fields_from_1_8_on(
    compat: str, annotation: str | None, expected: dict[str, Any]
) -> None:
    given = {} if annotation is None else {qos.ANNOTATION_RESERVATION: annotation}
    text = calculated(node(annotations=given), compat=compat)[0][qos.ANNOTATION_RESERVATION]
    assert json.loads(text) == expected


def amounts(zones: list[dict[str, Any]], name: str) -> list[tuple[str, str]]:
    found = [one for zone in zones for one in zone["resources"] if one["name"] == name]
    return [(one["capacity"], one["allocatable"]) for one in found]


def test_zones_give_an_equal_part_of_what_is_reserved_where_the_label_asks_for_it() -> None:
    asking = node({qos.LABEL_NUMA_RESERVATION: "true"})
    zones = calculated(asking)[1]
    assert amounts(zones, "cpu") == [("8", "7250m")] * 2  # of 1500m each half
    assert amounts(zones, "memory") == [("4Gi", "3584Mi")] * 2
    for other in (node(), node({qos.LABEL_NUMA_RESERVATION: "yes"})):
        assert amounts(calculated(other)[1], "cpu") == [("8", "8")] * 2
    assert amounts(calculated(asking, compat="1.7")[1], "cpu") == [("8", "8")] * 2


def test_going_back_to_an_older_release_takes_label_and_annotation_away() -> None:
    async def body(cluster: SimCluster) -> None:
        of = node({qos.LABEL_NUMA_RESERVATION: "true"}, {qos.ANNOTATION_RESERVATION: RESERVATION})

        async def written(compat: str) -> dict[str, Any]:
            one = reporter(cluster, of, compat=compat, query=False)
            one._host = MemoryHost()
            await one.round()
            await one._write(one.annotations, one.policy, one.zones)
            found: dict[str, Any] = await cluster.client().get_raw(TOPOLOGIES, "n")
            return found

        newer = await written("1.8")
        assert newer["metadata"]["labels"][qos.LABEL_NUMA_RESERVATION] == "true"
        assert newer["metadata"]["annotations"][qos.ANNOTATION_POD_CPU_ALLOCS] == "null"
        assert amounts(newer["zones"], "cpu") == [("8", "7250m")] * 2
        older = await written("1.4")
        assert qos.LABEL_NUMA_RESERVATION not in older["metadata"]["labels"]
        assert older["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Koordinator"
        assert qos.ANNOTATION_POD_CPU_ALLOCS not in older["metadata"]["annotations"]
        assert amounts(older["zones"], "cpu") == [("8", "8")] * 2

    run(body)
