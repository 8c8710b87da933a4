"""Network QoS at admission: percentages against 100, rates against the bandwidth, never mixed."""

import json
from typing import Any

import pytest

from kubetide.slo.core.compat import parse_compat
from kubetide.slo.core.config import QOS_KEY, SYSTEM_KEY
from kubetide.slo.core.validate import Rejection, validate_configmap

POOL = {"matchLabels": {"pool": "a"}}


def strategy(**requests: Any) -> dict[str, Any]:
    return {f"{name}Class": {"networkQOS": {"ingressRequest": value}} for name, value in requests.items()}


def check(qos: dict[str, Any], system: dict[str, Any] | None = None, version: str = "1.8") -> Rejection | None:
    data = {QOS_KEY: json.dumps(qos), **({} if system is None else {SYSTEM_KEY: json.dumps(system)})}
    return validate_configmap(None, data, nodes=[], names_needed=False, compat=parse_compat(version))


GIGABIT = {"clusterStrategy": {"totalNetworkBandwidth": "1G"}}


@pytest.mark.parametrize(
    ("requests", "system", "allowed"),
    [
        pytest.param({"lsr": 50, "ls": 30, "be": 20}, GIGABIT, True, id="percentages-up-to-100"),
        pytest.param({"lsr": 50, "ls": 31, "be": 20}, GIGABIT, False, id="percentages-over-100"),
        pytest.param({"lsr": 50, "ls": 30}, None, True, id="percentages-need-no-bandwidth"),
        pytest.param({"lsr": "600M", "ls": "400M"}, GIGABIT, True, id="rates-up-to-the-bandwidth"),
        pytest.param({"lsr": "600M", "ls": "401M"}, GIGABIT, False, id="rates-over-the-bandwidth"),
        pytest.param({"lsr": "1M"}, None, False, id="rates-need-a-bandwidth"),
        pytest.param({"lsr": 50, "ls": "1M"}, GIGABIT, False, id="not-both"),
        pytest.param({"be": -1}, GIGABIT, False, id="negative"),
        pytest.param({"be": "fast"}, GIGABIT, False, id="no-quantity"),
    ],
)
def test_shares_of_the_classes_fit_the_node(
    requests: dict[str, Any], system: dict[str, Any] | None, allowed: bool
) -> None:
    refusal = check({"clusterStrategy": strategy(**requests)}, system)
    assert (refusal is None) is allowed
    assert refusal is None or refusal.reason == "ConfigParamInvalid"


@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        pytest.param([], True, id="the-cluster-bandwidth-without-entries"),
        pytest.param([{"nodeSelector": POOL, "totalNetworkBandwidth": "600M"}], True, id="that-of-the-same-selector"),
        pytest.param(
            [{"nodeSelector": {"matchLabels": {"pool": "b"}}, "totalNetworkBandwidth": "9G"}], False, id="else-none"
        ),
    ],
)
def test_a_node_entry_is_checked_against_the_bandwidth_of_its_nodes(
    entries: list[dict[str, Any]], allowed: bool
) -> None:
    qos = {"nodeStrategies": [{"name": "a", "nodeSelector": POOL, **strategy(ls="500M")}]}
    assert (check(qos, {**GIGABIT, "nodeStrategies": entries}) is None) is allowed


def test_nothing_of_this_is_checked_before_1_5() -> None:
    assert check({"clusterStrategy": strategy(ls=101)}, version="1.4") is None
