"""The checker itself: it finds every offence, and nothing in what is fine."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drills.audit import Event, FileRecorder, Recorder, read
from drills.checker import Doubt, Findings, judge
from kubetide.clock import SystemClock

START = datetime(2026, 1, 5, tzinfo=UTC)


def event(second: float, user: str, verb: str, kind: str, name: str, body: Any = None, code: int = 200) -> Event:
    resource, _, subresource = kind.partition("/")
    group = {"pods.metrics": "metrics.k8s.io", "queue": "external.metrics.k8s.io"}.get(resource, "")
    return Event(
        at=START + timedelta(seconds=second),
        user=user,
        verb=verb,
        code=code,
        group=group,
        resource=resource.removesuffix(".metrics"),
        subresource=subresource,
        namespace="shop",
        name=name,
        body=body,
    )


def scale(second: float, replicas: int, user: str = "kubetide-hpa-1") -> Event:
    return event(second, user, "update", "deployments/scale", "web", {"spec": {"replicas": replicas}})


def made(replicas: int) -> Event:
    return event(0, "admin", "create", "deployments", "web", {"spec": {"replicas": replicas}}, 201)


def hpa(*metrics: dict[str, Any]) -> Event:
    target = {"kind": "Deployment", "name": "web"}
    return event(
        0,
        "admin",
        "create",
        "horizontalpodautoscalers",
        "web",
        {"spec": {"scaleTargetRef": target, "metrics": metrics}},
    )


QUEUE = {"type": "External", "external": {"metric": {"name": "queue"}}}
CPU = {"type": "Resource", "resource": {"name": "cpu"}}


def reading(second: float, code: int = 200, kind: str = "queue") -> Event:
    return event(second, "kubetide-hpa-1", "list", kind, "", code=code)


def evict(second: float, uid: str = "u1", name: str = "web-a", user: str = "kubetide-updater-1") -> Event:
    return event(second, user, "create", "pods/eviction", name, {"deleteOptions": {"preconditions": {"uid": uid}}}, 201)


def resize(second: float, cpu: str, uid: str = "u1") -> Event:
    ops = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": cpu},
    ]
    return event(second, "kubetide-updater-1", "patch", "pods/resize", "web-a", ops)


def lease(second: float, user: str, holder: str = "me") -> Event:
    return event(second, user, "update", "leases", "kubetide-hpa", {"spec": {"holderIdentity": holder}})


def checkpoint(second: float, count: int, verb: str = "patch") -> Event:
    ops = [{"op": "add", "path": "/status", "value": {"totalSamplesCount": count}}]
    body: Any = ops if verb == "patch" else {"spec": {"vpaObjectName": "web"}, "status": ops[0]["value"]}
    return event(second, "kubetide-recommender-1", verb, "verticalpodautoscalercheckpoints", "web-main", body)


def recommendation(second: float, cpu: str | None, user: str = "kubetide-recommender-1") -> Event:
    listed = [] if cpu is None else [{"containerName": "main", "target": {"cpu": cpu}}]
    value = {"recommendation": {"containerRecommendations": listed}}
    return event(
        second,
        user,
        "patch",
        "verticalpodautoscalers/status",
        "web",
        [{"op": "add", "path": "/status", "value": value}],
    )


def doubt(start: float, end: float, **about: str) -> Doubt:
    return Doubt(start=START + timedelta(seconds=start), end=START + timedelta(seconds=end), why="nobody knew", **about)


FINE = {
    "a-count-that-grows": [made(2), hpa(QUEUE), scale(5, 4)],
    "a-count-that-falls-after-its-metric-was-read": [made(4), hpa(QUEUE), reading(4), scale(5, 2)],
    "usage-of-the-whole-namespace": [made(4), hpa(CPU), reading(4, kind="pods.metrics"), scale(5, 2)],
    "a-reading-that-failed-and-then-succeeded": [made(4), hpa(QUEUE), reading(3, 500), reading(4), scale(5, 2)],
    "a-count-that-comes-back": [made(2), scale(5, 4), scale(9, 6), scale(15, 4), reading(1)],
    "a-scale-that-was-refused": [
        made(2),
        event(5, "kubetide-hpa-1", "update", "deployments/scale", "web", {"spec": {"replicas": 2}}, 409),
    ],
    "two-pods-of-one-name": [evict(1), evict(9, "u2")],
    "another-size": [resize(1, "100m"), resize(9, "200m")],
    "the-same-size-for-the-next-pod": [resize(1, "100m"), resize(9, "100m", "u2")],
    "a-lease-that-changed-hands": [
        made(2),
        lease(1, "kubetide-hpa-1"),
        scale(2, 3),
        lease(9, "kubetide-hpa-2"),
        scale(10, 4, "kubetide-hpa-2"),
    ],
    "a-lease-that-upstream-gave-back": [
        made(2),
        lease(1, "kubetide-hpa-1"),
        lease(5, "upstream"),
        scale(6, 3, "upstream"),
        lease(9, "kubetide-hpa-1"),
        scale(10, 4),
    ],
    "samples-that-add-up": [checkpoint(1, 10), checkpoint(2, 10), checkpoint(3, 11)],
    "a-checkpoint-whose-vpa-is-gone": [
        checkpoint(1, 10, "create"),
        event(2, "admin", "delete", "verticalpodautoscalers", "web"),
        event(3, "kubetide-recommender-1", "delete", "verticalpodautoscalercheckpoints", "web-main"),
    ],
    "what-people-do": [made(4), scale(5, 1, "admin"), evict(6, user="admin"), evict(7, user="admin")],
}


@pytest.mark.parametrize("log", FINE.values(), ids=FINE)
def test_what_is_fine_is_not_an_offence(log: list[Event]) -> None:
    assert judge(sorted(log, key=lambda each: each.at)).offences == []


LOST = {
    "a-field-of-others": [
        event(1, "kubetide-updater-1", "patch", "pods", "web-a", {"metadata": {"labels": {"app": "x"}}})
    ],
    "a-field-of-others-by-json-patch": [
        event(
            1,
            "kubetide-recommender-1",
            "patch",
            "verticalpodautoscalers/status",
            "web",
            [{"op": "remove", "path": "/spec/targetRef"}],
        )
    ],
    "an-object-that-is-none-of-its-business": [event(1, "kubetide-hpa-1", "patch", "services", "web", {"spec": {}})],
    "a-workload-instead-of-its-scale": [
        event(1, "kubetide-hpa-1", "patch", "deployments", "web", {"spec": {"replicas": 3}})
    ],
    "an-object-replaced-blindly": [
        event(1, "kubetide-node-1", "update", "noderesourcetopologies", "n", {"metadata": {}})
    ],
    "a-checkpoint-whose-vpa-is-there": [
        checkpoint(1, 10, "create"),
        event(3, "kubetide-recommender-1", "delete", "verticalpodautoscalercheckpoints", "web-main"),
    ],
    "a-nodemetric-whose-node-is-there": [event(3, "kubetide-slo-1", "delete", "nodemetrics", "node-1")],
    "samples": [checkpoint(1, 10), checkpoint(2, 9)],
    "a-recommendation": [recommendation(1, "100m"), recommendation(2, None)],
    "a-recommendation-of-upstream": [recommendation(1, "100m", "upstream"), recommendation(2, None)],
}


@pytest.mark.parametrize("log", LOST.values(), ids=LOST)
def test_what_is_lost_is_found(log: list[Event]) -> None:
    assert kinds(judge(log)) == "lost"


TWICE = {
    "an-eviction": [evict(1), evict(2)],
    "an-eviction-by-another-replica": [evict(1), evict(2, user="kubetide-updater-2")],
    "an-eviction-after-the-agent's": [evict(1, user="kubetide-node-1"), evict(2)],
    "a-count": [made(2), scale(1, 4), scale(2, 4)],
    "a-count-that-was-made-so": [made(2), scale(1, 2)],
    "a-size": [resize(1, "100m"), resize(2, "100m")],
    "a-write-of-a-replica-that-lost-its-lease": [lease(1, "kubetide-hpa-1"), lease(9, "kubetide-hpa-2"), scale(10, 4)],
    "a-write-while-upstream-holds-the-lease": [lease(1, "kubetide-hpa-1"), lease(9, "upstream"), scale(10, 4)],
    "a-write-after-the-lease-was-given-back": [
        lease(1, "kubetide-hpa-1"),
        lease(9, "kubetide-hpa-1", ""),
        scale(10, 4),
    ],
}


@pytest.mark.parametrize("log", TWICE.values(), ids=TWICE)
def test_what_is_done_twice_is_found(log: list[Event]) -> None:
    assert kinds(judge(log)) == "twice"


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([made(4), hpa(QUEUE), reading(1), reading(4, 503), scale(5, 2)], id="the-newest-reading-failed"),
        pytest.param([made(4), hpa(QUEUE), scale(5, 2)], id="nothing-was-read"),
        pytest.param([made(4), hpa(QUEUE, CPU), reading(4), scale(5, 2)], id="one-of-two-metrics-was-not-read"),
    ],
)
def test_a_count_that_falls_on_a_failed_reading_is_found(log: list[Event]) -> None:
    assert kinds(judge(log)) == "on doubt"


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([made(4), hpa(QUEUE), reading(4), scale(5, 2)], id="a-count"),
        pytest.param([scale(5, 2)], id="a-count-that-nobody-knows"),
        pytest.param([evict(5)], id="an-eviction"),
        pytest.param([resize(5, "100m")], id="a-size-that-nobody-knows"),
        pytest.param([resize(1, "200m"), resize(5, "100m")], id="a-size"),
        pytest.param([recommendation(1, "200m"), recommendation(5, "100m")], id="a-recommendation"),
    ],
)
def test_what_shrinks_while_nobody_knows_is_found(log: list[Event]) -> None:
    assert kinds(judge(log, doubts=[doubt(3, 9)])) == "on doubt"
    assert judge(log, doubts=[doubt(6, 9)]).offences == []
    assert judge(log, doubts=[doubt(3, 9, namespace="bank")]).offences == []
    assert judge(log, doubts=[doubt(3, 9, name="shop")]).offences == []


def test_what_grows_while_nobody_knows_is_fine() -> None:
    log = [
        made(2),
        resize(1, "100m"),
        recommendation(1, "100m"),
        scale(5, 4),
        resize(5, "200m"),
        recommendation(5, "200m"),
    ]
    assert judge(log, doubts=[doubt(3, 9)]).offences == []


def test_a_server_that_went_back_may_be_told_again() -> None:
    log = [made(2), scale(1, 4), checkpoint(2, 10), evict(3), evict(9), scale(9, 4), checkpoint(9, 5)]
    assert len(judge(log).offences) == 3
    assert judge(log, restored=[START + timedelta(seconds=8)]).offences == []


def test_writes_and_acts_are_counted() -> None:
    found = judge(
        [made(2), lease(1, "kubetide-hpa-1"), scale(2, 4), checkpoint(3, 1), evict(4), evict(5, user="admin")]
    )
    assert (found.writes, found.acts) == (3, 2)


def test_a_log_is_read_from_lines() -> None:
    line = {
        "requestURI": "/apis/apps/v1/namespaces/shop/deployments/web/scale",
        "verb": "update",
        "user": {"username": "kubetide-hpa-1"},
        "objectRef": {
            "resource": "deployments",
            "subresource": "scale",
            "namespace": "shop",
            "name": "web",
            "apiGroup": "apps",
        },
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-01-05T00:00:05.000000Z",
        "requestObject": {"spec": {"replicas": 3}},
    }
    dry = {**line, "requestURI": f"{line['requestURI']}?dryRun=All"}
    other = {**line, "objectRef": None}
    assert read([msgspec.json.encode(each) for each in (line, dry, other)] + [b"\n"]) == [
        msgspec.structs.replace(scale(5, 3), group="apps")
    ]


def kinds(found: Findings) -> str:
    """Return the kind of offence, if there is exactly one."""
    assert len(found.offences) == 1, found.offences
    return found.offences[0].partition(":")[0]


def test_a_log_on_disk_is_judged_as_one_in_memory(tmp_path: Path) -> None:
    on_disk, in_memory = FileRecorder(SystemClock(), tmp_path / "log"), Recorder(SystemClock())
    assert judge(on_disk).writes == 0
    for recorder in (on_disk, in_memory):
        for each in (made(3), hpa(QUEUE), reading(1, 503), scale(2, 2)):
            recorder.keep(each)
    assert list(map(str, on_disk)) == list(map(str, in_memory))
    assert judge(on_disk) == judge(in_memory)
    assert kinds(judge(on_disk)) == "on doubt"
