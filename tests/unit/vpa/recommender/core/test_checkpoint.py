from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.stats.instants import microseconds
from kubetide.vpa.core.scope import checkpoint_name
from kubetide.vpa.recommender.core.checkpoint import (
    LONGEST_WINDOWS,
    WINDOWS_ANNOTATION,
    Checkpoint,
    UnreadableCheckpoint,
    checkpoints,
    read_checkpoint,
    status_body,
    windows_text,
)
from kubetide.vpa.recommender.core.entities import Mark, Restored, VpaState, Window
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, recommend
from kubetide.vpa.recommender.core.trace import trace, trace_from_checkpoints
from kubetide.vpa.recommender.explain import render

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MIB = 2**20


def learned(hours: int = 30) -> tuple[Model, VpaState]:
    """Return a model that watched two pods for a while."""
    model = Model()
    state = model.set_vpa(
        VpaState(ObjectKey("shop", "web"), parse_selector("app=web"), created=NOW), keep_history=False
    )
    rows = []
    for name in ("a", "b"):
        model.set_pod(ObjectKey("shop", name), {"app": "web"}, "Running", now=NOW, uid=f"uid-{name}")
        rows.append(model.set_container(ObjectKey("shop", name), "main", now=NOW))
    for minute in range(0, hours * 60, 5):
        at = np.full(2, microseconds(NOW - timedelta(hours=hours) + timedelta(minutes=minute)))
        model.containers.add_cpu(np.array(rows), at, np.array([100 + minute % 400, 300]))
        model.containers.add_memory(np.array(rows), at, np.array([200, 300 + minute % 100]) * MIB)
    return model, state


def stored(one: Checkpoint, *, annotation: str | None = None) -> VerticalPodAutoscalerCheckpoint:
    raw: dict[str, Any] = {
        "metadata": {"namespace": "shop", "name": checkpoint_name("web", one.container)},
        "spec": {"vpaObjectName": "web", "containerName": one.container},
        "status": status_body(one, now=NOW),
    }
    text = windows_text(one, now=NOW) if annotation is None else annotation
    raw["metadata"]["annotations"] = {WINDOWS_ANNOTATION: text}
    return convert(msgspec.json.decode(msgspec.json.encode(raw)), VerticalPodAutoscalerCheckpoint)


def test_what_is_written_can_be_read_back() -> None:
    model, state = learned()
    one = checkpoints(model, [state], now=NOW)["shop/web"][0]
    again = read_checkpoint(stored(one))
    assert again.cpu.weights == one.cpu.weights
    assert again.memory.weights == one.memory.weights
    assert again.cpu.total == one.cpu.total
    assert (again.first, again.last, again.count) == (one.first, one.last, one.count)
    assert again.windows == one.windows
    assert {window.pod for window in again.windows} == {"a", "b"}
    assert again.with_windows


def test_the_format_is_that_of_upstream() -> None:
    model, state = learned()
    body = status_body(checkpoints(model, [state], now=NOW)["shop/web"][0], now=NOW)
    assert body["version"] == "v3"
    assert body["lastUpdateTime"] == "2026-03-04T12:00:00Z"
    assert body["totalSamplesCount"] == 720
    assert set(body["cpuHistogram"]) == {"referenceTimestamp", "bucketWeights", "totalWeight"}
    assert max(body["cpuHistogram"]["bucketWeights"].values()) == 10000
    assert all(isinstance(bucket, str) for bucket in body["cpuHistogram"]["bucketWeights"])


def test_peaks_of_open_windows_are_not_saved_twice() -> None:
    model, state = learned(hours=2)
    one = checkpoints(model, [state], now=NOW)["shop/web"][0]
    assert one.memory.weights == {}
    assert len(one.windows) == 2
    later = checkpoints(model, [state], now=NOW + timedelta(days=2))["shop/web"][0]
    assert later.memory.weights != {}
    assert later.windows == ()


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param("", id="none"),
        pytest.param("{", id="no-json"),
        pytest.param('{"at":"2026-03-04T11:00:00Z","windows":[["a","u",1,2.0,0.0,1,1]]}', id="of-another-writing"),
        pytest.param('{"at":"2026-03-04T12:00:00Z","windows":[["a"]]}', id="of-another-shape"),
        pytest.param("[]", id="a-list"),
    ],
)
def test_windows_that_do_not_belong_are_ignored(annotation: str) -> None:
    model, state = learned()
    one = checkpoints(model, [state], now=NOW)["shop/web"][0]
    again = read_checkpoint(stored(one, annotation=annotation))
    assert again.windows == ()
    assert not again.with_windows


def test_a_checkpoint_knows_older_kills_but_not_those_of_windows_that_did_not_come_along() -> None:
    day, second = timedelta(days=1), timedelta(seconds=1)
    ours, theirs = Restored(NOW, with_windows=True), Restored(NOW, with_windows=False)
    assert ours.knows(NOW, day)
    assert not ours.knows(NOW + second, day)
    assert theirs.knows(NOW - day, day)
    assert not theirs.knows(NOW - day + second, day)
    assert not Restored(None, with_windows=False).knows(NOW, day)


def test_too_many_windows_stay_behind() -> None:
    model, state = learned()
    one = checkpoints(model, [state], now=NOW)["shop/web"][0]
    many = tuple(Window(f"pod-{i}" * 5, "u" * 36, 1, 2.0, 0.0, 1, 1) for i in range(LONGEST_WINDOWS // 60))
    crowded = Checkpoint(container="main", cpu=one.cpu, memory=one.memory, first=1, last=2, count=3, windows=many)
    assert windows_text(crowded, now=NOW) == ""


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(None, id="no-status"),
        pytest.param({"version": "v2"}, id="another-version"),
        pytest.param({"version": "v3", "cpuHistogram": {"bucketWeights": {"x": 1}}}, id="bucket-that-is-no-number"),
        pytest.param({"version": "v3", "cpuHistogram": {"bucketWeights": {"1": "many"}}}, id="weight-that-is-a-text"),
        pytest.param({"version": "v3", "memoryHistogram": {"bucketWeights": {"1": -4}}}, id="negative-weight"),
        pytest.param({"version": "v3", "cpuHistogram": {"bucketWeights": {"1": 1.5}}}, id="fraction"),
    ],
)
def test_a_checkpoint_that_makes_no_sense_is_unreadable_and_reports_why(status: Any) -> None:
    raw = {"metadata": {"namespace": "shop", "name": "web-main"}, "status": status}
    with pytest.raises(UnreadableCheckpoint, match="checkpoint shop/web-main"):
        read_checkpoint(convert(raw, VerticalPodAutoscalerCheckpoint))


def test_the_trace_ends_in_the_recommendation() -> None:
    model, state = learned()
    found = recommend(model, [state], Options())[state.key][0]
    told = trace(model, state, Options(), now=NOW)
    container = told["containers"][0]
    for bound, amounts in (("target", found.target), ("lower", found.lower), ("upper", found.upper)):
        assert amounts is not None
        assert container["resources"]["cpu"]["bounds"][bound]["result"] == amounts["cpu"].milli
        assert container["resources"]["memory"]["bounds"][bound]["result"] == amounts["memory"].value
    assert sum(share for _, _, share in container["resources"]["cpu"]["histogram"]) == pytest.approx(1.0)
    msgspec.json.encode(told)


def test_a_trace_can_be_made_from_checkpoints_alone() -> None:
    model, state = learned()
    objects = [stored(one) for one in checkpoints(model, [state], now=NOW)["shop/web"]]
    spec = {"targetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}
    vpa = convert({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}, VerticalPodAutoscaler)
    told = trace_from_checkpoints(vpa, objects, now=NOW)
    live = trace(model, state, Options(), now=NOW)
    assert told["source"] == "checkpoints"
    assert told["containers"][0]["resources"]["cpu"]["bounds"] == live["containers"][0]["resources"]["cpu"]["bounds"]
    bad = convert({"metadata": {"name": "web-x"}, "spec": {"vpaObjectName": "web"}}, VerticalPodAutoscalerCheckpoint)
    assert "web-x" in trace_from_checkpoints(vpa, [bad], now=NOW)["problems"][0]


def test_the_explanation_shows_every_step() -> None:
    model, state = learned()
    text = render(trace(model, state, Options(), now=NOW))
    for part in ("VerticalPodAutoscaler shop/web", "container main", "720 CPU samples", "p90 in bucket", "◀ target"):
        assert part in text
    assert "+15%" in text


def test_a_container_without_samples_is_explained_too() -> None:
    model = Model()
    state = model.set_vpa(VpaState(ObjectKey("shop", "web"), parse_selector("app=web")), keep_history=False)
    assert "no container has been seen yet" in render(trace(model, state, Options(), now=NOW))
    model.set_pod(ObjectKey("shop", "a"), {"app": "web"}, "Running", now=NOW)
    model.set_container(ObjectKey("shop", "a"), "main", now=NOW)
    text = render(trace(model, state, Options(), now=NOW))
    assert "no CPU sample yet" in text
    assert "no samples → minimum 25m" in text


def test_what_is_stored_already_and_does_not_run_is_not_made_again() -> None:
    model, state = learned()
    later = NOW + timedelta(days=2)
    for pod in ("a", "b"):
        model.set_container(ObjectKey("shop", pod), "silent", now=NOW)
    (first, second) = checkpoints(model, [state], now=later)["shop/web"]
    marks = {(state.key, one.container): one.mark for one in (first, second)}

    def known(vpa: ObjectKey, container: str, mark: Mark) -> bool:
        return marks.get((vpa, container)) == mark

    assert checkpoints(model, [state], now=later, stored=known)["shop/web"] == []
    # An open window always counts as new: its peak may have grown.
    assert [one.container for one in checkpoints(model, [state], now=NOW, stored=known)["shop/web"]] == ["main"]
    row = model.pods[ObjectKey("shop", "a")].containers["silent"]
    model.containers.add_cpu(np.array([row]), np.array([microseconds(later)]), np.array([5]))
    (changed,) = checkpoints(model, [state], now=later, stored=known)["shop/web"]
    assert changed == checkpoints(model, [state], now=later)["shop/web"][1]


@pytest.mark.parametrize("bucket", ["--5", "²", "", "-", "5.0", "9" * 30])
def test_a_bucket_that_is_no_number_makes_a_checkpoint_unreadable(bucket: str) -> None:
    model, state = learned()
    (one,) = checkpoints(model, [state], now=NOW)["shop/web"]
    given = stored(one)
    assert given.status is not None
    assert given.status.cpu_histogram is not None
    assert given.status.cpu_histogram.bucket_weights is not None
    given.status.cpu_histogram.bucket_weights[bucket] = 7
    with pytest.raises(UnreadableCheckpoint, match="bucket"):
        read_checkpoint(given)


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        pytest.param({"app": "web", "rev": "1"}, ["a"], id="labels-of-the-same-vpa"),
        pytest.param({"app": "other"}, [], id="labels-of-another-vpa"),
    ],
)
def test_a_relabelled_container_takes_its_window_along_only_where_its_peak_is_known(
    before: dict[str, str], kept: list[str]
) -> None:
    model = Model()
    state = model.set_vpa(
        VpaState(ObjectKey("shop", "web"), parse_selector("app=web"), created=NOW), keep_history=False
    )
    pod = ObjectKey("shop", "a")
    model.set_pod(pod, before, "Running", now=NOW, uid="uid-a")
    row = model.set_container(pod, "main", now=NOW)
    model.containers.add_memory(np.array([row]), np.array([microseconds(NOW)]), np.array([300 * MIB]))
    model.set_pod(pod, {"app": "web"}, "Running", now=NOW, uid="uid-a")
    (one,) = checkpoints(model, [state], now=NOW)["shop/web"]
    assert [window.pod for window in one.windows] == kept
    # Once the peak grows it lies with the present labels.
    later = NOW + timedelta(hours=1)
    model.containers.add_memory(np.array([row]), np.array([microseconds(later)]), np.array([400 * MIB]))
    (one,) = checkpoints(model, [state], now=later)["shop/web"]
    assert [(window.pod, window.peak) for window in one.windows] == [("a", 400 * MIB)]
