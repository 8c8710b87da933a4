"""Files for the terway-qos daemon."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.host.worker import Inline
from kubetide.node.runtime.terway import NODE_FILE, PODS_FILE, TerwayFiles
from nodeworld import World


def spec(policy: str = "terway-qos", limit: Any = 50) -> NodeSLOSpec:
    network = {"enable": True, "egressRequest": 10, "egressLimit": limit}
    raw = {
        "systemStrategy": {"totalNetworkBandwidth": "800M"},
        "resourceQOSStrategy": {"policies": {"netQOSPolicy": policy}, "beClass": {"networkQOS": network}},
    }
    return convert(raw, NodeSLOSpec)


def pod(name: str, annotation: str | None = None) -> dict[str, Any]:
    annotations = {} if annotation is None else {qos.ANNOTATION_NETWORK_QOS: annotation}
    labels = {qos.LABEL_QOS: "BE"}
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": labels, "annotations": annotations},
        "status": {"phase": "Running", "qosClass": "BestEffort"},
    }


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def world() -> World:
    made = World()
    made.slo = spec()
    made.add_pods([pod("a", '{"ingressLimit":"8M","egressLimit":"16M"}'), pod("b"), pod("c", "{}")])
    return made


async def test_rates_are_written_in_bytes_and_unusable_pods_are_left_out(tmp_path: Path, world: World) -> None:
    await TerwayFiles(tmp_path / "qos", world.snapshot, Inline()).sync()
    lines = dict(line.split() for line in (tmp_path / "qos" / NODE_FILE).read_text().splitlines())
    assert (lines["hw_tx_bps_max"], lines["offline_l2_tx_bps_min"]) == ("100000000", "10000000")
    pods = json.loads((tmp_path / "qos" / PODS_FILE).read_text())
    assert pods.keys() == {"a", "b"}  # c gives half an annotation
    assert pods["a"]["qosConfig"] == {"ingressBandwidth": 1000000, "egressBandwidth": 2000000}
    assert (pods["a"]["prio"], pods["a"]["podName"]) == (2, "a")


async def test_another_policy_removes_the_files(tmp_path: Path, world: World) -> None:
    files = TerwayFiles(tmp_path, world.snapshot, Inline())
    await files.sync()
    world.slo = spec("tc")
    await files.sync()
    assert names_in(tmp_path) == []


async def test_a_rate_above_the_total_leaves_the_files_as_they_are(tmp_path: Path, world: World) -> None:
    files = TerwayFiles(tmp_path, world.snapshot, Inline())
    await files.sync()
    before = (tmp_path / NODE_FILE).read_text()
    world.slo = spec(limit="900M")
    await files.sync()
    assert (tmp_path / NODE_FILE).read_text() == before
