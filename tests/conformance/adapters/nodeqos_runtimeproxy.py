"""Adapters of the runtime proxy's pure functions."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from conformance.outcome import expect
from conformance.registry import suite
from kubetide.errors import InvalidInput
from kubetide.node.runtime import proxy_docker, proxy_merge
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


@suite("node-qos/proxy_docker_update_merge")
def docker_update(case: Case) -> Iterable[str]:
    given = case["input"]
    return _merged(case, proxy_merge.merge_docker_update(_resources(given["stored"]), given["updateConfig"]))


@suite("node-qos/proxy_docker_cgroup_parent")
def cgroup_parent(case: Case) -> Iterable[str]:
    given = case["input"]
    return expect(case, {"path": proxy_docker.full_cgroup_parent(given["cgroupParent"], given["driver"])})


@suite("node-qos/proxy_docker_expected_parent")
def expected_parent(case: Case) -> Iterable[str]:
    given = case["input"]
    return expect(case, {"cgroupParent": proxy_docker.docker_cgroup_parent(given["cgroupParent"], given["driver"])})


@suite("node-qos/proxy_docker_container_id")
def container_id(case: Case) -> Iterable[str]:
    try:
        return expect(case, {"containerID": proxy_docker.container_id(case["input"]["urlPath"])})
    except InvalidInput:
        return expect(case, {"error": True})


@suite("node-qos/proxy_docker_labels")
def labels(case: Case) -> Iterable[str]:
    plain, annotations = proxy_docker.split_labels(case["input"]["labels"])
    # The README says nothing about maps, and an empty one may be written either way.
    wanted = {name: value or {} for name, value in case["expected"].items()}
    return expect({"expected": wanted}, {"labels": plain, "annotations": annotations})


@suite("node-qos/proxy_docker_env")
def env(case: Case) -> Iterable[str]:
    return expect(case, {"env": proxy_docker.split_env(case["input"]["env"])})
