"""Adapters of block I/O and of cache and bandwidth allocation."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from conformance.outcome import expect
from conformance.registry import suite
from kubetide.api.qos.cgroups import CgroupDriver
from kubetide.api.qos.slo_strategies import BlockCfg, IOCfg, ResourceQOSStrategy
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput, KubetideError
from kubetide.node.core.files import CGROUP_FILES, TASKS, Kind, ValueRefused, resctrl_file
from kubetide.node.core.formats.cpu import cpu_model
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.qos import l3_cache, resctrl
from kubetide.node.core.qos.blkio_lines import disk_number, limit_lines, root_latency_lines, root_lines
from kubetide.node.core.qos.pod_resctrl import pod_schemata
from nodeworld import World

Case = dict[str, Any]
INT64_MAX = 2**63 - 1


@suite("node-qos/blkio_need_update")
def need_update(case: Case) -> Iterable[str]:
    given = case["input"]
    needed = not CGROUP_FILES[given["resource"]].same(1, given["current"], given["new"])
    return expect(case, {"needUpdate": needed})


@suite("node-qos/blkio_validator")
def validator(case: Case) -> Iterable[str]:
    given = case["input"]
    file = CGROUP_FILES.get(given["resource"])
    valid = file is not None and file.kind in (Kind.DEVICE, Kind.COST)
    if file is not None and valid:
        maximum = INT64_MAX if given["max"] is None else given["max"]
        try:
            replace(file, range_v1=(given["min"], maximum)).validate(1, given["value"])
        except ValueRefused:
            valid = False
    return expect(case, {"valid": valid})


@suite("node-qos/blkio_block_lines")
def block_lines(case: Case) -> Iterable[str]:
    given = case["input"]
    raw = given["storage"] or {}
    storage = StorageFacts(
        disk_number=raw.get("DiskNumberMap") or {},
        partition_disk=raw.get("PartitionDiskMap") or {},
        group_disk=raw.get("VGDiskMap") or {},
        mapper_group=raw.get("LVMapperVGMap") or {},
        mount_source=raw.get("MPDiskMap") or {},
    )
    lines = root_latency_lines if given["level"] == "root" else limit_lines
    if given["block"] is None:
        return expect(case, {"lines": lines(given["removedDisk"], None)})
    block = convert(given["block"], BlockCfg)
    try:
        number = disk_number(storage, block)
    except InvalidInput:
        return expect(case, {"error": True})
    return expect(case, {"lines": lines(number, block.io_cfg or IOCfg())})


@suite("node-qos/blkio_root_lines_18")
def root_block_lines(case: Case) -> Iterable[str]:
    raw = case["input"]["block"]
    limits = None if raw is None else convert(raw, BlockCfg).io_cfg or IOCfg()
    return expect(case, {"lines": root_lines(case["input"]["diskNumber"], limits)})


@suite("node-qos/blkio_validator_18")
def cost_validator(case: Case) -> Iterable[str]:
    try:
        CGROUP_FILES[case["input"]["resource"]].validate(1, case["input"]["value"])
    except ValueRefused:
        return expect(case, {"valid": False})
    return expect(case, {"valid": True})


@suite("node-qos/resctrl_pod_schemata")
def resctrl_pod_schemata(case: Case) -> Iterable[str]:
    given = case["input"]
    try:
        found = pod_schemata(
            given["annotation"], cache_ids=given["cacheIDs"], cbm=given["cbm"], vendor=given["vendorID"]
        )
    except InvalidInput:
        return expect(case, {"error": True})
    return expect(case, {"error": False, "schemata": found})


@suite("node-qos/resctrl_vendor")
def vendor(case: Case) -> Iterable[str]:
    return expect(case, {"value": cpu_model(case["input"]["cpuinfo"]).vendor})


@suite("node-qos/resctrl_cpuinfo_flags")
def cpuinfo_flags(case: Case) -> Iterable[str]:
    cat, mba = l3_cache.cpu_support(case["input"]["cpuinfo"])
    return expect(case, {"cat": cat, "mba": mba})


@suite("node-qos/resctrl_schemata_format")
def schemata_format(case: Case) -> Iterable[str]:
    given, expected = case["input"], case["expected"]
    actual = {}
    if "wantL3String" in expected:
        actual["wantL3String"] = l3_cache.schemata_line("L3", given["cacheids"], given.get("l3Mask", ""))
    if "wantMBString" in expected:
        actual["wantMBString"] = l3_cache.schemata_line("MB", given["cacheids"], given.get("mbPercent", ""))
    return expect(case, actual)


@suite("node-qos/resctrl_schemata_valid")
def schemata_valid(case: Case) -> Iterable[str]:
    given = case["input"]
    try:
        l3_cache.check_root(given["schemata"] if given["exists"] else "")
    except InvalidInput:
        return expect(case, {"error": True})
    return expect(case, {"error": False})


@suite("node-qos/resctrl_read_tasks")
def read_tasks(case: Case) -> Iterable[str]:
    given = case["input"]
    if not given["exists"]:
        return expect(case, {"error": True})
    try:
        return expect(case, {"value": l3_cache.parse_tasks(given["tasks"])})
    except InvalidInput:
        return expect(case, {"error": True})


@suite("node-qos/resctrl_l3_mask")
def l3_mask(case: Case) -> Iterable[str]:
    given = case["input"]
    try:
        mask = l3_cache.l3_mask(given["cbm"], given["startPercent"], given["endPercent"])
    except InvalidInput:
        return expect(case, {"error": True})
    return expect(case, {"value": mask})


@suite("node-qos/resctrl_mba")
def mba(case: Case) -> Iterable[str]:
    value = l3_cache.mba_value(case["input"]["mbaPercent"], case["input"]["vendorID"])
    return expect(case, {"value": value})


@suite("node-qos/resctrl_parse_schemata")
def parse_schemata(case: Case) -> Iterable[str]:
    return expect(case, {"value": l3_cache.parse_schemata(case["input"]["content"])})


@suite("node-qos/resctrl_apply_policy")
def apply_policy(case: Case) -> Iterable[str]:
    given = case["input"]
    group = given["group"]
    world = World()
    path = world.layout.system_file(resctrl_file(group, "schemata"))
    before = (given["groupSchemata"] or {}).get(group, "")
    if given["pathValid"]:
        world.host.files[path] = before
    root = l3_cache.parse_schemata(given["rootSchemata"] or "")
    cache = resctrl.CacheFacts(
        cbm=given["cbm"] or 0,
        vendor=given["vendorID"] or "",
        cache_ids=tuple(l3_cache.cache_ids_of(root)),
        l3_count=given["l3Num"] or 0,
    )
    strategy = None if given["strategy"] is None else convert(given["strategy"], ResourceQOSStrategy)
    error = False
    try:
        kernel = world.reader.read(Needs(settings=[resctrl_file(group, "schemata")]))
        line = resctrl.policy_line(given["kind"], strategy, group, cache, kernel)
        if line is not None:
            world.executor.write_through(resctrl.schemata_write(group, line))
    except (KubetideError, OSError):
        error = True
    return expect(case, {"error": error, "schemataFile": world.host.files.get(path, before)})


@suite("node-qos/resctrl_apply_tasks")
def apply_tasks(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World()
    path = world.layout.system_file(resctrl_file(given["group"], "tasks"))
    if given["pathValid"]:
        world.host.files[path] = ""
        world.host.appending.add(path)
    error = False
    for write in resctrl.task_writes(given["group"], given["taskIds"]):
        try:
            world.executor.write_through(write)
        except KubetideError:
            error = True
    return expect(case, {"error": error, "concatenatedWrites": world.host.files.get(path, "")})


@suite("node-qos/resctrl_new_tasks")
def new_tasks(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World(version=given["cgroupVersion"], driver=CgroupDriver(given["driver"]))
    pod = world.add_pod(given["podMeta"]["pod"], directory=given["podMeta"].get("cgroupDir", ""))
    name = "tasks" if given["cgroupVersion"] == 1 else "cgroup.threads"
    for directory, text in given["taskFiles"].items():
        world.cgroup("cpu", directory, {name: text})
        world.cgroup("cpuset", directory, {"cpuset.cpus": ""})
    kernel = world.reader.read(Needs(texts_below=[(TASKS, pod.directory)]))
    return expect(case, {"newTasks": resctrl.new_tasks(pod, given["knownTasks"], kernel)})
