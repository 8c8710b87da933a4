"""Custom resources with a conversion webhook, in process and in virtual time."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster.conversion_suite import DEFINITIONS, boxes_live_in_two_versions, convert, definition
from cluster.verb_suite import MERGE, Api
from kubetide.api.objects.admission import review_response
from kubetide.embedded.apiserver.crds.conversion import ConversionFailed
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock

Raw = dict[str, Any]
GROUP = "test.example.com"
BOXES = f"/apis/{GROUP}/v2/namespaces/default/boxes"
SIZED = "request.operation == 'DELETE' || has(object.spec.size)"
Answer = Callable[[Raw], Raw]


def with_webhook(test: Callable[[ApiServer, Api], Awaitable[None]], answer: Answer = convert) -> None:
    async def main() -> None:
        server = ApiServer(clock=virtual_clock())

        async def review(body: Raw) -> Raw:
            return answer(body)

        server.conversions.register_local("boxes", review)
        api = Api(InProcessTransport(server), "default")
        status, made = await api.call("POST", DEFINITIONS, definition(GROUP, {"url": "local://boxes"}))
        assert status == 201, made
        await test(server, api)

    run_virtual(main())


def box(version: str = "v2", **spec: Any) -> Raw:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Box", "metadata": {"name": "one"}, "spec": spec}


def test_objects_live_in_two_versions() -> None:
    async def test(server: ApiServer, api: Api) -> None:
        await boxes_live_in_two_versions(api, GROUP)

    with_webhook(test)


def test_an_object_is_converted_once_per_revision_however_often_it_is_read() -> None:
    asked: list[int] = []

    def counting(review: Raw) -> Raw:
        asked.append(len(review["request"]["objects"]))
        return convert(review)

    async def test(server: ApiServer, api: Api) -> None:
        for number in range(5):
            body = {**box("v1", size="1x2"), "metadata": {"name": f"n{number}"}}
            assert (await api.call("POST", BOXES.replace("/v2/", "/v1/"), body))[0] == 201
        assert asked == []
        for _ in range(3):
            assert len((await api.call("GET", BOXES))[1]["items"]) == 5
            await api.call("GET", f"{BOXES}/n1")
        assert asked == [5]

    with_webhook(test, counting)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(lambda r: {**r, "kind": "Nonsense"}, "not a ConversionReview", id="another-kind"),
        pytest.param(lambda r: {**r, "response": None}, "not a ConversionReview with a response", id="no-response"),
        pytest.param(lambda r: _response(r, uid="other"), "for another request", id="another-request"),
        pytest.param(lambda r: _response(r, convertedObjects=[]), "0 objects, expected 1", id="too-few"),
        pytest.param(lambda r: _response(r, result={}), "no explanation was given", id="no-result"),
        pytest.param(lambda r: _object(r, apiVersion="x/v9"), "invalid groupVersion", id="another-version"),
        pytest.param(lambda r: _object(r, kind="Bag"), "invalid kind (expected Box, received Bag)", id="other-kind"),
        pytest.param(lambda r: _object(r, metadata={"name": "two"}), "metadata.name must not", id="another-name"),
        pytest.param(lambda r: _object(r, metadata=None), "not an object with metadata", id="no-metadata"),
    ],
)
def test_a_wrong_answer_is_refused_and_nothing_is_stored(change: Answer, complaint: str) -> None:
    async def test(server: ApiServer, api: Api) -> None:
        status, body = await api.call("POST", BOXES, box(width=3))
        assert status == 500
        assert body["message"].startswith(f"conversion webhook for {GROUP}/v2, Kind=Box failed: ")
        assert complaint in body["message"]
        assert (await api.call("GET", f"{BOXES}/one"))[0] == 404

    with_webhook(test, lambda review: change(convert(review)))


def _response(review: Raw, **change: Any) -> Raw:
    return {**review, "response": {**review["response"], **change}}


def _object(review: Raw, **change: Any) -> Raw:
    [obj] = review["response"]["convertedObjects"]
    return _response(review, convertedObjects=[{**obj, **change}])


def test_a_webhook_that_fails_or_is_not_there_is_named() -> None:
    def failing(review: Raw) -> Raw:
        raise ConversionFailed("out of order")

    async def test(server: ApiServer, api: Api) -> None:
        _, body = await api.call("POST", BOXES, box(width=3))
        assert body["message"].endswith("failed: out of order")
        for client, why in (
            ({"url": "local://nobody"}, "no local conversion is registered as local://nobody"),
            ({"url": "https://127.0.0.1:1/"}, "this API server makes no network calls"),
        ):
            patch = {"spec": {"conversion": {"webhook": {"clientConfig": client}}}}
            assert (await api.call("PATCH", f"{DEFINITIONS}/boxes.{GROUP}", patch, kind=MERGE))[0] == 200
            _, body = await api.call("POST", BOXES, box(width=3))
            assert body["message"].endswith(f"failed: {why}")

    with_webhook(test, failing)


def test_only_labels_and_annotations_are_the_webhooks_to_change() -> None:
    def meddling(review: Raw) -> Raw:
        answer = convert(review)
        for obj in answer["response"]["convertedObjects"]:
            obj["metadata"] = {**obj["metadata"], "labels": {"seen": "yes"}, "finalizers": ["mine"], "generation": 99}
        return answer

    async def test(server: ApiServer, api: Api) -> None:
        _, made = await api.call("POST", BOXES, box(width=3))
        assert made["metadata"]["labels"] == {"seen": "yes"}
        assert made["metadata"]["generation"] == 1
        assert "finalizers" not in made["metadata"]

    with_webhook(test, meddling)


def test_a_watch_ends_with_an_error_if_its_objects_cannot_be_converted() -> None:
    async def test(server: ApiServer, api: Api) -> None:
        async with api.transport.watch(BOXES, query={}) as lines:
            broken = box("v1", size="1x1")
            broken["metadata"]["annotations"] = {"broken": "yes"}
            assert (await api.call("POST", BOXES.replace("/v2/", "/v1/"), broken))[0] == 201
            event = json.loads(await anext(lines))
            assert event["type"] == "ERROR"
            assert "this box is broken" in event["object"]["message"]
            assert [line async for line in lines] == []

    with_webhook(test)


def test_an_admission_webhook_sees_the_version_it_asked_for() -> None:
    seen: list[Raw] = []

    async def widen(body: Raw) -> Raw:
        request = body["request"]
        seen.append(request)
        patch = [{"op": "replace", "path": "/spec/size", "value": "8x8"}] if request["operation"] == "CREATE" else None
        return review_response(request["uid"], patch=patch)

    async def test(server: ApiServer, api: Api) -> None:
        server.admission.register_local("widen", widen)
        rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["boxes"], "operations": ["*"]}
        hook = {
            "name": "widen.example.com",
            "clientConfig": {"url": "local://widen"},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchConditions": [
                {"name": "sized", "expression": "request.operation == 'DELETE' || has(object.spec.size)"}
            ],
        }
        server.insert(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "widen"},
                "webhooks": [hook],
            }
        )
        status, made = await api.call("POST", BOXES, box(width=3))
        assert (status, made["spec"]) == (201, {"width": 8, "height": 8}), made
        assert seen[-1]["object"]["spec"] == {"size": "3x2"}
        assert (await api.call("DELETE", f"{BOXES}/one"))[0] == 200
        assert seen[-1]["oldObject"]["spec"] == {"size": "8x8"}

    with_webhook(test)


def test_what_was_stored_before_the_storage_version_changed_is_converted_when_it_is_read() -> None:
    async def test(server: ApiServer, api: Api) -> None:
        assert (await api.call("POST", BOXES.replace("/v2/", "/v1/"), box("v1", size="3x4")))[0] == 201
        changed = definition(GROUP, {"url": "local://boxes"})
        for version in changed["spec"]["versions"]:
            version["storage"] = not version["storage"]
        patch = {"spec": {"versions": changed["spec"]["versions"]}}
        assert (await api.call("PATCH", f"{DEFINITIONS}/boxes.{GROUP}", patch, kind=MERGE))[0] == 200
        _, shown = await api.call("GET", f"{DEFINITIONS}/boxes.{GROUP}")
        assert shown["status"]["storedVersions"] == ["v1", "v2"]
        status, refused = await api.call(
            "PATCH", f"{DEFINITIONS}/boxes.{GROUP}", {"spec": {"versions": changed["spec"]["versions"][1:]}}, kind=MERGE
        )
        assert (status, refused["details"]["causes"][0]["field"]) == (422, "status.storedVersions[0]")
        _, shown = await api.call("GET", f"{BOXES}/one")
        assert shown["spec"] == {"width": 3, "height": 4}
        status, shown = await api.call("PATCH", f"{BOXES}/one", {"spec": {"width": 5}}, kind=MERGE)
        assert (status, shown["spec"]) == (200, {"width": 5, "height": 4})
        _, shown = await api.call("GET", f"{BOXES.replace('/v2/', '/v1/')}/one")
        assert shown["spec"] == {"size": "5x4"}

    with_webhook(test)


@pytest.mark.parametrize(
    ("conversion", "complaints"),
    [
        pytest.param({"strategy": "Magic"}, ['Unsupported value: "Magic"'], id="unknown-strategy"),
        pytest.param(
            {"strategy": "Webhook"},
            ["webhookClientConfig: Required value", "conversionReviewVersions: Required value"],
            id="nothing-said",
        ),
        pytest.param(
            {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v9"]}},
            ["exactly one of url or service", 'Invalid value: ["v9"]: must include at least one of v1, v1beta1'],
            id="nobody-to-call",
        ),
        pytest.param(
            {"strategy": "None", "webhook": {"clientConfig": {"url": "local://x"}}},
            ["Forbidden: should not be set when strategy is not set to Webhook"],
            id="a-webhook-without-the-strategy",
        ),
    ],
)
def test_a_conversion_that_cannot_work_is_invalid(conversion: Raw, complaints: list[str]) -> None:
    async def main() -> None:
        api = Api(InProcessTransport(ApiServer(clock=virtual_clock())), "default")
        crd = definition(GROUP, {})
        crd["spec"]["conversion"] = conversion
        status, body = await api.call("POST", DEFINITIONS, crd)
        assert status == 422
        for complaint in complaints:
            assert complaint in body["message"]

    run_virtual(main())
