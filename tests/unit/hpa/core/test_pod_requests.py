"""What a pod is measured against: its containers, or the pod as a whole."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa_compat import HpaCompat, hpa_compat
from kubetide.api.values.codec import convert
from kubetide.hpa.core.pods import pod_requests
from kubetide.hpa.core.samples import ErrorKind, MetricFailure
from kubetide.hpa.slim import slim_pod

COMPAT = HpaCompat()


def container(name: str, cpu: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, **({"resources": {"requests": {"cpu": cpu}}} if cpu else {}), **more}


def pod(name: str = "web-0", *, init: tuple[Any, ...] = (), **spec: Any) -> Pod:
    raw = {"metadata": {"name": name}, "spec": {"containers": [container("app", "300m")], **spec}}
    raw["spec"]["initContainers"] = list(init)
    return convert(raw, Pod)


def whole(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod(**whole(cpu="2")), 2000, id="pod-level-request-replaces-the-sum"),
        pytest.param(pod(**whole(memory="1Gi")), 300, id="of-another-resource-the-containers-count"),
        pytest.param(
            pod(**whole(memory="1Gi"), init=(container("init", "900m"),)), 900, id="then-an-init-container-counts"
        ),
        pytest.param(pod(init=(container("init", "900m"),)), 300, id="otherwise-it-does-not"),
        pytest.param(
            pod(**whole(memory="1Gi"), init=(container("side", "100m", restartPolicy="Always"),)), 400, id="sidecar"
        ),
        pytest.param(pod(**whole(cpu="2"), overhead={"cpu": "250m"}), 2250, id="overhead-is-added"),
        pytest.param(pod(overhead={"cpu": "250m"}), 300, id="but-not-the-container-way"),
        pytest.param(pod(**whole(**{"ephemeral-storage": "1Gi"})), 300, id="unsupported-names-change-nothing"),
        pytest.param(
            pod(**whole(memory="1Gi"), containers=[container("a", "100u"), container("b", "100u")]),
            1,
            id="rounded-up-once",
        ),
        pytest.param(
            pod(**whole(memory="1Gi"), containers=[container("a", "1"), container("b")]),
            1000,
            id="a-container-without-a-request-is-fine",
        ),
    ],
)
def test_a_pod_sized_as_a_whole_is_measured_as_a_whole(given: Pod, expected: int) -> None:
    assert pod_requests([given], "cpu", COMPAT) == {"web-0": expected}
    assert pod_requests([slim_pod(given)], "cpu", COMPAT) == {"web-0": expected}, "the cache keeps what is needed"


def test_1_33_and_the_gate_look_at_containers_only() -> None:
    off = hpa_compat("1.37", [("PodLevelResources", False), ("InPlacePodLevelResourcesVerticalScaling", False)])
    for compat in (hpa_compat("1.33"), off):
        assert pod_requests([pod(**whole(cpu="2"))], "cpu", compat) == {"web-0": 300}


def test_a_pod_level_request_does_not_concern_a_single_container() -> None:
    assert pod_requests([pod(**whole(cpu="2"))], "cpu", COMPAT, "app") == {"web-0": 300}


def test_a_pod_that_asks_for_nothing_of_the_resource_fails_the_metric() -> None:
    with pytest.raises(MetricFailure, match="pod web-0 requests no cpu") as caught:
        pod_requests([pod(**whole(memory="1Gi"), containers=[container("app")])], "cpu", COMPAT)
    assert caught.value.kind is ErrorKind.MISSING_REQUEST


def test_a_container_that_not_every_pod_has_fails_the_metric_from_1_35_on() -> None:
    running = [pod("new", containers=[container("app", "1"), container("cache", "200m")]), pod("old")]
    with pytest.raises(MetricFailure, match="pod old has no container cache") as caught:
        pod_requests(running, "cpu", COMPAT, "cache")
    assert caught.value.kind is ErrorKind.CONTAINER_NOT_FOUND
    assert pod_requests(running, "cpu", hpa_compat("1.34"), "cache") == {"new": 200, "old": 0}
