"""Taking over from another release is worth a warning."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.handover import (
    AtWork,
    compare_deployed,
    deployed,
    difference,
    image_version,
    in_cluster,
    release_of,
    running,
)
from kubetide.testing.builders import make_deployment
from simulated.cluster import run


@asynccontextmanager
async def fail_requests(cluster: SimCluster) -> AsyncIterator[None]:
    handle = cluster.api.handle

    async def refusing(request: Request) -> Answer | WatchPlan:
        return Answer(403, b'{"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}')

    cluster.api.handle = refusing  # type: ignore[method-assign]
    yield
    cluster.api.handle = handle  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("version", "follows", "told"),
    [
        pytest.param("v1.37.1", "1.37", "", id="patch-releases-are-the-same"),
        pytest.param("v1.38.0-alpha.0", "1.37", "", id="releases-that-behave-alike"),
        pytest.param("v1.34.2+k3s1", "1.37", "it is 1.34, kubetide follows 1.37", id="older"),
        pytest.param("nightly", "1.37", "it is nightly, kubetide follows 1.37", id="no-version"),
        pytest.param("", "1.37", "", id="nothing-known"),
    ],
)
def test_a_difference_is_named(version: str, follows: str, told: str) -> None:
    assert difference(AtWork("it", version), follows, alike=("1.37", "1.38")) == told
    assert difference(None, follows) == ""


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/autoscaling/vpa-recommender:1.7.1", "1.7.1"),
        ("localhost:5000/koord-manager:v1.8.0", "v1.8.0"),
        ("localhost:5000/koord-manager", ""),
        ("koord-manager:v1.8.0@sha256:0123", "v1.8.0"),
        ("vpa-updater:latest", ""),
        ("vpa-updater@sha256:0123", ""),
    ],
)
def test_the_tag_of_an_image_is_its_version(image: str, version: str) -> None:
    assert image_version(image) == version
    assert bool(release_of(version)) is bool(version)


def test_a_deployment_tells_what_was_at_work_even_when_it_is_scaled_to_zero() -> None:
    async def main(cluster: SimCluster) -> None:
        client = cluster.client()

        async def told() -> str:
            names = {"program": "vpa-updater", "namespace": "kube-system"}
            return await compare_deployed(client, "updater", follows="1.7", **names)

        assert await told() == "", "nothing ran before"
        upstream = make_deployment("updater", "kube-system", replicas=0)
        upstream["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.k8s.io/vpa-updater:1.6.0"
        await cluster.apply(upstream)
        assert await told() == "Deployment kube-system/updater is 1.6, kubetide follows 1.7"
        upstream["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.k8s.io/vpa-updater@sha256:01"
        upstream["metadata"]["labels"]["app.kubernetes.io/version"] = "1.7.1"
        await cluster.apply(upstream)
        found = await deployed(client, "vpa-updater", "kube-system")
        assert found == AtWork("Deployment kube-system/updater", "1.7.1")
        assert await told() == ""
        async with fail_requests(cluster):
            assert await told() == "", "what cannot be read is no difference"
            assert await in_cluster(client) is None

    run(main)


def test_built_in_controllers_are_of_the_release_of_the_cluster() -> None:
    async def main(cluster: SimCluster) -> None:
        found = await in_cluster(cluster.client())
        assert found is not None
        assert release_of(found.version)

    run(main)


def pod(name: str, *images: str, phase: str = "Running", **meta: Any) -> Pod:
    containers = [{"name": str(number), "image": image} for number, image in enumerate(images)]
    raw = {"metadata": {"name": name, "namespace": "k", **meta}, "spec": {"containers": containers}}
    return convert({**raw, "status": {"phase": phase}}, Pod)


def test_only_a_pod_that_runs_the_program_is_at_work() -> None:
    others = [
        pod("ended", "r/koordlet:v1.4.0", phase="Succeeded"),
        pod("leaving", "r/koordlet:v1.4.0", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("other", "r/koordlet-tools:v1.4.0"),
    ]
    assert running(others, "koordlet") is None
    both = [pod("b", "proxy:v9", "r/koordlet:v1.6.2"), pod("a", "r:5000/x/koordlet:v1.7.0@sha256:ab"), *others]
    assert running(both, "koordlet") == AtWork("pod k/a", "v1.7.0")
