"""Page cache limits of pods, on kernels that can."""

from typing import Any

import pytest

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.memory_values import page_cache_limit
from kubetide.node.core.qos.system import SystemConfig
from nodeworld import World
from unit.node.qos.scenes import classes, node

ENABLE, SIZE, SYNC = (f"memory.pagecache_limit.{name}" for name in ("enable", "size", "sync"))


@pytest.mark.parametrize(
    ("limit", "given", "expected"),
    [
        pytest.param(1000, {"percent": 33}, (1, 330, 0), id="percent-of-the-limit"),
        pytest.param(1000, {"size": 400, "percent": 33}, (1, 400, 0), id="a-size-wins"),
        pytest.param(1000, {"size": 4000}, (1, 1000, 0), id="not-above-the-limit"),
        pytest.param(-1, {"size": 4000}, (1, 4000, 0), id="no-limit-to-stay-below"),
        pytest.param(-1, {"percent": 50}, (0, 0, None), id="a-percent-of-nothing-switches-off"),
        pytest.param(1000, {"percent": 0}, (0, 0, None), id="zero-switches-off"),
        pytest.param(1000, {"percent": 50, "sync": True}, (1, 500, 1), id="reclaimed-at-once"),
        pytest.param(1000, {"percent": 50, "enable": False}, (0, 500, 0), id="the-switch-wins"),
        pytest.param(1000, {"percent": 0, "enable": True}, (1, 0, None), id="the-switch-wins-both-ways"),
        pytest.param(1000, {"enable": True}, (1, None, None), id="only-the-switch"),
        pytest.param(1000, {}, (None, None, None), id="nothing-is-set"),
    ],
)
def test_the_limit_of_a_pod(limit: int, given: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    wanted: dict[str, Any] = {"size": None, "percent": None, "enable": None, "sync": None, **given}
    found = page_cache_limit(limit, **wanted)
    assert (found.get(ENABLE), found.get(SIZE), found.get(SYNC)) == expected


def limited(compat: str, annotation: str = "") -> World:
    world = node(1)
    world.compat = parse_compat(compat)
    classes(lsClass={"memoryQOS": {"enable": True, "pageCacheLimitPercent": 50}})(world)
    if annotation:
        web = world.pods[0].pod
        meta = {"name": "web", "namespace": "d", "uid": "web", "labels": web.metadata.labels}
        raw = {
            "metadata": {**meta, "annotations": {qos.ANNOTATION_MEMORY_QOS: annotation}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]},
            "status": {"phase": "Running", "qosClass": "Burstable"},
        }
        world.pods.pop(0)
        world.add_pod(raw)
    world.sync(MemoryQos())
    return world


def of_web(world: World) -> tuple[str, str]:
    web = next(pod for pod in world.pods if pod.name == "web")
    return world.text("memory", web.directory, ENABLE), world.text("memory", web.directory, SIZE)


def test_only_pods_are_limited_and_only_from_the_release_on() -> None:
    world = limited("1.8")
    assert of_web(world) == ("1", str(512 << 20))
    assert world.text("memory", world.pods[0].containers[0].directory, SIZE) == "0"
    assert of_web(limited("1.7")) == ("0", "0")


def test_a_pod_decides_for_itself() -> None:
    assert of_web(limited("1.8", '{"pageCacheLimitSize": 4096}')) == ("1", "4096")
    world = limited("1.8", '{"policy": "none"}')
    assert of_web(world) == ("0", "0")


@pytest.mark.parametrize(("compat", "given", "expected"), [("1.8", 1, "1"), ("1.8", 7, "0"), ("1.7", 1, "0")])
def test_the_switch_of_the_node(compat: str, given: int, expected: str) -> None:
    world = node(1)
    world.compat = parse_compat(compat)
    world.host.files["/sys/kernel/mm/pagecache_limit/enabled"] = "0"
    world.slo = convert({"systemStrategy": {"pageCacheLimitEnabled": given}}, NodeSLOSpec)
    world.sync(SystemConfig())
    assert world.host.files["/sys/kernel/mm/pagecache_limit/enabled"] == expected
