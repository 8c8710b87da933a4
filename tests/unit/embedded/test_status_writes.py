"""Writes of a status: only that changes, what cannot have changed is not judged again, and nobody is asked in vain."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from kubetide.embedded.apiserver.admission.calls import AdmissionCall, Steps
from kubetide.embedded.apiserver.apply import managers
from kubetide.embedded.apiserver.rest import strategy
from kubetide.embedded.apiserver.rest.requests import Answer, Request, parse_target
from kubetide.embedded.apiserver.rest.status import StatusError
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.testing.builders import make_hpa

Raw = dict[str, Any]
PATH = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
HOOKS: Raw = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "hooks"},
    "webhooks": [{"name": "hook.example.com", "clientConfig": {"url": "local://hook"}}],
}


def make_api() -> ApiServer:
    async def main() -> ApiServer:
        api = ApiServer(clock=virtual_clock())
        api.insert(make_hpa("web", namespace="default", target="web"))
        return api

    return run_virtual(main())


def write(api: ApiServer, **parts: Any) -> Steps:
    body: Raw = {"metadata": {}, "status": {"currentReplicas": 3, "desiredReplicas": 3}, **parts}
    request = Request("PUT", PATH, body=msgspec.json.encode(body), user_agent="kubetide/1")
    target = parse_target(PATH)
    assert target is not None
    return api.verbs.write(request, target)


def finished(steps: Steps) -> Raw:
    """Return the answer of a write that puts no question."""
    with pytest.raises(StopIteration) as end:
        next(steps)
    answer: Answer = end.value.value
    written: Raw = msgspec.json.decode(answer.body)
    return written


def test_a_write_puts_no_question_where_there_is_nobody_to_answer() -> None:
    assert finished(write(make_api()))["status"]["currentReplicas"] == 3


def test_a_write_asks_as_soon_as_there_is_a_webhook() -> None:
    api = make_api()
    api.insert(HOOKS)
    call = next(write(api))
    assert isinstance(call, AdmissionCall)
    assert (call.operation, call.subresource, call.name) == ("UPDATE", "status", "web")


def test_a_write_changes_the_status_and_labels_and_nothing_else() -> None:
    api = make_api()
    before = finished(write(api))
    metadata = {"labels": {"a": "b"}, "finalizers": ["x.example.com/y"], "ownerReferences": [], "generation": 7}
    after = finished(write(api, metadata=metadata, spec={"maxReplicas": 99}, status={"currentReplicas": 4}))
    assert after["spec"] == before["spec"]
    assert after["status"] == {"currentReplicas": 4}
    assert after["metadata"]["labels"] == {"a": "b"}
    assert after["metadata"].keys() - before["metadata"].keys() == {"labels"}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        pytest.param({"labels": {"-": "x"}}, 422, id="key"),
        pytest.param({"labels": {"a": ["b"]}}, 400, id="type"),
        pytest.param({"annotations": {"a": 1}}, 400, id="annotation"),
    ],
)
def test_labels_are_judged_when_they_change(metadata: Raw, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        next(write(make_api(), metadata=metadata))
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("status", "field"),
    [
        pytest.param({"currentReplicas": -1}, "status.currentReplicas", id="count"),
        pytest.param(
            {"currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "x"}}}]},
            "status.currentMetrics[0]",
            id="quantity",
        ),
    ],
)
def test_a_status_is_judged_on_every_write(status: Raw, field: str) -> None:
    api = make_api()
    finished(write(api))
    with pytest.raises(StatusError, match="is invalid") as refused:
        next(write(api, status=status))
    assert [cause.field for cause in refused.value.causes] == [field]


def test_a_null_in_a_status_says_nothing() -> None:
    status = {"currentReplicas": None, "conditions": None, "currentMetrics": None, "lastScaleTime": None}
    assert finished(write(make_api(), status=status))["status"] == status


def test_the_same_writer_is_noted_once_and_another_way_apart() -> None:
    api = make_api()
    finished(write(api))
    written = finished(write(api, status={"currentReplicas": 5}))
    noted = [(each["manager"], each.get("subresource")) for each in written["metadata"]["managedFields"]]
    assert noted == [("kubetide", "status")]
    resource = api.verbs.resolve(parse_target(PATH))  # type: ignore[arg-type]
    new: Raw = {"metadata": {}}
    now = datetime(2026, 1, 5, tzinfo=UTC)
    managers.record(resource, Request("PUT", PATH, user_agent="kubetide/2"), new, written, now=now)
    noted = [(each["manager"], each.get("subresource")) for each in new["metadata"]["managedFields"]]
    assert noted == [("kubetide", "status"), ("kubetide", None)]


def test_a_time_is_told_in_whole_seconds_of_utc_wherever_it_was_taken() -> None:
    here = datetime(2026, 1, 5, 12, 0, 0, 900_000, tzinfo=UTC)
    there = here.astimezone(timezone(timedelta(hours=9)))
    assert strategy.timestamp(here) == strategy.timestamp(there) == "2026-01-05T12:00:00Z"
