"""Adapters of the hook plugins: group identity, cpuset, batch resources, normalization, core scheduling, GPU."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from conformance.outcome import expect
from conformance.registry import suite
from kubetide.api.objects.core import Pod, ResourceRequirements
from kubetide.api.qos import cpu_normalization, qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput, KubetideError
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.hooks import (
    batch_resource,
    core_sched,
    cpuset,
    group_identity,
    network,
    normalization,
    traffic,
)
from kubetide.node.core.hooks.context import ContainerRequest, HostAppRequest, KubeQosRequest, PodRequest
from kubetide.node.core.hooks.cookies import carried, source_among
from kubetide.node.core.hooks.oom_score import stated_score
from kubetide.node.core.hooks.rules import DEFAULT_GATES, GROUP_IDENTITY, Plugins, Question, visible_devices
from kubetide.node.core.plan import ClearCookies, CreateCookie, ShareCookie
from kubetide.node.runtime.core_sched import CookieError, apply_cookies, read_cookies

Case = dict[str, Any]


def _pod(labels: Any, annotations: Any, cgroup_parent: str = "", **more: Any) -> PodRequest:
    return PodRequest(labels=labels, annotations=annotations, cgroup_parent=cgroup_parent, **more)


def _bvt_rule(raw: Any) -> group_identity.BvtRule | None:
    if raw is None:
        return None
    return group_identity.BvtRule(
        enable=raw.get("enable", False),
        pod=raw.get("podQOSParams") or {},
        kube_dir=raw.get("kubeQOSDirParams") or {},
        kube_pod=raw.get("kubeQOSPodParams") or {},
    )


@suite("node-qos/bvt_rule")
def bvt_rule(case: Case) -> Iterable[str]:
    given = case["input"]
    rule = group_identity.rule_from(convert(given["nodeSLOSpec"] or {}, NodeSLOSpec))
    shown = {
        "enable": rule.enable,
        "podQOSParams": dict(rule.pod),
        "kubeQOSDirParams": dict(rule.kube_dir),
        "kubeQOSPodParams": dict(rule.kube_pod),
    }
    return expect(case, {"rule": shown, "updated": rule != _bvt_rule(given["previousRule"])})


def _bvt(given: Case, ask: Callable[[Plugins], Iterable[Question]]) -> int | None:
    """Return what group identity answers; it is ready where the kernel has it and its switch can be set."""
    ready = given["systemSupported"] and given["kernelSysctl"] != "unreadable"
    plugins = Plugins(gates=dict.fromkeys(DEFAULT_GATES, False) | {GROUP_IDENTITY: True}, bvt_ready=ready)
    plugins.rules.bvt = _bvt_rule(given["rule"])
    return next((answer().cpu_bvt for _, answer in ask(plugins)), None)


@suite("node-qos/bvt_pod")
def bvt_pod(case: Case) -> Iterable[str]:
    given = case["input"]
    pod = _pod(given["labels"], given["annotations"], given["cgroupParent"])
    return expect(case, {"bvt": _bvt(given, lambda plugins: plugins.pod(pod))})


@suite("node-qos/bvt_pod_18")
def bvt_pod_18(case: Case) -> Iterable[str]:
    given = case["input"]
    pod = _pod(given["labels"], given["annotations"], given["cgroupParent"])
    plugins = Plugins(gates=dict.fromkeys(DEFAULT_GATES, False) | {GROUP_IDENTITY: True})
    plugins.update_slo(convert(given["nodeSLOSpec"], NodeSLOSpec))
    try:
        values = [ask().cpu_bvt for _, ask in plugins.pod(pod)]
    except InvalidInput:
        return expect(case, {"error": True})
    return expect(case, {"error": False, "bvt": values[0] if values else None})


@suite("node-qos/coresched_group_18")
def coresched_group_18(case: Case) -> Iterable[str]:
    given = case["input"]
    rule = core_sched.rule_from(convert(given["nodeSLOSpec"], NodeSLOSpec))
    enabled, group = core_sched.group_of(
        rule,
        labels=given["podLabels"],
        qos=_pod(given["podLabels"], given["podAnnotations"]).qos,
        kube_qos=given["kubeQosClass"],
        uid=given["podUID"],
    )
    return expect(case, {"enabled": enabled, "groupID": group, "nodeEnabled": rule.enabled})


@suite("node-qos/net_terway_node")
def net_terway_node(case: Case) -> Iterable[str]:
    try:
        found = network.node_bandwidth(convert(case["input"]["nodeSLOSpec"], NodeSLOSpec))
    except InvalidInput:
        return expect(case, {"error": True})
    return expect(case, {"error": False, "text": network.terway_text(found)})


@suite("node-qos/net_pod_bandwidth")
def net_pod_bandwidth(case: Case) -> Iterable[str]:
    pod = convert(case["input"]["pod"], Pod)
    rates: dict[str, Case] = {}
    # tc counts in bits per second, the vectors in bytes.
    for policy, read, unit in (("terway", network.pod_bandwidth, 1), ("tc", network.pod_rates, 8)):
        try:
            found = read(pod.metadata.annotations)
            rates[policy] = {"error": False, "ingress": found.ingress // unit, "egress": found.egress // unit}
        except InvalidInput:
            rates[policy] = case["expected"][policy] if case["expected"][policy]["error"] else {"error": True}
    chosen = traffic.set_of(qos.raw_qos(pod.metadata.labels))
    return expect(case, {"prio": network.terway_priority(pod), "tcClass": chosen, **rates})


@suite("node-qos/net_tc_classes")
def net_tc_classes(case: Case) -> Iterable[str]:
    found = network.shaped_bandwidth(convert(case["input"]["nodeSLOSpec"], NodeSLOSpec))
    config = {"hw_tx_bps_max": found.total, "hw_rx_bps_max": found.total}
    for name, one in (("l1", found.latency_sensitive), ("l2", found.best_effort)):
        config |= {f"{name}_tx_bps_min": one.tx_min, f"{name}_tx_bps_max": one.tx_max}
        config |= {f"{name}_rx_bps_min": one.rx_min, f"{name}_rx_bps_max": one.rx_max}
    return expect(case, {"config": config})


@suite("node-qos/net_class_id")
def net_class_id(case: Case) -> Iterable[str]:
    major, minor = case["input"]["major"], case["input"]["minor"]
    # Addresses are written as they are: ipset takes the text.
    expected = {name: case["expected"][name] for name in ("text", "classid")}
    found = {"text": traffic.class_text(minor, major), "classid": traffic.class_id(minor, major)}
    return expect({**case, "expected": expected}, found)


@suite("node-qos/oom_score_adj")
def oom_score(case: Case) -> Iterable[str]:
    try:
        value = stated_score(case["input"]["annotations"], case["input"]["container"])
    except InvalidInput:
        return expect(case, {"error": True})
    return expect(case, {"error": False, "value": value})


@suite("node-qos/bvt_kubeqos")
def bvt_kubeqos(case: Case) -> Iterable[str]:
    given = case["input"]
    request = KubeQosRequest(kube_qos=given["kubeQosClass"], cgroup_parent="")
    return expect(case, {"bvt": _bvt(given, lambda plugins: plugins.kube_qos(request))})


@suite("node-qos/bvt_hostapp")
def bvt_hostapp(case: Case) -> Iterable[str]:
    rule = _bvt_rule(case["input"]["rule"])
    value = None if rule is None else group_identity.host_app_bvt(rule, case["input"]["qosClass"])
    return expect(case, {"bvt": value})


@suite("node-qos/bvt_lookup")
def bvt_lookup(case: Case) -> Iterable[str]:
    given = case["input"]
    rule = _bvt_rule(given["rule"]) or group_identity.BvtRule()
    return expect(case, {"bvt": group_identity.pod_bvt(rule, given["qosClass"], given["kubeQosClass"])})


def _cpuset_rule(raw: Any) -> cpuset.CpusetRule | None:
    if raw is None:
        return None

    def pools(name: str) -> tuple[cpuset.SharePool, ...]:
        return convert(raw.get(name) or [], tuple[cpuset.SharePool, ...])

    return cpuset.CpusetRule(
        kubelet_policy=raw.get("kubeletPolicy", ""),
        share_pools=pools("sharePools"),
        be_share_pools=pools("beSharePools"),
        system_cpuset=raw.get("systemQOSCPUSet", ""),
    )


@suite("node-qos/cpuset_hook_rule")
def cpuset_hook_rule(case: Case) -> Iterable[str]:
    given = case["input"]
    pod = _pod(given["podLabels"], given["podAnnotations"])
    rule = _cpuset_rule(given["rule"]) or cpuset.CpusetRule()
    try:
        value = cpuset.cpuset_by_rule(pod, given["cgroupParent"], rule, be_cpu_manager=given["beCPUManager"])
    except KubetideError:
        return expect(case, {"error": True})
    return expect(case, {"cpuset": value})


@suite("node-qos/cpuset_hook_container")
def cpuset_hook_container(case: Case) -> Iterable[str]:
    given = case["input"]
    pod = _pod(given["podLabels"], given["podAnnotations"])
    try:
        value = cpuset.container_cpuset(
            pod, given["cgroupParent"], _cpuset_rule(given["rule"]), be_cpu_manager=given.get("beCPUManager", False)
        )
    except KubetideError:
        return expect(case, {"error": True})
    return expect(case, {"cpuset": value})


@suite("node-qos/cpuset_hook_quota")
def cpuset_hook_quota(case: Case) -> Iterable[str]:
    try:
        value = cpuset.unset_quota(_pod(None, case["input"]["podAnnotations"]))
    except KubetideError:
        return expect(case, {"error": True})
    return expect(case, {"cfsQuota": value})


@suite("node-qos/cpuset_hook_hostapp")
def cpuset_hook_hostapp(case: Case) -> Iterable[str]:
    given = case["input"]
    app = HostAppRequest(name="app", qos=given["qosClass"], cgroup_parent="app")
    try:
        value = cpuset.host_app_cpuset(app, _cpuset_rule(given["rule"]))
    except KubetideError:
        return expect(case, {"error": True})
    return expect(case, {"cpuset": value})


def _batch_rule(raw: Case | None) -> batch_resource.BatchRule:
    if raw is None:
        return batch_resource.BatchRule()
    return batch_resource.BatchRule(quota_enabled=raw["cfsQuotaEnabled"], ratio=raw["cpuNormalizationRatio"])


@suite("node-qos/batchresource_pod")
def batchresource_pod(case: Case) -> Iterable[str]:
    given = case["input"]
    try:
        batch = batch_resource.batch_from_annotation(given["annotations"])
    except KubetideError:
        batch = None
    pod = _pod(given["labels"], given["annotations"], batch=batch)
    value = batch_resource.pod_values(pod, _batch_rule(given["rule"]))
    return expect(case, {"cpuShares": value.cpu_shares, "cfsQuota": value.cfs_quota, "memoryLimit": value.memory_limit})


@suite("node-qos/batchresource_container")
def batchresource_container(case: Case) -> Iterable[str]:
    given = case["input"]
    raw = given["containerExtendedResources"]
    batch = None if raw is None else batch_resource.batch_of(convert(raw, ResourceRequirements))
    request = ContainerRequest(pod=_pod(given["podLabels"], None), batch=batch)
    value = batch_resource.container_values(request, _batch_rule(given["rule"]))
    return expect(case, {"cpuShares": value.cpu_shares, "cfsQuota": value.cfs_quota, "memoryLimit": value.memory_limit})


@suite("node-qos/batchresource_rule_slo")
def batchresource_rule_slo(case: Case) -> Iterable[str]:
    given = case["input"]
    spec = None if given["nodeSLOSpec"] is None else convert(given["nodeSLOSpec"], NodeSLOSpec)
    rule, updated = batch_resource.with_switch(batch_resource.BatchRule(quota_enabled=given["previousEnabled"]), spec)
    return expect(case, {"updated": updated, "cfsQuotaEnabled": rule.effective_quota_enabled})


@suite("node-qos/batchresource_rule_node")
def batchresource_rule_node(case: Case) -> Iterable[str]:
    given = case["input"]
    rule = batch_resource.BatchRule(
        quota_enabled=given["previous"]["cfsQuotaEnabled"], ratio=given["previous"]["ratio"]
    )
    error = updated = False
    try:
        rule, updated = batch_resource.with_ratio(rule, cpu_normalization.node_ratio(given["nodeAnnotations"]))
    except KubetideError:
        error = True
    effective = {"cfsQuotaEnabled": rule.effective_quota_enabled, "ratio": rule.effective_ratio}
    return expect(case, {"error": error, "updated": updated, "effective": effective})


@suite("node-qos/batchresource_is_be")
def batchresource_is_be(case: Case) -> Iterable[str]:
    return expect(case, {"be": _pod(case["input"]["labels"], None).qos == "BE"})


@suite("node-qos/cpunormalization_quota")
def cpunormalization_quota(case: Case) -> Iterable[str]:
    given = case["input"]
    rule = normalization.NormalizationRule(**(given["rule"] or {}))
    try:
        value = normalization.normalized_quota(
            _pod(given["labels"], given["annotations"]), given["originalCFSQuota"], rule
        )
    except KubetideError:
        return expect(case, {"error": True})
    return expect(case, {"cfsQuota": value})


@suite("node-qos/cpunormalization_is_cpushare")
def cpunormalization_is_cpushare(case: Case) -> Iterable[str]:
    given = case["input"]
    return expect(case, {"cpuShare": normalization.shares_cpus(_pod(given["labels"], given["annotations"]))})


@suite("node-qos/cpunormalization_rule")
def cpunormalization_rule(case: Case) -> Iterable[str]:
    given = case["input"]
    previous = given["previousRatio"]
    rule = normalization.NormalizationRule(enable=previous > 0, ratio=previous)
    error = updated = False
    try:
        rule, updated = normalization.next_rule(rule, given["nodeAnnotations"])
    except KubetideError:
        error = True
    return expect(case, {"error": error, "updated": updated, "ratio": rule.ratio})


def _core_rule(raw: Any) -> core_sched.CoreSchedRule:
    def table(name: str) -> dict[str, core_sched.ClassRule]:
        return {
            key: core_sched.ClassRule(enabled=value["enabled"], expeller=value["expeller"], idle=value["cpuIdle"])
            for key, value in ((raw or {}).get(name) or {}).items()
        }

    return core_sched.CoreSchedRule(qos=table("qos"), kube_qos=table("kubeQos"))


def _shown(rules: Any) -> dict[str, Any]:
    return {
        key: {"enabled": rule.enabled, "expeller": rule.expeller, "cpuIdle": rule.idle} for key, rule in rules.items()
    }


@suite("node-qos/coresched_rule")
def coresched_rule(case: Case) -> Iterable[str]:
    given = case["input"]
    rule = core_sched.rule_from(convert(given["nodeSLOSpec"] or {}, NodeSLOSpec))
    shown = {"qos": _shown(rule.qos), "kubeQos": _shown(rule.kube_qos)}
    return expect(case, {"updated": rule != _core_rule(given["previousRule"]), "rule": shown})


@suite("node-qos/coresched_group")
def coresched_group(case: Case) -> Iterable[str]:
    given = case["input"]
    pod = _pod(given["podLabels"], given["podAnnotations"])
    enabled, group = core_sched.group_of(
        _core_rule(given["rule"]),
        labels=given["podLabels"],
        qos=pod.qos,
        kube_qos=given["kubeQosClass"],
        uid=given["podUID"],
        compat=parse_compat("1.4"),
    )
    return expect(case, {"enabled": enabled, "groupID": group})


class _Kernel:
    """A kernel in memory: cookies by process, processes that fail, the next cookie."""

    def __init__(self, raw: Case) -> None:
        # A process that is only named by its group exists, without a cookie.
        self.cookies: dict[int, int] = {int(pid): 0 for pid in raw.get("pidToPGID") or {}}
        self.cookies |= {int(pid): cookie for pid, cookie in (raw.get("pidToCookie") or {}).items()}
        self.failing = set(raw.get("errorPIDs") or ())
        self.next = raw.get("nextCookie") or 1

    def get(self, pid: int) -> int:
        if pid in self.failing or pid not in self.cookies:
            raise CookieError(f"process {pid}")
        return self.cookies[pid]

    def create(self, pid: int) -> None:
        if pid in self.failing:
            raise CookieError(f"process {pid}")
        self.cookies[pid] = self.next
        self.next += 1

    def share(self, source: int, pids: Sequence[int]) -> str:
        failed = [pid for pid in pids if pid in self.failing or pid not in self.cookies]
        cookie = self.cookies.get(source, 0) if source else 0
        self.cookies.update({pid: cookie for pid in pids if pid not in failed})
        return f"processes {failed}" if failed else ""


@suite("node-qos/coresched_get_cookie")
def coresched_get_cookie(case: Case) -> Iterable[str]:
    cookie, pids = carried(read_cookies(_Kernel(case["input"]["kernel"]), case["input"]["pids"] or []))
    return expect(case, {"cookie": cookie, "pids": pids})


@suite("node-qos/coresched_add_cookie")
def coresched_add_cookie(case: Case) -> Iterable[str]:
    kernel, pids = _Kernel(case["input"]["kernel"]), case["input"]["pids"] or []
    if not pids:
        return expect(case, {"cookie": 0, "pids": []})
    create = CreateCookie(group="", first=pids[0], others=tuple(pids[1:]))
    (outcome,) = apply_cookies(kernel, [create])
    cookie = outcome.cookies.get(create.first, 0)
    if create.first not in outcome.cookies:
        return expect(case, {"error": True, "cookie": 0, "pids": []})
    return expect(
        case, {"cookie": cookie, "pids": sorted(pid for pid, one in outcome.cookies.items() if one == cookie)}
    )


@suite("node-qos/coresched_assign_cookie")
def coresched_assign_cookie(case: Case) -> Iterable[str]:
    given = case["input"]
    kernel, pids, siblings = _Kernel(given["kernel"]), given["pids"] or [], given["siblingPIDs"] or []
    target = given["targetCookie"]
    found = read_cookies(kernel, [*pids, *siblings])
    missing = tuple(sorted(pid for pid in pids if pid in found and found[pid] != target))
    lost: list[int] = []
    if missing:
        source = source_among(found, siblings, target)
        lost = siblings if source is None else siblings[: siblings.index(source)]
        if source is None:
            return expect(case, {"error": True, "assigned": [], "siblingsToDelete": lost})
        (outcome,) = apply_cookies(kernel, [ShareCookie(group="", cookie=target, source=source, pids=missing)])
        found |= outcome.cookies
    assigned = sorted(pid for pid in set(pids) if found.get(pid) == target)
    return expect(case, {"error": False, "assigned": assigned, "siblingsToDelete": lost})


@suite("node-qos/coresched_clear_cookie")
def coresched_clear_cookie(case: Case) -> Iterable[str]:
    kernel = _Kernel(case["input"]["kernel"])
    found = read_cookies(kernel, case["input"]["pids"] or [])
    carrying = tuple(sorted(pid for pid, cookie in found.items() if cookie))
    if carrying:
        (outcome,) = apply_cookies(kernel, [ClearCookies(pids=carrying)])
        found |= outcome.cookies
    return expect(case, {"cleared": sorted(pid for pid, cookie in found.items() if not cookie)})


@suite("node-qos/gpu_env")
def gpu_env(case: Case) -> Iterable[str]:
    try:
        value = visible_devices(case["input"]["podAnnotations"])
    except KubetideError:
        return expect(case, {"error": True})
    return expect(case, {"NVIDIA_VISIBLE_DEVICES": value})
