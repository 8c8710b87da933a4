"""When and how pods may be disturbed: what is wrong with the annotations, and what a rollout waits for."""

from datetime import UTC, datetime, timedelta

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_pod, make_vpa
from kubetide.vpa.updater.core.disturbing import problems_of, why_not_now

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def made(age: timedelta, *, ready: bool = True, marks: tuple[str, ...] = ()) -> Pod:
    raw = make_pod("web-0")
    raw["metadata"]["creationTimestamp"] = (NOW - age).isoformat().replace("+00:00", "Z")
    raw["metadata"]["annotations"] = dict.fromkeys(marks, "x")
    raw["status"] = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return convert(raw, Pod)


ROLLED, PATCHED = "kubetide.io/restartedAt", "vpaObservedContainers"
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("pod", "last", "why"),
    [
        pytest.param(made(2 * HOUR), None, "", id="may-begin"),
        pytest.param(made(2 * HOUR), 0.5, "less than an hour ago", id="once-an-hour"),
        pytest.param(made(HOUR / 12), None, "younger than ten minutes", id="one-is-under-way"),
        pytest.param(made(2 * HOUR, ready=False), None, "not ready", id="other-trouble"),
        pytest.param(made(2 * HOUR, marks=(ROLLED, PATCHED)), 2, "", id="the-last-one-brought-the-recommendation"),
        pytest.param(made(2 * HOUR, marks=(ROLLED,)), 2, "without the recommendation", id="the-webhook-is-not-called"),
        pytest.param(made(2 * HOUR, marks=(ROLLED,)), None, "without the recommendation", id="known-after-a-restart"),
        pytest.param(made(25 * HOUR, marks=(ROLLED,)), 25, "", id="tried-again-after-a-day"),
    ],
)
def test_what_a_rollout_waits_for(pod: Pod, last: float | None, why: str) -> None:
    found = why_not_now([pod], None if last is None else NOW - last * HOUR, now=NOW)
    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("annotations", "kind", "problems"),
    [
        pytest.param({}, "Deployment", [], id="none"),
        pytest.param({"update-windows": "0 2 * * * 3h", "update-by": "rollout"}, "Deployment", [], id="both"),
        pytest.param({"update-windows": "0 2 * * *"}, "Deployment", ["update-windows: '0 2 * * *'"], id="no-duration"),
        pytest.param({"update-by": "rollout"}, "StatefulSet", ["update-by: only a Deployment"], id="no-deployment"),
        pytest.param(
            {"update-windows": "x 1h", "update-by": "magic"},
            "Deployment",
            ["update-by: 'magic'", "update-windows: 'x'"],
            id="both-wrong",
        ),
    ],
)
def test_what_is_wrong_with_annotations(annotations: dict[str, str], kind: str, problems: list[str]) -> None:
    raw = make_vpa("web", target="web", kind=kind)
    raw["metadata"]["annotations"] = {f"kubetide.io/{name}": value for name, value in annotations.items()}
    found = problems_of(convert(raw, VerticalPodAutoscaler))
    assert len(found) == len(problems)
    for text, start in zip(found, problems, strict=True):
        assert text.startswith(f"annotation kubetide.io/{start}")
