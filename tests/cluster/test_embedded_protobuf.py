"""Typed clients and the embedded API server: protobuf bodies that cannot be read whole, and what is answered."""

import json
from collections.abc import Awaitable, Callable

import pytest

from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from protobuf_bodies import body, encode, field

PROTOBUF = "application/vnd.kubernetes.protobuf"
CONFIGS = "/api/v1/namespaces/default/configmaps"
NAMED = field(1, field(1, "one"))


def on_a_server(main: Callable[[InProcessTransport], Awaitable[None]]) -> None:
    async def run() -> None:
        await main(InProcessTransport(ApiServer(clock=virtual_clock())))

    run_virtual(run())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(body("v1", "ConfigMap", NAMED, field(77, "new")), "field 77 of ConfigMap", id="field"),
        pytest.param(body("v1", "ConfigMap", field(1, field(1, "one") + field(77, 1))), "of ObjectMeta", id="inside"),
        pytest.param(body("example.com/v1", "Box", NAMED), "'example.com/v1' 'Box'", id="kind"),
    ],
)
def test_what_is_not_in_the_table_is_refused_and_not_stored_in_part(data: bytes, says: str) -> None:
    async def main(transport: InProcessTransport) -> None:
        answer = await transport.request("POST", CONFIGS, body=data, content_type=PROTOBUF)
        refused = json.loads(answer.body)
        assert (answer.status, refused["reason"]) == (415, "UnsupportedMediaType")
        assert says in refused["message"]
        assert "application/json" in refused["message"]
        assert json.loads((await transport.request("GET", CONFIGS)).body)["items"] == []

    on_a_server(main)


@pytest.mark.parametrize("accept", [f"{PROTOBUF},application/json", f"{PROTOBUF}, */*"])
def test_typed_clients_are_answered_in_json(accept: str) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}

    async def main(transport: InProcessTransport) -> None:
        for method, path, data in (
            ("POST", CONFIGS, encode(config)),
            ("PUT", f"{CONFIGS}/one", encode(config)),
            ("GET", CONFIGS, None),
            ("GET", f"{CONFIGS}/none", None),
            ("DELETE", f"{CONFIGS}/one", encode({"apiVersion": "v1", "kind": "DeleteOptions"})),
        ):
            answer = await transport.request(method, path, body=data, content_type=PROTOBUF, accept=accept)
            assert answer.status == (201 if method == "POST" else 404 if path.endswith("none") else 200)
            assert answer.headers["content-type"] == "application/json"
            assert json.loads(answer.body)["kind"]

    on_a_server(main)


def test_metadata_is_answered_in_json_to_those_who_would_rather_have_protobuf() -> None:
    options = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    accept = f"{PROTOBUF};{options},application/json;{options},application/json"

    async def main(transport: InProcessTransport) -> None:
        answer = await transport.request("GET", "/api/v1/namespaces", accept=accept)
        assert json.loads(answer.body)["kind"] == "PartialObjectMetadataList"

    on_a_server(main)


def test_who_takes_nothing_but_protobuf_is_refused_before_anything_is_done() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}

    async def main(transport: InProcessTransport) -> None:
        answer = await transport.request("POST", CONFIGS, body=encode(config), content_type=PROTOBUF, accept=PROTOBUF)
        assert answer.status == 406
        for path in (CONFIGS, "/api/v1/namespaces/default"):
            assert (await transport.request("GET", path, accept=PROTOBUF)).status == 406
        assert json.loads((await transport.request("GET", CONFIGS)).body)["items"] == []

    on_a_server(main)


def test_a_deep_schema_in_protobuf_meets_the_limit_of_json() -> None:
    """Messages and the JSON inside them are counted together."""
    schema = field(8, field(1, "[" * 60 + "]" * 60))
    for _ in range(80):
        schema = field(29, field(1, "a") + field(2, schema))
    version = field(7, field(1, "v1") + field(4, field(1, schema)))
    crd = body("apiextensions.k8s.io/v1", "CustomResourceDefinition", NAMED, field(2, version))

    async def main(transport: InProcessTransport) -> None:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        answer = await transport.request("POST", path, body=crd, content_type=PROTOBUF)
        assert answer.status == 400
        assert "nested deeper" in json.loads(answer.body)["message"]

    on_a_server(main)
