"""Memory QoS, block I/O, cache allocation and kernel settings as strategies."""

from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE, GUARANTEED, CgroupDriver
from kubetide.api.qos.slo_strategies import NodeSLOSpec, ResourceQOSStrategy, SystemStrategy
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.qos.blkio import BlkIo, mount_point
from kubetide.node.core.qos.l3_cache import l3_mask
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.memory_values import FILES
from kubetide.node.core.qos.resctrl import Resctrl
from kubetide.node.core.qos.system import SystemConfig, feature_words
from nodeworld import World, processors_of

GI = 2**30
MEMORY_FILES = {"memory.min": "0", "memory.low": "0", "memory.high": "max"}


def strategy(**classes: Any) -> NodeSLOSpec:
    return NodeSLOSpec(resource_qos_strategy=convert(classes, ResourceQOSStrategy))


def node(memory: str = "16Gi") -> Node:
    return convert(
        {"metadata": {"name": "n"}, "status": {"allocatable": {"memory": memory}, "capacity": {"memory": memory}}}, Node
    )


def with_memory_files(world: World) -> World:
    """Give the kernel every memory file that is known."""
    world.cgroup("memory", world.paths.kube_root, {name: "0" for name, _ in FILES})
    return world


def pod(name: str, *, label: str = "LS", annotations: dict[str, str] | None = None, **memory: str) -> Any:
    return {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {qos.LABEL_QOS: label} if label else {},
            "annotations": annotations or {},
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "resources": {
                        "requests": {"memory": memory.get("request", "1Gi")},
                        "limits": {"memory": memory["limit"]} if "limit" in memory else {},
                    },
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "scratch"}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}"}],
        },
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("driver", list(CgroupDriver))
def test_protection_is_summed_up_the_tree_and_taken_back_when_the_last_pod_leaves(
    version: int, driver: CgroupDriver
) -> None:
    world = World(version=version, driver=driver)
    world.node = node()
    world.slo = strategy(lsClass={"memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 100}})
    web, db = world.add_pod(pod("web")), world.add_pod(pod("db", request="2Gi"))
    places = [
        *world.paths.tiers(),
        *(place for one in (web, db) for place in (one.directory, one.containers[0].directory)),
    ]
    for place in places:
        world.cgroup("memory", place, MEMORY_FILES)
    decider = MemoryQos()
    world.sync(decider)

    def value(place: str, name: str) -> int:
        return int(world.text("memory", place, name))

    for place in (world.paths.tier(BURSTABLE), world.paths.tier(GUARANTEED)):
        assert value(place, "memory.min") == GI * 3 // 2
        assert value(place, "memory.low") == GI * 3
    assert value(web.containers[0].directory, "memory.min") == GI // 2
    assert value(world.paths.tier(BEST_EFFORT), "memory.min") == 0
    world.pods.clear()
    world.sync(decider)
    assert value(world.paths.tier(BURSTABLE), "memory.min") == 0
    assert value(world.paths.tier(GUARANTEED), "memory.low") == 0
    assert world.decide(decider).is_empty


def test_throttling_begins_between_request_and_limit() -> None:
    world = with_memory_files(World())
    world.node = node()
    world.slo = strategy(lsClass={"memoryQOS": {"enable": True, "throttlingPercent": 50}})
    world.add_pod(pod("web", request="1Gi", limit="3Gi"))
    world.add_pod(pod("free"))
    values = {
        write.directory: int(write.value)
        for write in world.decide(MemoryQos()).batches[0].levels[2]
        if write.file is files.MEMORY_HIGH
    }
    web, free = (one.containers[0].directory for one in world.pods)
    assert values[web] == 2 * GI
    assert values[free] == GI + 15 * GI // 2  # no limit: what the node can give


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param('{"policy":"none"}', 0, id="none-switches-off"),
        pytest.param('{"policy":"auto"}', 95, id="auto-takes-the-template"),
        pytest.param('{"policy":"auto","WMARKRATIO":80}', 80, id="own-fields-override-the-template"),
        pytest.param('{"wmarkRatio":70}', 70, id="own-fields-override-the-class"),
        pytest.param("{", 90, id="a-broken-annotation-counts-as-none"),
    ],
)
def test_a_pod_may_choose_its_memory_policy(annotation: str, expected: int) -> None:
    world = with_memory_files(World())
    world.node = node()
    world.slo = strategy(lsClass={"memoryQOS": {"enable": True, "wmarkRatio": 90}})
    world.add_pod(pod("web", annotations={qos.ANNOTATION_MEMORY_QOS: annotation}))
    pods = world.decide(MemoryQos()).batches[0].levels[1]
    assert [int(write.value) for write in pods if write.file is files.MEMORY_WMARK_RATIO] == [expected]


DISKS = StorageFacts(
    disk_number={"/dev/vda": "253:0", "/dev/vdb": "253:16"},
    partition_disk={"/dev/vdb1": "/dev/vdb"},
    mount_source={"/var/lib/kubelet/pods/web/volumes/kubernetes.io~csi/pv-1/mount": "/dev/vdb1"},
)


def blkio_world() -> World:
    world = World()
    world.storage = DISKS
    empty = dict.fromkeys(("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"), "")
    empty |= dict.fromkeys(("blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"), "")
    world.cgroup("blkio", world.paths.kube_root, empty)
    world.cgroup("blkio", world.paths.tier(BEST_EFFORT), empty)
    return world


def limits(world: World, directory: str, name: str = "blkio.throttle.read_bps_device") -> str:
    return world.text("blkio", directory, name)


def block(name: str = "/dev/vdb", kind: str = "device", **io: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "ioCfg": io}


def test_block_limits_are_written_once_and_removed_with_their_setting() -> None:
    world = blkio_world()
    tier = world.paths.tier(BEST_EFFORT)
    world.slo = strategy(beClass={"blkioQOS": {"enable": True, "blocks": [block(readBPS=1048576)]}})
    world.sync(BlkIo())
    assert limits(world, tier) == "253:16 1048576"
    assert world.decide(BlkIo()).is_empty
    world.slo = strategy(beClass={"blkioQOS": {"enable": False, "blocks": [block(readBPS=1048576)]}})
    world.sync(BlkIo())
    assert limits(world, tier) == "253:16 0"


@pytest.mark.parametrize("switch", [{}, {"enable": None}, {"enable": False}], ids=["missing", "null", "off"])
def test_block_limits_need_their_switch(switch: dict[str, Any]) -> None:
    world = blkio_world()
    world.slo = strategy(beClass={"blkioQOS": {**switch, "blocks": [block(readBPS=1048576)]}})
    assert world.decide(BlkIo()).is_empty


def test_the_root_gets_latencies_that_are_switched_off_again() -> None:
    world = blkio_world()
    world.cgroup("blkio", "", {"blkio.cost.qos": "", "blkio.cost.model": ""})
    world.slo = strategy(cgroupRoot={"blkioQOS": {"enable": True, "blocks": [block(readLatency=1000)]}})
    world.sync(BlkIo())
    targets = "rpct=95 rlat=1000 wpct=95 wlat=3000"
    assert limits(world, "", "blkio.cost.qos") == f"253:16 enable=1 ctrl=user {targets}"
    assert limits(world, "", "blkio.cost.model") == "253:16 ctrl=auto"
    world.slo = strategy(cgroupRoot={"blkioQOS": {"enable": False}})
    world.sync(BlkIo())
    assert limits(world, "", "blkio.cost.qos") == "253:16 enable=0"
    assert limits(world, "", "blkio.cost.model") == "253:16 ctrl=auto"


def test_before_percentiles_the_root_gets_plain_latencies() -> None:
    world = blkio_world()
    world.compat = parse_compat("1.4")
    world.cgroup("blkio", "", {"blkio.cost.qos": "", "blkio.cost.model": ""})
    world.slo = strategy(cgroupRoot={"blkioQOS": {"enable": True, "blocks": [block(readLatency=1000)]}})
    world.sync(BlkIo())
    assert limits(world, "", "blkio.cost.qos") == "253:16 enable=1 ctrl=user rlat=1000 wlat=3000"
    assert limits(world, "", "blkio.cost.model") == ""


def test_a_cost_model_that_lacks_a_value_is_not_written_and_says_which() -> None:
    world = blkio_world()
    world.cgroup("blkio", "", {"blkio.cost.qos": "", "blkio.cost.model": ""})
    half = block(enableUserModel=True, modelReadBPS=1, modelReadSeqIOPS=1, modelReadRandIOPS=1, modelWriteBPS=1)
    world.slo = strategy(cgroupRoot={"blkioQOS": {"enable": True, "blocks": [half]}})
    plan = world.sync(BlkIo())
    assert limits(world, "", "blkio.cost.model") == ""
    assert "modelWriteSeqIOPS, modelWriteRandIOPS" in str(plan.trace["problems"])


@pytest.mark.parametrize(
    ("current", "wanted", "words", "problem"),
    [
        pytest.param("A NO_B", {"A": False, "B": True}, ["NO_A", "B"], "", id="both-directions"),
        pytest.param("A NO_B", {"A": True, "B": False}, [], "", id="already-so"),
        pytest.param("A", {"A": False, "X": True}, ["NO_A"], "no scheduler feature X", id="unknown-is-skipped"),
        pytest.param("A NO_A", {"A": True}, [], "both on and off", id="contradiction"),
        pytest.param(None, {"A": True}, [], "no sched_features", id="no-file"),
    ],
)
def test_scheduler_features_are_written_word_by_word(
    current: str | None, wanted: dict[str, bool], words: list[str], problem: str
) -> None:
    found, told = feature_words(wanted, current)
    assert found == words
    assert problem in told


def test_the_group_identity_hook_owns_its_switch_while_a_class_uses_it() -> None:
    world = World()
    world.node = node("16Gi")
    world.gates = {"GroupIdentity": True}
    classes = {"lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}}}
    spec = {"resourceQOSStrategy": classes, "systemStrategy": {"schedGroupIdentityEnabled": 0}}
    world.slo = convert(spec, NodeSLOSpec)
    assert world.decide(SystemConfig()).is_empty
    assert "hook" in world.decide(SystemConfig()).trace["problem"]
    world.gates = {"GroupIdentity": False}
    assert not world.decide(SystemConfig()).is_empty


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        pytest.param({}, False, id="removed-by-an-empty-annotation"),
        pytest.param({"label": ""}, True, id="unlabeled-pods-are-left-alone"),
        pytest.param({"phase": "Pending"}, True, id="only-while-it-runs"),
    ],
)
def test_an_empty_annotation_of_a_running_pod_removes_its_limits(change: dict[str, str], kept: bool) -> None:
    world = blkio_world()
    raw = pod("web", label=change.get("label", "LS"), annotations={qos.ANNOTATION_BLKIO_QOS: ""})
    raw["status"]["phase"] = change.get("phase", "Running")
    web = world.add_pod(raw)
    world.cgroup("blkio", web.directory, {"blkio.throttle.read_bps_device": "253:16 5"})
    world.slo = strategy(beClass={})
    world.sync(BlkIo())
    assert limits(world, web.directory) == ("253:16 5" if kept else "253:16 0")


def test_one_unknown_disk_leaves_its_scope_alone_and_the_others_go_on() -> None:
    world = blkio_world()
    web = world.add_pod(
        pod(
            "web",
            annotations={
                qos.ANNOTATION_BLKIO_QOS: '{"blocks":[{"name":"data","type":"podvolume","iocfg":{"readBPS":5}}]}'
            },
        )
    )
    world.cgroup("blkio", web.directory, {"blkio.throttle.read_bps_device": ""})
    world.claims = {"d/data": "pv-1"}
    blocks = [block("/dev/sdx", readBPS=9), block(readBPS=1)]
    world.slo = strategy(beClass={"blkioQOS": {"enable": True, "blocks": blocks}})
    plan = world.decide(BlkIo())
    world.apply(plan)
    assert limits(world, world.paths.tier(BEST_EFFORT)) == ""
    assert limits(world, web.directory) == "253:16 5"
    assert list(plan.trace["problems"]) == [world.paths.tier(BEST_EFFORT)]


def test_volumes_are_found_under_the_kubelets_directory() -> None:
    world = World()
    web = world.add_pod(pod("web"))
    world.claims = {"d/data": "pv-1"}
    root = "/var/lib/kubelet/pods/web/volumes/kubernetes.io~csi"
    assert mount_point(world.snapshot(), web, "data") == f"{root}/pv-1/mount"
    assert mount_point(world.snapshot(), web, "scratch") == f"{root}/scratch/mount"
    with pytest.raises(InvalidInput):
        mount_point(world.snapshot(), web, "nothing")


def test_block_limits_need_cgroup_v1() -> None:
    world = World(version=2)
    world.storage = DISKS
    world.slo = strategy(beClass={"blkioQOS": {"enable": True, "blocks": [block(readBPS=1)]}})
    assert "v1" in world.decide(BlkIo()).trace["skipped"]


def resctrl_world() -> World:
    world = World()
    world.processors = tuple(Processor(cpu=n, core=n, socket=n // 2, node=0, l3=n // 2) for n in range(4))
    world.host.files["/proc/cpuinfo"] = "vendor_id : GenuineIntel\nflags : fpu cat_l3 mba\n"
    world.host.files["/sys/fs/resctrl/info/L3/cbm_mask"] = "fff\n"
    for group in ("", "LSR/", "LS/", "BE/"):
        world.host.files[f"/sys/fs/resctrl/{group}schemata"] = "    MB:0=100;1=100\n    L3:0=fff;1=fff\n"
        world.host.files[f"/sys/fs/resctrl/{group}tasks"] = ""
    return world


def test_cache_ways_are_divided_by_class_and_written_once() -> None:
    world = resctrl_world()
    world.slo = strategy(
        lsClass={"resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 100}},
        beClass={"resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 35}},
    )
    decider = Resctrl()
    world.sync(decider)
    assert [(path.split("/")[-2], text) for path, text in world.host.writes] == [
        ("BE", "L3:0=f;1=f;\n"),
        ("BE", "MB:0=40;1=40;\n"),
    ]
    world.host.files["/sys/fs/resctrl/BE/schemata"] = "    MB:0=40;1=40\n    L3:0=f;1=f\n"
    assert world.decide(decider).is_empty


def test_threads_are_bound_to_the_group_of_their_class() -> None:
    world = resctrl_world()
    world.slo = strategy(lsClass={"resctrlQOS": {"enable": True}})
    web = world.add_pod(pod("web"))
    world.host.files["/sys/fs/resctrl/LS/tasks"] = "7\n"
    world.host.appending.add("/sys/fs/resctrl/LS/tasks")
    world.cgroup("cpu", web.containers[0].directory, {"tasks": "9\n7\n8\n"})
    world.sync(Resctrl())
    assert world.host.files["/sys/fs/resctrl/LS/tasks"] == "7\n89"


def test_a_cpu_without_allocation_is_left_alone() -> None:
    world = resctrl_world()
    world.host.files["/proc/cpuinfo"] = "flags : fpu cat_l3\n"
    world.slo = strategy(beClass={"resctrlQOS": {"enable": True}})
    assert "allocation" in world.decide(Resctrl()).trace["skipped"]


def test_an_empty_range_of_ways_is_refused() -> None:
    assert l3_mask(0xFFF, 25, 60) == "f8"
    with pytest.raises(InvalidInput):
        l3_mask(0xF, 1, 2)
    with pytest.raises(InvalidInput):
        l3_mask(0b101, 0, 100)


def test_kernel_settings_follow_the_nodes_memory() -> None:
    world = World()
    world.node = node("16Gi")
    world.slo = NodeSLOSpec(
        system_strategy=SystemStrategy(min_free_kbytes_factor=100, watermark_scale_factor=150, memcg_reap_back_ground=1)
    )
    world.host.files["/proc/sys/vm/min_free_kbytes"] = "67584"
    world.host.files["/proc/sys/vm/watermark_scale_factor"] = "10"
    world.sync(SystemConfig())
    assert world.host.files["/proc/sys/vm/min_free_kbytes"] == str(16 * 2**20 // 100)
    assert world.host.files["/proc/sys/vm/watermark_scale_factor"] == "150"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"min_free_kbytes_factor": 1}, "67584", id="too-little"),
        pytest.param({"min_free_kbytes_factor": 9999}, "67584", id="too-much"),
        pytest.param({}, "67584", id="not-said"),
        pytest.param({"min_free_kbytes_factor": 10}, str(16 * 2**20 // 1000), id="within-its-range"),
    ],
)
def test_free_memory_out_of_its_range_is_not_set_at_all(fields: dict[str, Any], expected: str) -> None:
    world = World()
    world.node = node("16Gi")
    world.slo = NodeSLOSpec(system_strategy=SystemStrategy(**fields))
    world.host.files["/proc/sys/vm/min_free_kbytes"] = "67584"
    world.sync(SystemConfig())
    assert world.host.files["/proc/sys/vm/min_free_kbytes"] == expected


def test_processors_without_cores_still_count() -> None:
    assert len(processors_of([{"cpu": 0}, {"cpu": 1}])) == 2
