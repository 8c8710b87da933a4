"""Dry runs on a cluster: what would be done is told with its reason, and not one write request reaches the server.

Components run with the read-only identity that `kubetide manifests --dry-run` describes.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from kubetide.cli.compare import Comparison
from kubetide.cli.dry_run import Report
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.install.objects import dry_run_manifests
from kubetide.kube.client.client import Client
from kubetide.settings import COMPONENTS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_deployment, make_hpa, make_vpa
from kubetide.wiring import Dependencies, build
from onlookers import Counted, onlooker
from simulated.cluster import run


async def work(cluster: SimCluster) -> None:
    """Give every component something to say."""
    await cluster.apply(
        [
            make_deployment("web", replicas=2, cpu="500m", memory="256Mi"),
            make_hpa("web", maximum=6, cpu_percent=50),
            make_deployment("idle", replicas=3, cpu="1", memory="1Gi"),
            make_vpa("idle", target="idle", mode="Recreate"),
            make_config_map("slo-controller-config", "koordinator-system", {"colocation-config": '{"enable": true}'}),
        ]
    )
    cluster.set_usage("default", "web", cpu=0.45)
    cluster.set_usage("default", "idle", cpu=0.05)


async def recommend(cluster: SimCluster, cpu: str) -> None:
    """Write the recommendation that a recommender would."""
    container = {"containerName": "main", "target": {"cpu": cpu, "memory": "64Mi"}}
    bounds = {"lowerBound": container["target"], "upperBound": {"cpu": cpu, "memory": "2Gi"}}
    status = {"recommendation": {"containerRecommendations": [{**container, **bounds}]}}
    status["conditions"] = [{"type": "RecommendationProvided", "status": "True"}]  # type: ignore[assignment]
    path = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers/idle/status"
    body = json.dumps({"status": status}).encode()
    kind = "application/merge-patch+json"
    await cluster.client().request("PATCH", path, body=body, content_type=kind)


Scene = Callable[[SimCluster], Awaitable[None]]


def watched(
    component: str,
    make: Callable[[Client, Any, Telemetry, list[str]], Report | Comparison],
    *,
    scene: Scene,
    changes: Mapping[str, Any] | None = None,
) -> tuple[list[str], Counted, dict[str, Any], Telemetry]:
    """Run a component with a read-only identity while a scene is played; return what it said, and to whom it spoke."""

    async def main(cluster: SimCluster) -> tuple[list[str], Counted, dict[str, Any], Telemetry]:
        objects = dry_run_manifests((component,), namespace="kube-system", image="x")
        await cluster.apply([each for each in objects if each["kind"] not in ("Deployment", "DaemonSet")])
        await work(cluster)
        transport = Counted(cluster.transport(onlooker(component)))
        telemetry, rng = Telemetry(), random.Random(1)
        lines: list[str] = []
        client = Client(transport, clock=cluster.clock, rng=rng)
        dry_run = make(client, cluster.clock, telemetry, lines)
        world = Dependencies(client=client, clock=cluster.clock, telemetry=telemetry, rng=rng, dry_run=dry_run)
        parts = build(component, world, COMPONENTS[component](**(changes or {})))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in parts]
            await scene(cluster)
            for task in tasks:
                task.cancel()
        return lines, transport, dry_run.explain(dry_run.name, "all") or {}, telemetry

    return run(main, nodes=2)


def report(client: Client, clock: Any, telemetry: Telemetry, lines: list[str]) -> Report | Comparison:
    return Report(lines.append, clock, telemetry)


async def quarter(cluster: SimCluster) -> None:
    await cluster.run_for(timedelta(minutes=15))


async def with_recommendation(cluster: SimCluster) -> None:
    await recommend(cluster, "50m")
    await cluster.run_for(timedelta(minutes=15))


@pytest.mark.parametrize(
    ("component", "scene", "changes", "told"),
    [
        pytest.param(
            "hpa", quarter, {"take_over": True}, "hpa: would scale Deployment default/web  replicas 2 → 4", id="hpa"
        ),
        pytest.param(
            "recommender",
            quarter,
            {},
            "recommender: would recommend for VerticalPodAutoscaler default/idle",
            id="recommender",
        ),
        pytest.param(
            "updater",
            with_recommendation,
            {"use_admission_controller_status": False},
            "updater: would evict Pod default/idle-",
            id="updater",
        ),
        pytest.param("slo", quarter, {}, "slo: would create NodeSLO node-1", id="slo"),
    ],
)
def test_intents_are_told_and_nothing_is_written(
    component: str, scene: Scene, changes: dict[str, Any], told: str
) -> None:
    lines, transport, asked, telemetry = watched(component, report, scene=scene, changes=changes)
    assert any(line.startswith(told) for line in lines), lines
    assert transport.writes == [], "not one write is sent"
    assert transport.refused == [], "reading is all it needs"
    assert len(lines) == len(set(lines)), "what is not done is wanted again, and told once"
    assert asked["intents"]
    assert b"kubetide_dry_run_intents_total" in telemetry.render()


def test_reasons_are_told() -> None:
    lines, *_ = watched(
        "updater", report, scene=with_recommendation, changes={"use_admission_controller_status": False}
    )
    assert any("main cpu 1 → 50m" in line and "VPA default/idle:" in line for line in lines), lines
    lines, *_ = watched("hpa", report, scene=quarter)
    assert any("(" in line and "cpu" in line for line in lines), lines


def test_an_updater_that_may_not_act_says_why() -> None:
    lines, transport, *_ = watched("updater", report, scene=with_recommendation)
    assert any(line.startswith("updater: would update nothing: ") for line in lines), lines
    assert transport.writes == []


def test_programs_get_json_lines() -> None:
    def as_json(client: Client, clock: Any, telemetry: Telemetry, lines: list[str]) -> Report | Comparison:
        return Report(lines.append, clock, telemetry, True)

    lines, *_ = watched("hpa", as_json, scene=quarter)
    first = json.loads(lines[0])
    assert (first["component"], first["action"], first["object"]) == ("hpa", "scale", "Deployment default/web")
    assert first["changes"] == [{"field": "replicas", "from": 2, "to": first["changes"][0]["to"]}]
    assert first["why"]


@pytest.mark.parametrize("component", ["admission", "colocation"])
def test_a_webhook_has_no_dry_run(component: str) -> None:
    async def main(cluster: SimCluster) -> None:
        telemetry = Telemetry()
        world = Dependencies(
            client=cluster.client(),
            clock=cluster.clock,
            telemetry=telemetry,
            rng=random.Random(1),
            dry_run=Report(print, cluster.clock, telemetry),
        )
        with pytest.raises(SettingsError, match="has no dry run"):
            build(component, world, COMPONENTS[component]())

    run(main, nodes=1)


# Beside the upstream controller.


def comparison(client: Client, clock: Any, telemetry: Telemetry, lines: list[str]) -> Report | Comparison:
    return Comparison(lines.append, clock, telemetry, client)


async def status_of_hpa(cluster: SimCluster, desired: int) -> None:
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
    body = json.dumps({"status": {"desiredReplicas": desired, "currentReplicas": 2}}).encode()
    await cluster.client().request("PATCH", path, body=body, content_type="application/merge-patch+json")


def test_a_scale_that_upstream_does_not_want_is_a_difference() -> None:
    async def scene(cluster: SimCluster) -> None:
        await status_of_hpa(cluster, 2)
        await cluster.run_for(timedelta(minutes=5))

    lines, transport, asked, telemetry = watched("hpa", comparison, scene=scene)
    assert any("upstream wants 2 replicas, kubetide wants 4" in line for line in lines), lines
    assert transport.writes == []
    assert transport.refused == []
    assert asked["differences"][0]["object"] == "HorizontalPodAutoscaler default/web"
    shown = telemetry.render().decode()
    assert 'kubetide_compare_differences_total{component="hpa"} 1.0' in shown
    assert 'kubetide_compare_differing_objects{component="hpa"} 1.0' in shown


def test_a_difference_ends_when_upstream_decides_alike() -> None:
    async def scene(cluster: SimCluster) -> None:
        await status_of_hpa(cluster, 2)
        await cluster.run_for(timedelta(minutes=2))
        await status_of_hpa(cluster, 4)
        await cluster.run_for(timedelta(minutes=2))

    lines, _, asked, telemetry = watched("hpa", comparison, scene=scene)
    assert lines[-1] == "hpa: HorizontalPodAutoscaler default/web agrees again"
    assert asked["differences"] == []
    assert 'kubetide_compare_differing_objects{component="hpa"} 0.0' in telemetry.render().decode()


def test_another_recommendation_is_a_difference() -> None:
    async def scene(cluster: SimCluster) -> None:
        await recommend(cluster, "900m")
        await cluster.run_for(timedelta(minutes=10))

    lines, transport, asked, _ = watched("recommender", comparison, scene=scene)
    assert any("upstream recommends main cpu 900m" in line for line in lines), lines
    assert asked["differences"]
    assert transport.writes == []
    assert transport.refused == []


@pytest.mark.parametrize(
    ("recommended", "reason", "told"),
    [
        pytest.param("50m", "", "upstream leaves it alone, kubetide would evict it", id="upstream-does-not-act"),
        pytest.param("1", "EvictedByVPA", "upstream evicted it, kubetide would leave it alone", id="upstream-acts"),
        pytest.param(
            "50m", "InPlaceResizedByVPA", "upstream resized it in place, kubetide would evict it", id="otherwise"
        ),
        pytest.param("50m", "EvictedByVPA", "", id="alike"),
    ],
)
def test_what_the_updaters_do_is_compared(recommended: str, reason: str, told: str) -> None:
    async def scene(cluster: SimCluster) -> None:
        await recommend(cluster, recommended)
        await cluster.run_for(timedelta(minutes=2, seconds=30))
        if reason:
            pods = sorted(pod["metadata"]["name"] for pod in cluster.world.all(_pods(cluster), "default"))
            name = next(pod for pod in pods if pod.startswith("idle-"))
            event = {
                "metadata": {"name": f"{name}.1"},
                "involvedObject": {"kind": "Pod", "namespace": "default", "name": name},
                "reason": reason,
                "count": 1,
            }
            path = "/api/v1/namespaces/default/events"
            await cluster.client().request("POST", path, body=json.dumps(event).encode())
            await cluster.run_for(timedelta(minutes=1))
        else:
            await cluster.run_for(timedelta(minutes=10))

    lines, transport, *_ = watched(
        "updater", comparison, scene=scene, changes={"use_admission_controller_status": False}
    )
    assert any(told in line for line in lines) if told else lines == []
    assert transport.writes == []
    assert transport.refused == []


def _pods(cluster: SimCluster) -> Any:
    return next(each for each in cluster.api.registry.all() if each.plural == "pods" and not each.group).storage
