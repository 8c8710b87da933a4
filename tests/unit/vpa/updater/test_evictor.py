"""What the updater does to the cluster, and how it takes refusals."""

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import convert, encode
from kubetide.api.values.conditions import Condition
from kubetide.clock import SystemClock
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response
from kubetide.testing.builders import make_pod, make_vpa
from kubetide.vpa.updater.core.breaker import CLOSED, BreakerState
from kubetide.vpa.updater.evictor import Attempt, Evictor

NOW = datetime(2026, 1, 5, tzinfo=UTC)
RAW = make_pod("web-1", uid="u1")
RAW["metadata"]["resourceVersion"] = "7"
POD = convert(RAW, Pod)


class Scripted:
    """A transport that gives the answers of a script and keeps what was asked."""

    def __init__(self, *answers: Response | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, str, Any]] = []

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, query: Mapping[str, str] | None = None, **_: Any
    ) -> Response:
        self.asked.append((method, path, json.loads(body) if body else None))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, path: str, *, query: Mapping[str, str]) -> Any:
        raise AssertionError("nobody watches here")

    async def close(self) -> None:
        return


def refused(code: int, reason: str) -> Response:
    return Response(code, {}, encode({"kind": "Status", "code": code, "reason": reason, "message": reason}))


TOO_LARGE = Response(
    403,
    {},
    encode({"kind": "Status", "reason": "Forbidden", "details": {"causes": [{"reason": "NodeCapacity"}]}}),
)


def ok(body: Any = None) -> Response:
    return Response(200, {}, encode(body if body is not None else make_pod("web-1")))


def evictor(transport: Scripted) -> Evictor:
    return Evictor(Client(transport, clock=SystemClock()), rng=random.Random(1))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(ok({}), Attempt.DONE, id="evicted"),
        pytest.param(refused(429, "TooManyRequests"), Attempt.FORBIDDEN, id="disruption-budget"),
        pytest.param(refused(409, "Conflict"), Attempt.CHANGED, id="changed-since"),
        pytest.param(refused(404, "NotFound"), Attempt.CHANGED, id="gone"),
        pytest.param(refused(403, "Forbidden"), Attempt.FAILED, id="no-right"),
        pytest.param(refused(504, "Timeout"), Attempt.UNKNOWN, id="timeout"),
        pytest.param(ConnectionLost("reset"), Attempt.UNKNOWN, id="connection-lost"),
    ],
)
def test_an_eviction_is_tried_once_and_its_end_is_named(answer: Response | Exception, expected: Attempt) -> None:
    transport = Scripted(answer)
    outcome, _ = run_virtual(evictor(transport).evict(POD))
    assert outcome is expected
    ((method, path, body),) = transport.asked
    assert (method, path) == ("POST", "/api/v1/namespaces/default/pods/web-1/eviction")
    assert body["deleteOptions"]["preconditions"] == {"uid": "u1", "resourceVersion": "7"}


@pytest.mark.parametrize(
    ("answers", "expected", "requests"),
    [
        pytest.param([ok(), ok()], Attempt.DONE, 2, id="resized-and-noted"),
        pytest.param([refused(409, "Conflict"), ok(), ok()], Attempt.DONE, 3, id="conflict-is-tried-again"),
        pytest.param([ConnectionLost("x"), refused(500, "InternalError"), ok(), ok()], Attempt.DONE, 4, id="stubborn"),
        pytest.param([refused(422, "Invalid")], Attempt.FAILED, 1, id="refused-for-good"),
        pytest.param([TOO_LARGE], Attempt.INFEASIBLE, 1, id="larger-than-its-node"),
        pytest.param([refused(409, "Conflict")] * 3, Attempt.BUSY, 3, id="given-up"),
        pytest.param([ok(), refused(403, "Forbidden")], Attempt.DONE, 2, id="the-note-is-a-courtesy"),
    ],
)
def test_a_resize_is_stubborn_about_passing_errors_only(
    answers: list[Response | Exception], expected: Attempt, requests: int
) -> None:
    transport = Scripted(*answers)
    operations = [{"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "1"}]
    outcome, _ = run_virtual(evictor(transport).resize(POD, operations))
    assert outcome is expected
    assert len(transport.asked) == requests
    assert transport.asked[0][1].endswith("/pods/web-1/resize")
    assert transport.asked[0][2][0] == {"op": "test", "path": "/metadata/uid", "value": "u1"}


def stored(*conditions: dict[str, Any]) -> dict[str, Any]:
    vpa = make_vpa("web")
    vpa["metadata"]["resourceVersion"] = "3"
    vpa["status"] = {"conditions": list(conditions)}
    return vpa


PROVIDED = {"type": "RecommendationProvided", "status": "True", "unknownField": 1}
PAUSED = BreakerState(strikes=2, paused_since=NOW, detail="why")


def test_a_pause_is_written_beside_the_conditions_of_others() -> None:
    transport = Scripted(ok(stored(PROVIDED)), ok(stored()))
    run_virtual(evictor(transport).write_breaker(ObjectKey("default", "web"), PAUSED, now=NOW))
    method, path, body = transport.asked[-1]
    assert (method, path.rsplit("/", 2)[1:]) == ("PATCH", ["web", "status"])
    assert body["metadata"] == {"resourceVersion": "3"}
    own = {"type": "UpdatesPaused", "status": "True", "reason": "ReplacementsUnchanged", "message": "why"}
    assert body["status"]["conditions"] == [PROVIDED, {**own, "lastTransitionTime": "2026-01-05T00:00:00Z"}]


def test_a_lost_race_is_run_again_on_what_is_there_then() -> None:
    transport = Scripted(ok(stored()), refused(409, "Conflict"), ok(stored(PROVIDED)), ok(stored()))
    run_virtual(evictor(transport).write_breaker(ObjectKey("default", "web"), PAUSED, now=NOW))
    assert [each["type"] for each in transport.asked[-1][2]["status"]["conditions"]] == [
        "RecommendationProvided",
        "UpdatesPaused",
    ]


def test_nothing_is_written_when_nothing_changes() -> None:
    transport = Scripted(ok(stored(PROVIDED)))
    run_virtual(evictor(transport).write_breaker(ObjectKey("default", "web"), CLOSED, now=NOW))
    assert [method for method, _, _ in transport.asked] == ["GET"]


KNOWN = (Condition(type="RecommendationProvided", status="True"),)
OWN = Condition(type="UpdatesPaused", status="False", reason="ReplacementAwaited", last_transition_time=NOW)


@pytest.mark.parametrize(
    ("known", "state", "operation"),
    [
        pytest.param(KNOWN, PAUSED, {"op": "add", "path": "/status/conditions/-"}, id="one-more"),
        pytest.param((*KNOWN, OWN), PAUSED, {"op": "replace", "path": "/status/conditions/1"}, id="in-its-place"),
        pytest.param((OWN, *KNOWN), CLOSED, {"op": "remove", "path": "/status/conditions/0"}, id="taken-back"),
    ],
)
def test_one_request_is_enough_where_the_conditions_are_known(
    known: tuple[Condition, ...], state: BreakerState, operation: dict[str, Any]
) -> None:
    transport = Scripted(ok(stored()))
    run_virtual(evictor(transport).write_breaker(ObjectKey("default", "web"), state, now=NOW, known=known))
    ((method, _, (guard, change)),) = transport.asked
    assert method == "PATCH"
    assert guard["op"] == "test"
    assert operation.items() <= change.items()


def test_conditions_that_have_moved_are_read_again() -> None:
    transport = Scripted(refused(422, "Invalid"), ok(stored(PROVIDED)), ok(stored()))
    run_virtual(evictor(transport).write_breaker(ObjectKey("default", "web"), PAUSED, now=NOW, known=KNOWN))
    assert [method for method, _, _ in transport.asked] == ["PATCH", "GET", "PATCH"]
