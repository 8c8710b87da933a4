"""The NodeSLO of a node, and the merging of strategies that it is made of."""

import json
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.values.codec import convert
from kubetide.slo.core.config import (
    COLOCATION_KEY,
    HOST_APPLICATION_KEY,
    QOS_KEY,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    ColocationState,
    NodeSLOConfig,
)
from kubetide.slo.core.nodeslo import render, same_spec

KEYS = {"threshold": THRESHOLD_KEY, "qos": QOS_KEY, "system": SYSTEM_KEY, "applications": HOST_APPLICATION_KEY}
POOL_A = {"nodeSelector": {"matchLabels": {"pool": "a"}}}
A = {"pool": "a"}


def spec(labels: dict[str, str] | None = None, **texts: Any) -> dict[str, Any]:
    state, problems = NodeSLOConfig.initial().updated({KEYS[name]: json.dumps(value) for name, value in texts.items()})
    assert problems == ()
    return render(state, convert({"metadata": {"labels": labels or {}}}, Node), None)


def test_the_first_entry_that_matches_is_used_and_no_other() -> None:
    entries = [{**POOL_A, "cpuSuppressThresholdPercent": 1}, {**POOL_A, "memoryEvictThresholdPercent": 2}]
    found = spec(A, threshold={"nodeStrategies": entries})["resourceUsedThresholdWithBE"]
    assert (found["cpuSuppressThresholdPercent"], found["memoryEvictThresholdPercent"]) == (1, 70)
    assert spec({"pool": "b"}, threshold={"nodeStrategies": entries})["resourceUsedThresholdWithBE"] == {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    }


def test_empty_text_and_null_are_not_given_but_zero_and_false_are() -> None:
    cluster = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 50}
    entry = {
        **POOL_A,
        "enable": False,
        "cpuSuppressPolicy": "",
        "cpuSuppressThresholdPercent": 0,
        "cpuEvictPolicy": None,
    }
    found = spec(A, threshold={"clusterStrategy": cluster, "nodeStrategies": [entry]})["resourceUsedThresholdWithBE"]
    assert (found["enable"], found["cpuSuppressPolicy"], found["cpuSuppressThresholdPercent"]) == (False, "cfsQuota", 0)
    assert found["cpuEvictPolicy"] == "evictByRealLimit"


def test_qos_is_passed_on_as_it_was_written() -> None:
    given = {"beClass": {"cpuQOS": {"groupIdentity": -1}}}
    assert spec(qos={"clusterStrategy": given})["resourceQOSStrategy"] == given
    assert spec()["resourceQOSStrategy"] == {}


def test_a_list_of_a_node_entry_replaces_that_of_the_cluster_and_an_empty_one_does_not() -> None:
    def blocks(*names: str) -> dict[str, Any]:
        return {"lsClass": {"blkioQOS": {"blocks": [{"name": name, "ioCfg": {"readIOPS": 1}} for name in names]}}}

    short = {**POOL_A, "lsClass": {"blkioQOS": {"enable": True, "blocks": [{"name": "c"}]}}}
    found = spec(A, qos={"clusterStrategy": blocks("a", "b"), "nodeStrategies": [short]})["resourceQOSStrategy"]
    assert found["lsClass"]["blkioQOS"] == {"enable": True, "blocks": [{"name": "c"}]}
    empty = {**POOL_A, "lsClass": {"blkioQOS": {"blocks": []}}}
    found = spec(A, qos={"clusterStrategy": blocks("a"), "nodeStrategies": [empty]})["resourceQOSStrategy"]
    assert [one["name"] for one in found["lsClass"]["blkioQOS"]["blocks"]] == ["a"]


def test_bandwidth_is_inherited_like_everything_else() -> None:
    entries = [{**POOL_A, "minFreeKbytesFactor": 50}]
    system = {"clusterStrategy": {"totalNetworkBandwidth": "10G"}, "nodeStrategies": entries}
    found = spec(A, system=system)["systemStrategy"]
    assert (found["totalNetworkBandwidth"], found["minFreeKbytesFactor"]) == ("10G", 50)


@pytest.mark.parametrize(
    ("given", "written"), [(0, "0"), (0.0, "0"), ("1000M", "1G"), (1500, "1500"), ("1.5", "1500m")]
)
def test_bandwidth_is_written_as_a_quantity_however_it_was_given(given: object, written: str) -> None:
    found = spec(system={"clusterStrategy": {"totalNetworkBandwidth": given}})["systemStrategy"]
    assert found["totalNetworkBandwidth"] == written


@pytest.mark.parametrize("given", ["x", "", True, [], "1 G"])
def test_a_bandwidth_that_is_no_quantity_makes_the_text_unreadable(given: object) -> None:
    text = json.dumps({"clusterStrategy": {"totalNetworkBandwidth": given}})
    _, problems = NodeSLOConfig.initial().updated({SYSTEM_KEY: text})
    assert [problem.key for problem in problems] == [SYSTEM_KEY]


def test_host_applications_of_an_entry_replace_those_of_the_cluster_also_by_none() -> None:
    cluster = {"applications": [{"name": "nginx"}]}
    assert [app["name"] for app in spec(A, applications=cluster)["hostApplications"]] == ["nginx"]
    other = {**cluster, "nodeConfigs": [{**POOL_A, "applications": [{"name": "redis"}]}]}
    assert [app["name"] for app in spec(A, applications=other)["hostApplications"]] == ["redis"]
    none = {**cluster, "nodeConfigs": [{**POOL_A, "applications": []}]}
    assert "hostApplications" not in spec(A, applications=none)


def test_empty_texts_are_not_written_into_applications_and_blocks_but_stay_in_selectors() -> None:
    apps = [{"name": "a", "priority": "", "cgroupPath": {"base": "", "relativePath": "x"}}, {"cgroupPath": {}}]
    blocks = {"lsClass": {"blkioQOS": {"blocks": [{"name": "a", "type": ""}, {}]}}}
    entries = [{"name": "", "nodeSelector": {"matchLabels": {"pool": ""}}, "applications": apps}]
    found = spec({"pool": ""}, applications={"nodeConfigs": entries}, qos={"clusterStrategy": blocks})
    assert found["hostApplications"] == [{"name": "a", "cgroupPath": {"relativePath": "x"}}, {"cgroupPath": {}}]
    assert found["resourceQOSStrategy"]["lsClass"]["blkioQOS"]["blocks"] == [{"name": "a"}, {}]


@pytest.mark.parametrize("data", [None, {}])
def test_without_a_configmap_or_without_its_keys_everything_is_default(data: dict[str, str] | None) -> None:
    state, _ = NodeSLOConfig.initial().updated({THRESHOLD_KEY: '{"clusterStrategy": {"enable": true}}'})
    again, problems = state.updated(data)
    assert problems == ()
    assert again.keys == NodeSLOConfig.initial().keys


@pytest.mark.parametrize(
    ("data", "available", "error"),
    [
        pytest.param(None, True, True, id="no-configmap"),
        pytest.param({}, True, False, id="no-key"),
        pytest.param({COLOCATION_KEY: ""}, True, False, id="empty-text"),
        pytest.param({COLOCATION_KEY: "null"}, True, False, id="null"),
        pytest.param({COLOCATION_KEY: "{"}, False, True, id="unreadable"),
        pytest.param({COLOCATION_KEY: '{"cpuReclaimThresholdPercent": -1}'}, False, True, id="not-acceptable"),
        pytest.param({COLOCATION_KEY: '{"metricMemoryCollectPolicy": ""}'}, False, True, id="empty-where-it-counts"),
    ],
)
def test_the_first_text_decides_whether_there_is_a_configuration(
    data: dict[str, str] | None, available: bool, error: bool
) -> None:
    state, _ = ColocationState.initial().updated(data)
    assert (state.available, state.error, state.config) == (available, error, ColocationState.initial().config)


def test_an_empty_path_of_an_application_is_not_the_same_as_none() -> None:
    def one(**fields: Any) -> dict[str, Any]:
        return {"hostApplications": [{"name": "a", **fields}]}

    assert same_spec(one(cgroupPath={}), one(cgroupPath={"base": ""}))
    assert same_spec(one(cgroupPath=None), one())
    assert not same_spec(one(cgroupPath={}), one())
