"""A resize in place, step by step."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_container, make_pod
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.policy import amounts
from kubetide.vpa.updater.core.resizing import ResizePhase, already_asked, changes_qos, resize_of

RESIZED = {"vpaInPlaceUpdated": "true"}
MORE_CPU = NewResources(name="main", requests=amounts({"cpu": "1"}))


def pod(*, reported: dict[str, Any] | None = None, condition: dict[str, str] | None = None, **given: Any) -> Pod:
    container = make_container(**given.pop("resources", {"cpu": "300m"}))
    raw = make_pod("web", containers=[container], **given)
    status = raw.setdefault("status", {})
    status["containerStatuses"] = [{"name": "main", "resources": reported}]
    status["conditions"] = [condition] if condition else []
    return convert(raw, Pod)


@pytest.mark.parametrize(
    ("subject", "phase"),
    [
        pytest.param(pod(), None, id="nobody-resizes-it"),
        pytest.param(
            pod(annotations=RESIZED, reported={"requests": {"cpu": "100m"}}), ResizePhase.PROPOSED, id="asked"
        ),
        pytest.param(pod(annotations=RESIZED, reported={"requests": {"cpu": "0.3"}}), ResizePhase.DONE, id="done"),
        pytest.param(
            pod(condition={"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no cpu"}),
            ResizePhase.DEFERRED,
            id="deferred",
        ),
        pytest.param(
            pod(condition={"type": "PodResizePending", "status": "True", "reason": "Infeasible"}),
            ResizePhase.INFEASIBLE,
            id="infeasible",
        ),
        pytest.param(
            pod(condition={"type": "PodResizeInProgress", "status": "True"}), ResizePhase.IN_PROGRESS, id="under-way"
        ),
    ],
)
def test_the_phase_is_read_off_the_pod(subject: Pod, phase: ResizePhase | None) -> None:
    found = resize_of(subject)
    assert (found.phase if found is not None else None) is phase
    assert found is None or found.reason


@pytest.mark.parametrize(
    ("resources", "new", "expected"),
    [
        pytest.param(
            {"cpu": "100m", "memory": "1Gi"},
            NewResources(name="main", requests=amounts({"cpu": "1"})),
            "",
            id="burstable",
        ),
        pytest.param({}, MORE_CPU, "BestEffort to Burstable", id="best-effort"),
        pytest.param(
            {"cpu": "1", "memory": "1Gi", "cpu_limit": "1", "memory_limit": "1Gi"},
            NewResources(name="main", requests=amounts({"cpu": "2"}), limits=amounts({"cpu": "2"})),
            "",
            id="guaranteed-with-its-limit",
        ),
        pytest.param(
            {"cpu": "1", "memory": "1Gi", "cpu_limit": "1", "memory_limit": "1Gi"},
            NewResources(name="main", requests=amounts({"cpu": "500m"})),
            "Guaranteed to Burstable",
            id="guaranteed-without",
        ),
    ],
)
def test_the_qos_class_is_for_life(resources: dict[str, str], new: NewResources, expected: str) -> None:
    assert changes_qos(pod(resources=resources), [new]) == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({"cpu": "1000m", "memory": "1Gi"}, True, id="written-another-way"),
        pytest.param({"cpu": "900m"}, False, id="another-amount"),
        pytest.param({"memory": "1Gi"}, False, id="not-written"),
    ],
)
def test_what_stands_in_the_spec_is_not_asked_for_again(resources: dict[str, str], expected: bool) -> None:
    assert already_asked(pod(resources=resources, reported={"requests": {"cpu": "100m"}}), [MORE_CPU]) is expected
