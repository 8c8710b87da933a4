"""A conversion webhook over HTTPS."""

from pathlib import Path

from cluster.conversion_suite import DEFINITIONS, boxes_live_in_two_versions, definition, webhook
from cluster.verb_suite import Api
from embedded_server import running

GROUP = "test.example.com"


async def test_objects_live_in_two_versions_over_https(tmp_path: Path) -> None:
    async with running() as server, webhook(tmp_path) as client:
        transport = server.transport()
        try:
            api = Api(transport, "default")
            status, made = await api.call("POST", DEFINITIONS, definition(GROUP, client))
            assert status == 201, made
            await boxes_live_in_two_versions(api, GROUP)
        finally:
            await transport.close()


async def test_a_webhook_that_cannot_be_reached_is_named_with_the_reason(tmp_path: Path) -> None:
    async with running() as server:
        transport = server.transport()
        try:
            api = Api(transport, "default")
            assert (await api.call("POST", DEFINITIONS, definition(GROUP, {"url": "https://127.0.0.1:1/x"})))[0] == 201
            body = {"apiVersion": f"{GROUP}/v2", "kind": "Box", "metadata": {"name": "one"}, "spec": {"width": 1}}
            status, refused = await api.call("POST", api.path("boxes", group=GROUP, version="v2"), body)
            assert status == 500
            assert refused["message"].startswith(f"conversion webhook for {GROUP}/v2, Kind=Box failed: ")
            assert "127.0.0.1:1" in refused["message"]
        finally:
            await transport.close()
