"""Adapters of the runtime proxy's pure functions."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from conformance.outcome import expect
from conformance.registry import suite
from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.node.runtime import proxy_merge
from kubetide.node.runtime.proxy_merge import LinuxResources

Case = dict[str, Any]


def _resources(raw: Case | None) -> LinuxResources | None:
    if raw is None:
        return None
    pages = tuple((page["page_size"], page["limit"]) for page in raw.get("hugepage_limits") or ())
    return LinuxResources(**{**raw, "hugepage_limits": pages, "unified": raw.get("unified") or {}})


def _shown(resources: LinuxResources | None) -> Case | None:
    if resources is None:
        return None
    raw = asdict(resources)
    raw["hugepage_limits"] = [{"page_size": size, "limit": limit} for size, limit in resources.hugepage_limits]
    return {name: value for name, value in raw.items() if value not in (0, "", [], {})}


def _merged(case: Case, merged: LinuxResources | None) -> Iterable[str]:
    wanted = case["expected"]["value"]
    if wanted is not None:
        wanted = {name: value for name, value in wanted.items() if value not in (0, "", [], {}, None)}
    return expect({"expected": {"value": wanted}}, {"value": _shown(merged)})


@suite("node-qos/proxy_merge_hook_response")
def hook_response(case: Case) -> Iterable[str]:
    given = case["input"]
    return _merged(case, proxy_merge.merge_hook_response(_resources(given["stored"]), _resources(given["hook"])))


@suite("node-qos/proxy_merge_update_request")
def update_request(case: Case) -> Iterable[str]:
    given = case["input"]
    return _merged(case, proxy_merge.merge_update_request(_resources(given["stored"]), _resources(given["request"])))


@suite("node-qos/proxy_docker_cgroup_parent")
def cgroup_parent(case: Case) -> Iterable[str]:
    given = case["input"]
    return expect(case, {"path": CgroupPaths(CgroupDriver(given["driver"])).full_parent(given["cgroupParent"])})
