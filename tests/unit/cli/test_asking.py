"""Addresses as people type them, and answers that come in halves."""

from typing import Any

import pytest

from kubetide.cli.asking import base_url, join
from kubetide.cli.explain import pod
from kubetide.cli.node.simulated import explain_together
from kubetide.errors import InvalidInput

UPDATER: dict[str, Any] = {
    "pod": "shop/web-1",
    "vpa": "shop/web",
    "mode": "Auto",
    "action": "none",
    "reason": "within the recommended range",
    "priority": None,
    "at": "2026-01-01T00:00:00+00:00",
}
AGENT: dict[str, Any] = {
    "pod": "shop/web-1",
    "qos": {"label": "LS", "used": "LS", "kubernetes": "Burstable"},
    "priority": 9000,
    "cgroup": "kubepods/burstable/pod1",
    "predicted": {"p95": {"cpuMillis": 250, "memoryBytes": 268435456}},
}


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        (":8941", "http://127.0.0.1:8941"),
        ("127.0.0.1:8941", "http://127.0.0.1:8941"),
        ("http://127.0.0.1:8941/", "http://127.0.0.1:8941"),
        ("https://agent.example:9316", "https://agent.example:9316"),
        ("[::1]:9316", "http://[::1]:9316"),
    ],
)
def test_an_address_is_taken_with_and_without_its_scheme(typed: str, url: str) -> None:
    assert base_url(typed) == url


@pytest.mark.parametrize("typed", ["", "http://", "ftp://here", "here:port", "here:99999"])
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(InvalidInput, match="is not an address such as"):
        base_url(typed)


@pytest.mark.parametrize(
    ("controller", "agent", "told"),
    [
        pytest.param(UPDATER, None, ["controlled by VPA shop/web"], id="the-updater-alone"),
        pytest.param(None, AGENT, ["pod shop/web-1", "QoS class LS", "0.25 cores, memory 256Mi"], id="the-agent-alone"),
        pytest.param(UPDATER, AGENT, ["controlled by VPA shop/web", "QoS class LS"], id="both"),
    ],
)
def test_a_pod_is_shown_by_whoever_knows_it(
    controller: dict[str, Any] | None, agent: dict[str, Any] | None, told: list[str]
) -> None:
    joined = join("pod", controller, agent)
    assert joined is not None
    text = pod.render(joined)
    assert all(part in text for part in told)


def test_a_process_with_agents_and_controllers_answers_with_both_halves() -> None:
    class Agent:
        def explain(self, kind: str, key: str) -> dict[str, Any] | None:
            return {"node": key} if kind == "node" else AGENT if kind == "pod" else None

    explain = explain_together([Agent()], lambda kind, key: {"overcommit": key} if kind == "node" else UPDATER)  # type: ignore[list-item]
    assert explain("node", "n1") == {"node": "n1", "overcommit": "n1"}
    assert explain("pod", "shop/web-1") == {**UPDATER, "agent": AGENT}
    assert explain("hpa", "shop/web") == UPDATER
