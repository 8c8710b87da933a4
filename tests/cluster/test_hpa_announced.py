"""Counts that a VPA announces for smaller pods, on a simulated cluster in virtual time."""

from datetime import timedelta

import pytest

from kubetide import crds
from kubetide.api.objects.coordination import (
    ANNOUNCEMENT_SECONDS,
    COORDINATION_ANNOTATION,
    CoordinationNote,
    note_text,
)
from kubetide.testing import Cluster, make_deployment, make_hpa, make_vpa, virtual_time

MINUTE = timedelta(minutes=1)


async def announced(cluster: Cluster, count: int, *, coordinate: bool = True, mode: str = "Auto") -> None:
    """Run three pods that need no fourth one, beside a VPA that is about to make them smaller."""
    await cluster.apply(crds.load("verticalpodautoscalers"))
    await cluster.apply(make_deployment("web", replicas=3, cpu="200m"))
    await cluster.apply(make_hpa("web", minimum=3, maximum=10, cpu_percent=50))
    note = CoordinationNote(sizes={"app": 200}, planned={"app": 100}, count=count, announced=_seconds(cluster))
    vpa = make_vpa("web", mode=mode)
    vpa["metadata"]["annotations"] = {COORDINATION_ANNOTATION: note_text(note)}
    await cluster.apply(vpa)
    cluster.set_load("web", 20)
    await cluster.start("hpa", hpa={"coordinate": coordinate})
    await cluster.run_for(5 * MINUTE)


def _seconds(cluster: Cluster) -> int:
    return int(cluster.now.timestamp())


def replicas(cluster: Cluster) -> int:
    return int(cluster.get("Deployment", "web")["spec"]["replicas"])


@virtual_time
async def test_an_announced_count_is_there_before_pods_shrink_and_is_explained() -> None:
    async with Cluster(nodes=2) as cluster:
        await announced(cluster, 6)
        assert replicas(cluster) == 6
        assert "smaller pods that the VPA announced" in str(cluster.get("HorizontalPodAutoscaler", "web")["status"])
        await cluster.patch(
            "VerticalPodAutoscaler", "web", {"metadata": {"annotations": {COORDINATION_ANNOTATION: None}}}
        )
        await cluster.run_for(7 * MINUTE)
        assert replicas(cluster) == 3


@virtual_time
async def test_an_autoscaler_at_rest_hears_of_an_announcement() -> None:
    async with Cluster(nodes=2) as cluster:
        await announced(cluster, 0)
        await cluster.run_for(20 * MINUTE)
        assert replicas(cluster) == 3
        note = CoordinationNote(sizes={"app": 200}, planned={"app": 100}, count=6, announced=_seconds(cluster))
        annotations = {COORDINATION_ANNOTATION: note_text(note)}
        await cluster.patch("VerticalPodAutoscaler", "web", {"metadata": {"annotations": annotations}})
        await cluster.run_for(MINUTE)
        assert replicas(cluster) == 6


@virtual_time
async def test_an_announcement_ends_with_whoever_made_it() -> None:
    async with Cluster(nodes=2) as cluster:
        await announced(cluster, 6)
        await cluster.run_for(timedelta(seconds=ANNOUNCEMENT_SECONDS) + 6 * MINUTE)
        assert replicas(cluster) == 3


@pytest.mark.parametrize(
    ("coordinate", "mode", "count"),
    [
        pytest.param(False, "Auto", 6, id="not-asked-for"),
        pytest.param(True, "Off", 6, id="nothing-is-resized"),
        pytest.param(True, "Auto", 2, id="fewer-than-the-load-takes"),
    ],
)
@virtual_time
async def test_a_count_is_the_autoscalers_own_otherwise(coordinate: bool, mode: str, count: int) -> None:
    async with Cluster(nodes=2) as cluster:
        await announced(cluster, count, coordinate=coordinate, mode=mode)
        assert replicas(cluster) == 3
