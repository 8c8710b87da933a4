"""Scenarios from recordings, from a live cluster, and from a line of text."""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import LoadSpec, make_curve
from kubetide.embedded.sim.load.scenario_checks import check
from kubetide.embedded.sim.load.scenario_file import parse_scenario
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.errors import InvalidInput, KubetideError
from kubetide.recording.format import Manifest
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer
from kubetide.simulate.live import load_from, parse_load, scenario_of_hpa
from kubetide.simulate.recorded import dns_name, scenario_of

T0, MINUTE, MIB = 1_700_006_400, 60, 2**20


@pytest.fixture
def tide(tmp_path: Path) -> Path:
    pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")
    path = tmp_path / "past.tide"
    times = (T0 + np.arange(30) * MINUTE) * 1_000_000
    with Writer(path, Manifest(interval_seconds=MINUTE, start=T0)) as writer:
        for workload, kind, pods in (("web", "Deployment", 2), ("nightly", "Job", 1)):
            for pod in range(pods):
                container = writer.container("shop", kind, workload, f"{workload}-{pod}", "app")
                cpu = np.full(30, 300_000)
                cpu[20:] = 900_000
                memory = np.full(30, (50 + 10 * pod) * MIB)
                writer.usage(np.full(30, container), times, cpu, memory)
                size = {"cpu_request_millis": 500, "memory_request_bytes": 128 * MIB, "memory_limit_bytes": 256 * MIB}
                writer.row("sizes", container_id=container, time=T0 * 1_000_000, **size)
        at = T0 * 1_000_000
        writer.row("replicas", namespace="shop", kind="Deployment", workload="web", time=at, wanted=2)
        writer.row("nodes", node="n1", time=at, cpu_millis=8000, memory_bytes=2**34)
        hpa = {
            "metadata": {"annotations": {"kubetide.io/hpa-headroom": "learned"}},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 9,
            },
        }
        for name, target in (("web", "web"), ("other", "elsewhere")):
            content = json.loads(json.dumps(hpa))
            content["spec"]["scaleTargetRef"]["name"] = target
            kept = {"kind": "HorizontalPodAutoscaler", "namespace": "shop", "name": name, "object": content}
            writer.row("objects", time=at, event="ADDED", **kept)
    return path


def test_a_recording_becomes_a_scenario_with_its_own_demand(tide: Path) -> None:
    scenario = scenario_of(Recording(tide))
    check(scenario, "past")
    (web,) = scenario.workloads
    assert (web.name, web.namespace, web.kind, web.replicas) == ("web", "shop", "Deployment", 2)
    assert web.requests == {"cpu": "500m", "memory": 128 * MIB}
    assert web.limits == {"memory": 256 * MIB}
    assert web.memory.base == 60 * MIB, "the most that a pod was seen with"
    assert web.load is not None
    curve = make_curve(web.load)
    assert curve.level(5 * MINUTE, 0) == pytest.approx(60.0), "0.6 cores of requests that cost 10m each"
    assert curve.level(25 * MINUTE, 0) == pytest.approx(180.0)
    assert [(node.name, node.cpu) for node in scenario.nodes] == [("n1", "8000m")]
    (hpa,) = scenario.objects
    assert hpa["metadata"]["annotations"] == {"kubetide.io/hpa-headroom": "learned"}
    assert hpa["apiVersion"] == "autoscaling/v2"
    assert scenario.duration == "1800s"


@pytest.mark.parametrize(("text", "name"), [("Web_Shop", "web-shop"), ("--", "x"), ("a" * 80, "a" * 50)])
def test_names_are_those_the_api_takes(text: str, name: str) -> None:
    assert dns_name(text) == name


def test_a_load_is_read_from_a_line() -> None:
    load = parse_load("spike:base=60,peak=600,at=5m,for=8m")
    assert load == LoadSpec(curve="spike", base=60, peak=600, begin="5m", duration="8m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zigzag:base=1", "--load curve: 'zigzag' is none of constant, step, ramp"),
        ("spike:base", "is not NAME=VALUE"),
        ("spike:base=1,peak=2,at=5m", "duration"),
        ("spike:base=x,peak=2,at=5m,for=1m", "base"),
        ("constant:speed=1", "there is no field 'speed'; there are curve, level"),
    ],
)
def test_a_load_that_cannot_be_read_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_load(text)


class FakePrometheus:
    def __init__(self, *series: list[tuple[int, str]]) -> None:
        self.series = series
        self.asked: dict[str, str] = {}

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        self.asked = dict(form)
        result = [{"metric": {"n": str(at)}, "values": each} for at, each in enumerate(self.series)]
        return msgspec.json.encode({"status": "success", "data": {"resultType": "matrix", "result": result}})


async def test_load_comes_from_prometheus_and_series_are_added_up() -> None:
    fake = FakePrometheus([(1000, "1"), (1060, "2")], [(1060, "3.5")])
    load = await load_from(fake, "rate(x[1m])", end=1120, seconds=120, step=60)
    assert load.file == "0,1\n60,5.5\n"
    assert fake.asked == {"query": "rate(x[1m])", "start": "1000", "end": "1120", "step": "60"}


@pytest.mark.parametrize("series", [[], [[(1000, "-1")]]])
async def test_load_that_is_not_there_or_negative_is_refused(series: list[list[tuple[int, str]]]) -> None:
    with pytest.raises(InvalidInput, match="--load-from"):
        await load_from(FakePrometheus(*series), "x", end=1120, seconds=120, step=60)


CLUSTER = """
nodes: [{name: node, count: 2, cpu: "4", memory: 8Gi}]
workloads:
- {name: web, namespace: shop, replicas: 3, requests: {cpu: 250m, memory: 100Mi}, limits: {memory: 200Mi}}
objects:
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: scaler, namespace: shop, annotations: {kubetide.io/hpa-headroom: learned, other.io/x: secret}}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    maxReplicas: 7
    metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
- apiVersion: autoscaling.k8s.io/v1
  kind: VerticalPodAutoscaler
  metadata: {name: sizer, namespace: shop}
  spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, updatePolicy: {updateMode: "Off"}}
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: odd, namespace: shop}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: web}
    maxReplicas: 7
"""


def test_a_live_autoscaler_comes_with_its_target_its_vpa_and_the_nodes() -> None:
    async def main() -> None:
        async with SimCluster(parse_scenario(CLUSTER)) as cluster:
            client = cluster.client()
            load = parse_load("constant:level=50")
            arguments = {"cpu_per_request": "20m", "duration": "30m"}
            found = await scenario_of_hpa(client, ObjectKey("shop", "scaler"), load, **arguments)
            check(found, "live")
            (web,) = found.workloads
            assert (web.name, web.replicas, web.cpu_per_request, web.load) == ("web", 3, "20m", load)
            assert web.requests == {"cpu": "250m", "memory": 100 * MIB}
            assert web.limits == {"memory": 200 * MIB}
            hpa, vpa = found.objects
            assert hpa["metadata"]["annotations"] == {"kubetide.io/hpa-headroom": "learned"}
            assert hpa["spec"]["maxReplicas"] == 7
            assert vpa["metadata"]["name"] == "sizer"
            assert len(found.nodes) == 2
            with pytest.raises(InvalidInput, match="its target is a ReplicaSet"):
                await scenario_of_hpa(client, ObjectKey("shop", "odd"), load, **arguments)
            with pytest.raises(KubetideError, match="nobody"):
                await scenario_of_hpa(client, ObjectKey("shop", "nobody"), load, **arguments)

    run_virtual(main())
