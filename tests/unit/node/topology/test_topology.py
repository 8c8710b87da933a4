"""Zones, pools and CPUs taken by topology."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.qos import qos
from kubetide.api.values.codec import convert
from kubetide.api.values.cpuset import CpuSet
from kubetide.errors import DecodeError
from kubetide.node.core.formats.memory import MemInfo
from kubetide.node.core.formats.processors import NumaNode, Processor
from kubetide.node.core.topology import kubelet, pools, zones
from kubetide.node.core.topology.take import NotEnoughCpus, take


def machine(cores: int = 4, sockets: int = 2) -> list[Processor]:
    """Two threads a core: CPU n and n + all cores are siblings."""
    total = cores * sockets
    return [
        Processor(cpu=cpu, core=cpu % total, socket=(cpu % total) // cores, node=(cpu % total) // cores)
        for cpu in range(2 * total)
    ]


def numa(count: int = 2) -> list[NumaNode]:
    pages = {"1Gi": 1, "2Mi": 0}
    return [NumaNode(node=node, memory=MemInfo({"MemTotal": 4 * 2**20}), huge_pages=pages) for node in range(count)]


def pod(uid: str, cpus: str = "", label: str = "") -> Pod:
    annotations = {qos.ANNOTATION_RESOURCE_STATUS: f'{{"cpuset":"{cpus}"}}'} if cpus else {}
    labels = {qos.LABEL_QOS: label} if label else {}
    return convert({"metadata": {"name": uid, "uid": uid, "annotations": annotations, "labels": labels}}, Pod)


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        pytest.param("0-15", 8, "0-3,8-11", id="a-whole-socket"),
        pytest.param("0-15", 2, "0,8", id="both-threads-of-a-core"),
        pytest.param("0-15", 3, "0-1,8", id="a-core-and-one-thread"),
        pytest.param("1-15", 2, "1,9", id="whole-cores-before-single-threads"),
        pytest.param("0,4-7,12-15", 1, "0", id="the-smallest-hole-first"),
        pytest.param("0-15", 0, "", id="nothing-wanted"),
    ],
)
def test_cpus_are_packed(free: str, count: int, expected: str) -> None:
    assert str(take(machine(), CpuSet.parse(free), count)) == expected


def test_more_than_there_is_cannot_be_taken() -> None:
    with pytest.raises(NotEnoughCpus):
        take(machine(), CpuSet.parse("0-1"), 3)


def test_lsr_cpus_leave_one_pool_and_lse_cpus_both() -> None:
    found = pools.share_pools(machine(), [pod("r", "0", "LSR"), pod("e", "1", "LSE")], [], CpuSet(), None)
    assert str(found.latency_sensitive[0].cpus) == "2-3,8-11"
    assert str(found.best_effort[0].cpus) == "0,2-3,8-11"


def test_system_cpus_leave_both_pools_unless_shared() -> None:
    exclusive = {qos.ANNOTATION_SYSTEM_QOS: '{"cpuset":"0-3,8-11"}'}
    shared = {qos.ANNOTATION_SYSTEM_QOS: '{"cpuset":"0-3,8-11","cpusetExclusive":false}'}
    empty = pools.share_pools(machine(), [], [], CpuSet(), exclusive)
    assert [str(pool.cpus) for pool in empty.best_effort] == ["", "4-7,12-15"]
    assert str(pools.share_pools(machine(), [], [], CpuSet(), shared).best_effort[0].cpus) == "0-3,8-11"


def test_an_unreadable_system_annotation_fails_the_sync() -> None:
    with pytest.raises(DecodeError):
        pools.share_pools(machine(), [], [], CpuSet(), {qos.ANNOTATION_SYSTEM_QOS: "bad"})


def test_pods_that_the_kubelet_pinned_are_listed_and_leave_the_pools() -> None:
    state = '{"entries":{"theirs":{"c":"4-5"},"ours":{"c":"6"},"broken":{"c":"x"}}}'
    pods = [pod("theirs"), pod("ours", label="LS"), pod("broken")]
    allocations = kubelet.kubelet_allocations(state, pods)
    assert [one.to_json() for one in allocations] == [
        {"name": "theirs", "uid": "theirs", "cpuset": "4-5", "managedByKubelet": True}
    ]
    found = pools.share_pools(machine(), pods, allocations, CpuSet(), None)
    assert str(found.latency_sensitive[1].cpus) == "6-7,12-15"


def test_a_reservation_that_cannot_be_met_reserves_nothing() -> None:
    too_much = {qos.ANNOTATION_RESERVATION: '{"resources":{"cpu":"99"}}'}
    assert len(pools.node_reserved(too_much, machine())) == 0
    two = {qos.ANNOTATION_RESERVATION: '{"resources":{"cpu":"1500m"}}'}
    assert str(pools.node_reserved(two, machine())) == "0,8"


def test_huge_pages_are_not_memory() -> None:
    found = zones.zones(machine(), numa(), huge_pages=True)[0]
    resources = {one["name"]: one["capacity"] for one in found["resources"]}
    assert resources == {"cpu": "8", "hugepages-1Gi": "1Gi", "hugepages-2Mi": "0", "memory": "3Gi"}


def test_cpu_and_memory_must_agree_about_the_nodes() -> None:
    with pytest.raises(zones.ZonesUnknown):
        zones.zones(machine(), numa(1), huge_pages=False)


def zone(name: str, **resources: str) -> dict[str, Any]:
    listed = [
        {"name": key, "capacity": value, "allocatable": value, "available": value} for key, value in resources.items()
    ]
    return {"name": name, "type": "Node", "resources": listed}


def test_merging_keeps_what_others_put_into_our_zones() -> None:
    old = zone("node-0", cpu="2", gpu="1")
    old["costs"] = [{"name": "node-1", "value": 20}]
    old["resources"][1]["available"] = "0"
    merged = zones.merge_zones([old, zone("stranger", cpu="1")], [zone("node-0", cpu="4")])
    assert [one["name"] for one in merged] == ["node-0"]
    assert merged[0]["costs"] == [{"name": "node-1", "value": 20}]
    resources = {one["name"]: one for one in merged[0]["resources"]}
    assert (resources["cpu"]["capacity"], resources["gpu"]["available"]) == ("4", "0")


def stored(annotations: dict[str, str] | None, policy: str, *found: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "topologyPolicies": [policy], "zones": list(found)}


ANNOTATIONS = {qos.ANNOTATION_CPU_TOPOLOGY: '{"detail":[]}'}


@pytest.mark.parametrize(
    ("old", "changed"),
    [
        pytest.param(None, True, id="missing"),
        pytest.param(stored(None, "None", zone("node-0", cpu="4")), True, id="no-annotations-yet"),
        pytest.param(stored(ANNOTATIONS, "None", zone("node-0", cpu="4")), False, id="same"),
        pytest.param(
            stored({qos.ANNOTATION_CPU_TOPOLOGY: '{ "detail" : [] }'}, "None", zone("node-0", cpu="4000m")),
            False,
            id="same-in-other-words",
        ),
        pytest.param(stored(ANNOTATIONS, "Restricted", zone("node-0", cpu="4")), True, id="other-policy"),
        pytest.param(stored(ANNOTATIONS, "None", zone("node-0", cpu="5")), True, id="other-cpus"),
        pytest.param(
            stored({**ANNOTATIONS, qos.ANNOTATION_POD_CPU_ALLOCS: "[]"}, "None", zone("node-0", cpu="4")),
            True,
            id="an-annotation-too-many",
        ),
        pytest.param(
            stored({**ANNOTATIONS, "foreign": "x"}, "None", zone("node-0", cpu="4", gpu="1")), False, id="foreign-parts"
        ),
    ],
)
def test_only_what_counts_is_a_change(old: dict[str, Any] | None, changed: bool) -> None:
    assert zones.changed(old, ANNOTATIONS, "None", [zone("node-0", cpu="4")]) is changed


def test_the_kubelet_configuration_is_read_whatever_else_is_in_it() -> None:
    config = kubelet.config_from(
        {"kubeletconfig": {"cpuManagerPolicy": "static", "logging": 5, "kubeReserved": {"cpu": "1"}}}
    )
    assert kubelet.manager_annotation(config, machine()) == {"policy": "static", "reservedCPUs": "0"}
    assert kubelet.config_from({}).cpu_manager_policy == "none"


def static(reserved: str = "", kube: dict[str, str] | None = None, system: dict[str, str] | None = None) -> CpuSet:
    config = kubelet.KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus=reserved,
        kube_reserved=kube or {},
        system_reserved=system or {},
    )
    return kubelet.reserved_cpus(config, machine())


def test_listed_cpus_replace_the_amounts_and_amounts_are_summed_before_rounding() -> None:
    assert str(static("3,5", {"cpu": "4"})) == "3,5"
    assert str(static("", {"cpu": "500m", "memory": "1Gi"}, {"cpu": "1200m"})) == "0,8"
    assert not len(kubelet.reserved_cpus(kubelet.KubeletConfig(kube_reserved={"cpu": "1"}), machine()))


@pytest.mark.parametrize(
    ("reserved", "kube", "system"),
    [
        pytest.param("0,99", {}, {}, id="a-cpu-that-does-not-exist"),
        pytest.param("a", {}, {}, id="no-cpu-list"),
        pytest.param("", {}, {"memory": "1Gi"}, id="no-cpu-at-all"),
        pytest.param("", {"cpu": "1"}, {"gpu": "1"}, id="what-cannot-be-reserved"),
        pytest.param("0", {"gpu": "1"}, {}, id="what-cannot-be-reserved-beside-a-list"),
        pytest.param("", {"cpu": "1", "memory": "-1Gi"}, {}, id="a-negative-amount-of-memory"),
        pytest.param("", {"cpu": "17"}, {}, id="more-than-there-is"),
    ],
)
def test_a_reservation_that_no_kubelet_accepts_is_an_error(
    reserved: str, kube: dict[str, str], system: dict[str, str]
) -> None:
    with pytest.raises((kubelet.ReservationError, NotEnoughCpus)):
        static(reserved, kube, system)


def test_a_negative_reserved_cpu_amount_counts_as_none_and_is_told() -> None:
    assert str(static("", {"cpu": "-1"}, {"cpu": "2"})) == "0,8"
    assert str(static("3", {"cpu": "-1"})) == "3"
    assert not len(static("", {"cpu": "-1"}))
    config = kubelet.KubeletConfig(kube_reserved={"cpu": "-1"}, system_reserved={"cpu": "2", "memory": "-1Gi"})
    assert kubelet.negative_reservations(config) == ("kubeReserved.cpu: -1",)
    broken = kubelet.KubeletConfig(kube_reserved={"cpu": "many"}, system_reserved={})
    assert kubelet.negative_reservations(broken) == ()


@pytest.mark.parametrize("state", ["", "null", "{}", '{"entries":null}', '{"entries":{"u":null}}'])
def test_a_kubelet_state_without_entries_pins_nobody(state: str) -> None:
    assert kubelet.kubelet_allocations(state, []) == ()


@pytest.mark.parametrize("state", ["bad", "[]", '{"entries":[]}', '{"entries":{"u":{"c":1}}}'])
def test_a_kubelet_state_that_cannot_be_read_fails_the_sync(state: str) -> None:
    with pytest.raises(DecodeError):
        kubelet.kubelet_allocations(state, [])


def test_cpus_that_the_kubelet_reserved_stay_in_the_pools_and_those_of_the_annotation_leave() -> None:
    assert str(static("0,8")) == "0,8"
    reserved = pools.node_reserved({qos.ANNOTATION_RESERVATION: '{"reservedCPUs": "1,9"}'}, machine())
    found = pools.share_pools(machine(), [], [], reserved, {})
    assert [pool.to_json()["cpuset"] for pool in found.latency_sensitive] == ["0,2-3,8,10-11", "4-7,12-15"]
    assert found.best_effort == found.latency_sensitive


def test_a_pool_that_became_empty_is_still_listed() -> None:
    found = pools.share_pools(machine(), [], [], CpuSet.parse("0-3,8-11"), {})
    assert [pool.to_json() for pool in found.latency_sensitive] == [
        {"socket": 0, "node": 0, "cpuset": ""},
        {"socket": 1, "node": 1, "cpuset": "4-7,12-15"},
    ]


@pytest.mark.parametrize(
    ("policy", "scope", "name"),
    [
        ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
        ("restricted", "pod", "RestrictedPodLevel"),
        ("best-effort", "container", "BestEffortContainerLevel"),
        ("none", "pod", "None"),
        ("restricted", "", "None"),
        ("", "pod", "None"),
    ],
)
def test_the_topology_policy_has_the_name_of_policy_and_scope(policy: str, scope: str, name: str) -> None:
    assert kubelet.topology_policy(policy, scope) == name
