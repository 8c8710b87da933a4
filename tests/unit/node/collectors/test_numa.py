"""Usage by NUMA node: samples of a machine with two, and what the NodeMetric makes of them."""

from datetime import timedelta

import pytest

from kubetide.node.collectors.numa import NumaCollector
from kubetide.node.core import files
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.formats import memory
from kubetide.node.core.formats.memory import MemInfo
from kubetide.node.core.formats.numbers import FormatError
from kubetide.node.core.formats.processors import NumaNode, Processor
from kubetide.node.core.prediction.reclaimable import EmptyPredictor
from kubetide.node.core.report import status
from kubetide.node.core.series import kinds
from kubetide.node.core.slo import complete_collect_policy
from unit.node.collectors.test_collectors import Machine, known_pod

V1 = (
    "total=9 N0=9 N1=9\nfile=9 N0=9 N1=9\nhierarchical_anon=30 N0=10 N1=20\nhierarchical_unevictable=3 N0=1 N1=2\n"
    "hierarchical_total=99 N0=50 N1=49\n"
)
V2 = "anon N0=4096 N1=8192\nfile N0=999 N1=999\nunevictable N0=0 N1=4096\n"


def test_pages_of_a_cgroup_by_numa_node() -> None:
    assert memory.numa_usage(V1, 1) == {0: 11 * 4096, 1: 22 * 4096}
    assert memory.numa_usage(V2, 2) == {0: 4096, 1: 12288}
    for broken in ("", "anon N0=1\n", "anon N0=x\nunevictable N0=1\n", "anon 0=1\nunevictable N0=1\n"):
        with pytest.raises(FormatError):
            memory.numa_usage(broken, 2)


def two_nodes() -> Machine:
    machine = Machine([known_pod("a"), known_pod("gone")])
    machine.put(files.MEMORY_NUMA_STAT, machine.pods[0].directory, V1)
    facts = machine.context.store.facts
    facts.processors = tuple(Processor(cpu=n, core=n, socket=0, node=n // 2) for n in range(4))
    facts.numa = tuple(NumaNode(node=n, memory=MemInfo({}), huge_pages={}) for n in (0, 1))
    for node, free in ((0, 500), (1, 100)):
        text = f"Node {node} MemTotal: 1000 kB\nNode {node} MemFree: {free} kB\nNode {node} Active(file): 60 kB\n"
        machine.host.files[f"/sys/bus/node/devices/node{node}/meminfo"] = f"{text}Node {node} Inactive(file): 40 kB\n"
    return machine


def stat(*busy: int) -> str:
    lines = [f"cpu{number} {ticks} 0 0 9000 100 0 0 0" for number, ticks in enumerate(busy)]
    return "\n".join([f"cpu {sum(busy)} 0 0 9000 100 0 0 0", *lines])


def test_cpu_and_memory_of_every_numa_node_and_what_is_no_pods() -> None:
    machine = two_nodes()
    collector = NumaCollector(machine.context, 10.0, 10_000_000)
    machine.host.files["/proc/stat"] = stat(0, 0, 0, 0)
    assert collector.collect()
    assert machine.last(kinds.NUMA_CPU, numa_node_id="0") is None
    machine.clock.advance(10)
    machine.host.files["/proc/stat"] = stat(1000, 500, 0, 250)
    assert collector.collect()
    assert machine.last(kinds.NUMA_CPU, numa_node_id="0") == pytest.approx(1.5)
    assert machine.last(kinds.NUMA_CPU, numa_node_id="1") == pytest.approx(0.25)
    assert machine.last(kinds.NUMA_MEMORY, numa_node_id="0") == 400 * 1024
    assert machine.last(kinds.NUMA_SYS_MEMORY, numa_node_id="0") == 400 * 1024 - 11 * 4096
    assert machine.last(kinds.NUMA_SYS_MEMORY, numa_node_id="1") == 800 * 1024 - 22 * 4096


def test_a_cpu_that_came_or_whose_ticks_went_back_counts_nothing() -> None:
    machine = two_nodes()
    collector = NumaCollector(machine.context, 10.0, 10_000_000)
    machine.host.files["/proc/stat"] = stat(100, 100, 100)
    collector.collect()
    machine.clock.advance(10)
    machine.host.files["/proc/stat"] = stat(50, 100, 100, 7000)
    collector.collect()
    assert machine.last(kinds.NUMA_CPU, numa_node_id="0") == 0
    assert machine.last(kinds.NUMA_CPU, numa_node_id="1") == 0


def test_without_facts_there_is_nothing_to_sample() -> None:
    assert NumaCollector(Machine().context, 10.0, 10_000_000).collect()


@pytest.mark.parametrize("compat", ["1.8", "1.7", "1.4"])
def test_the_nodemetric_carries_it_from_the_release_on_and_a_step_back_leaves_nothing(compat: str) -> None:
    machine = two_nodes()
    collector = NumaCollector(machine.context, 10.0, 10_000_000)
    machine.host.files["/proc/stat"] = stat(0, 0, 0, 0)
    collector.collect()
    machine.clock.advance(10)
    machine.host.files["/proc/stat"] = stat(1000, 500, 500, 0)
    collector.collect()
    machine.context.store.append("s", 1.0, machine.clock.now(), [((kinds.SYS_CPU, ()), 0.4)])
    machine.context.store.append("s", 1.0, machine.clock.now(), [((kinds.SYS_MEMORY, ()), 1000.0)])
    body = status(
        machine.context.store,
        complete_collect_policy(None),
        now=machine.clock.now() + timedelta(seconds=1),
        pods=(),
        predictor=EmptyPredictor(),
        numa=(1, 0),
        compat=parse_compat(compat),
    ).body
    found = body["nodeMetric"].get("numaUsages")
    if compat != "1.8":
        assert found is None
        assert "prodPeakMetric" not in body
        return
    assert [one["numaNodeID"] for one in found] == [0, 1]
    assert found[0]["nodeUsage"] == {"resources": {"cpu": "1500m", "memory": str(400 * 1024)}}
    # Three quarters of the CPU time was spent on the first one.
    assert [one["systemUsage"]["resources"]["cpu"] for one in found] == ["300m", "100m"]
    assert found[1]["systemUsage"]["resources"]["memory"] == str(800 * 1024 - 22 * 4096)
