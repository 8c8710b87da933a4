"""Feature gates: how they are spelt, and what the API server does with and without them."""

import json
from typing import Any

import pytest

from kubetide.embedded.apiserver.gates import DEFAULT_GATES, parse_gates
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import InvalidInput

PATH = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
EXTERNAL = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "1"}},
}
ALL = {"HPAConfigurableTolerance", "HPAGeneration", "HPAScaleToZero"}


@pytest.mark.parametrize(
    ("text", "on"),
    [
        pytest.param("", ALL, id="as-they-are"),
        pytest.param("HPAConfigurableTolerance=false", ALL - {"HPAConfigurableTolerance"}, id="one-off"),
        pytest.param(" HPAScaleToZero = False ,", ALL - {"HPAScaleToZero"}, id="spaces-and-capitals"),
        pytest.param("HPAScaleToZero=0,HPAScaleToZero=1", ALL, id="the-last-one-counts"),
    ],
)
def test_gates_are_spelt_as_a_real_server_takes_them(text: str, on: set[str]) -> None:
    assert parse_gates(text) == on


@pytest.mark.parametrize("text", ["Tolerance=true", "HPAScaleToZero", "HPAScaleToZero=maybe", "=true"])
def test_what_is_no_gate_or_no_switch_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--feature-gates"):
        parse_gates(text)


async def send(api: ApiServer, method: str, path: str, body: dict[str, Any], kind: str = "json") -> tuple[int, Any]:
    request = Request(method, path, body=json.dumps(body).encode(), content_type=f"application/{kind}")
    answer = await api.handle(request)
    assert isinstance(answer, Answer)
    return answer.status, json.loads(answer.body)


def hpa(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {"maxReplicas": 3, "scaleTargetRef": TARGET, **spec}}


def tolerances(obj: dict[str, Any]) -> tuple[str | None, str | None]:
    behavior = obj["spec"]["behavior"]
    return behavior["scaleUp"].get("tolerance"), behavior["scaleDown"].get("tolerance")


def test_without_the_gate_a_tolerance_is_dropped_unless_there_is_one_already() -> None:
    async def main() -> list[tuple[str | None, str | None]]:
        seen = []
        behavior = {"behavior": {"scaleUp": {"tolerance": "200m"}}}
        more = {"spec": {"behavior": {"scaleDown": {"tolerance": "300m"}}}}
        less = {"spec": {"behavior": {"scaleUp": {"tolerance": None}, "scaleDown": {"tolerance": None}}}}
        with_gate = ApiServer(clock=virtual_clock(), gates=DEFAULT_GATES)
        _, made = await send(with_gate, "POST", PATH, hpa(**behavior))
        seen.append(tolerances(made))
        without = ApiServer(clock=virtual_clock(), gates=frozenset(), store=with_gate.store)
        for patch in (more, less, more):
            _, patched = await send(without, "PATCH", f"{PATH}/web", patch, "merge-patch+json")
            seen.append(tolerances(patched))
        return seen

    kept, gone = ("200m", "300m"), (None, None)
    assert run_virtual(main()) == [("200m", None), kept, gone, gone]


@pytest.mark.parametrize(("text", "status"), [("HPAScaleToZero=false", 422), ("", 201)])
def test_a_minimum_of_zero_needs_its_gate(text: str, status: int) -> None:
    async def main() -> int:
        api = ApiServer(clock=virtual_clock(), gates=parse_gates(text))
        return (await send(api, "POST", PATH, hpa(minReplicas=0, metrics=[EXTERNAL])))[0]

    assert run_virtual(main()) == status


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        pytest.param("", [1, 1, 1, 2], id="on-it-counts-changes-of-the-spec"),
        pytest.param("HPAGeneration=false", [None, None, None, None], id="off-there-is-none"),
    ],
)
def test_an_autoscaler_has_a_generation_with_its_gate(text: str, seen: list[int | None]) -> None:
    async def main() -> list[int | None]:
        api = ApiServer(clock=virtual_clock(), gates=parse_gates(text))
        answers = [await send(api, "POST", PATH, hpa())]
        for path, patch in (
            (f"{PATH}/web", {"metadata": {"labels": {"a": "b"}, "generation": 9}}),
            (f"{PATH}/web/status", {"status": {"currentReplicas": 1}}),
            (f"{PATH}/web", {"spec": {"maxReplicas": 7}}),
        ):
            answers.append(await send(api, "PATCH", path, patch, "merge-patch+json"))
        return [obj["metadata"].get("generation") for _, obj in answers]

    assert run_virtual(main()) == seen


@pytest.mark.parametrize(
    ("text", "names"), [("", ["b", "shop"]), ("ShardedListAndWatch=true", ["shop"])], ids=["off", "on"]
)
def test_a_shard_of_a_list_needs_its_gate(text: str, names: list[str]) -> None:
    selector = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')"

    async def main() -> None:
        api = ApiServer(clock=virtual_clock(), gates=parse_gates(text))
        for name in ("shop", "b"):
            await send(api, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            await send(api, "POST", f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": name}})
        request = Request("GET", "/api/v1/configmaps", query={"shardSelector": selector})
        answer = await api.handle(request)
        assert isinstance(answer, Answer)
        found = json.loads(answer.body)
        assert [one["metadata"]["name"] for one in found["items"]] == names
        assert found["metadata"].get("shardInfo") == ({"selector": selector} if text else None)
        bad = await api.handle(Request("GET", "/api/v1/configmaps", query={"shardSelector": "true"}))
        assert isinstance(bad, Answer)
        assert bad.status == (500 if text else 200)

    run_virtual(main())
