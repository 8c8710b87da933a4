"""A custom resource whose two versions look different, the webhook between them, and what must hold with it.

In v1 a box has one text for its size (`3x4`), in v2 a width and a height. v1 is stored.
"""

import asyncio
import base64
import copy
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from cluster.verb_suite import APPLY, JSON_PATCH, MERGE, Api
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.kube.listener import listening

Raw = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(group: str, client: Raw) -> Raw:
    """Return the CRD with a conversion webhook."""
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}, "note": {"type": "string"}}}
    count = {"type": "integer"}

    def version(name: str, spec: Raw, scale: str) -> Raw:
        schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}, "status": status}}
        return {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema},
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": scale, "statusReplicasPath": ".status.replicas"},
            },
        }

    flat = {"size": {"type": "string", "default": "1x1"}, "replicas": count}
    wide = {
        "width": {"type": "integer", "minimum": 1},
        "height": {"type": "integer", "default": 2},
        "count": count,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"boxes.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "boxes", "kind": "Box"},
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v9", "v1"]},
            },
            "versions": [version("v1", flat, ".spec.replicas"), version("v2", wide, ".spec.count")],
        },
    }


def convert(review: Raw) -> Raw:
    """Answer a ConversionReview. A box with the annotation `broken` cannot be converted."""
    request = review["request"]
    result: Raw = {"status": "Success"}
    objects = [_box(copy.deepcopy(box), request["desiredAPIVersion"]) for box in request["objects"]]
    for box in request["objects"]:
        if "broken" in (box["metadata"].get("annotations") or {}):
            result, objects = {"status": "Failed", "message": "this box is broken"}, []
    response = {"uid": request["uid"], "convertedObjects": objects, "result": result}
    return {"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response}


def _box(box: Raw, wanted: str) -> Raw:
    spec = box.setdefault("spec", {})
    if wanted.endswith("/v2") and box["apiVersion"].endswith("/v1"):
        width, _, height = spec.pop("size", "1x1").partition("x")
        spec.update(width=int(width), height=int(height))
        if "replicas" in spec:
            spec["count"] = spec.pop("replicas")
    elif wanted.endswith("/v1") and box["apiVersion"].endswith("/v2"):
        spec["size"] = f"{spec.pop('width', 1)}x{spec.pop('height', 1)}"
        if "count" in spec:
            spec["replicas"] = spec.pop("count")
    return {**box, "apiVersion": wanted}


@asynccontextmanager
async def webhook(folder: Path) -> AsyncIterator[Raw]:
    """Serve the webhook over HTTPS; yield the client configuration that reaches it."""
    now = SystemClock().now()
    ca = make_ca("conversion-ca", now=now)
    pair = issue(ca, "conversion", now=now, addresses=("127.0.0.1",), dns_names=("localhost",))
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_text(pair.certificate)
    key.write_text(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(convert(await request.json()))

    app = web.Application()
    app.router.add_post("/convert", answer)
    async with listening(web.AppRunner(app, shutdown_timeout=0.1), "127.0.0.1", 0, tls=context) as port:
        bundle = base64.b64encode(ca.certificate.encode()).decode()
        yield {"url": f"https://127.0.0.1:{port}/convert", "caBundle": bundle}


async def boxes_live_in_two_versions(api: Api, group: str) -> None:
    """Create, read, change, list, watch, scale and delete in the version that is not stored."""

    def path(version: str, name: str = "", sub: str = "") -> str:
        return api.path("boxes", name, sub, group=group, version=version)

    body: Raw = {"apiVersion": f"{group}/v2", "kind": "Box", "metadata": {"name": "one"}, "spec": {"width": 3}}
    status, made = await api.call("POST", path("v2"), body)
    assert (status, made["apiVersion"], made["spec"]) == (201, f"{group}/v2", {"width": 3, "height": 2}), made
    _, stored = await api.call("GET", path("v1", "one"))
    assert (stored["apiVersion"], stored["spec"]) == (f"{group}/v1", {"size": "3x2"})
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation"):
        assert stored["metadata"][field] == made["metadata"][field]

    status, changed = await api.call("PATCH", path("v2", "one"), {"spec": {"height": 5, "count": 2}}, kind=MERGE)
    assert (status, changed["spec"]) == (200, {"width": 3, "height": 5, "count": 2}), changed
    assert changed["metadata"]["generation"] == 2
    _, stored = await api.call("GET", path("v1", "one"))
    assert stored["spec"] == {"size": "3x5", "replicas": 2}
    operations = [{"op": "test", "path": "/spec/width", "value": 3}, {"op": "remove", "path": "/spec/count"}]
    assert (await api.call("PATCH", path("v2", "one"), operations, kind=JSON_PATCH))[0] == 200
    status, refused = await api.call("PATCH", path("v2", "one"), {"spec": {"width": 0}}, kind=MERGE)
    assert (status, refused["details"]["causes"][0]["field"]) == (422, "spec.width")

    status, noted = await api.call("PATCH", path("v2", "one", "status"), {"status": {"note": "x"}}, kind=MERGE)
    assert (status, noted["status"], noted["spec"]) == (200, {"note": "x"}, {"width": 3, "height": 5})
    applied = {"apiVersion": f"{group}/v2", "kind": "Box", "metadata": {"name": "one"}, "spec": {"count": 1}}
    status, noted = await api.call("PATCH", path("v2", "one"), applied, kind=APPLY, fieldManager="me")
    assert (status, noted["spec"]) == (200, {"width": 3, "height": 5, "count": 1}), noted
    status, scale = await api.call("PATCH", path("v2", "one", "scale"), {"spec": {"replicas": 4}}, kind=MERGE)
    assert (status, scale["spec"]) == (200, {"replicas": 4}), scale
    _, scale = await api.call("GET", path("v2", "one", "scale"))
    assert scale["spec"] == {"replicas": 4}
    assert (await api.call("GET", path("v1", "one")))[1]["spec"] == {"size": "3x5", "replicas": 4}

    plain = {"apiVersion": f"{group}/v1", "kind": "Box", "metadata": {"name": "two"}, "spec": {"size": "7x8"}}
    assert (await api.call("POST", path("v1"), plain))[0] == 201
    _, listed = await api.call("GET", path("v2"))
    assert [item["spec"]["width"] for item in listed["items"]] == [3, 7]
    assert {item["apiVersion"] for item in listed["items"]} == {f"{group}/v2"}
    since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
    async with api.transport.watch(path("v2"), query=since) as w:
        assert (await api.call("PATCH", path("v1", "two"), {"spec": {"size": "9x8"}}, kind=MERGE))[0] == 200
        event = json.loads(await asyncio.wait_for(anext(w), 30))
        assert (event["type"], event["object"]["spec"]) == ("MODIFIED", {"width": 9, "height": 8})
    _, found = await api.call("GET", path("v2"), accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [row["cells"][0] for row in found["rows"]] == ["one", "two"]

    broken = {**plain, "metadata": {"name": "three", "annotations": {"broken": "yes"}}}
    assert (await api.call("POST", path("v1"), broken))[0] == 201
    for version, name in (("v2", "three"), ("v2", "")):
        status, refused = await api.call("GET", path(version, name))
        assert status == 500
        # Newer servers also tell which stored object they could not decode.
        assert f"conversion webhook for {group}/v1, Kind=Box failed: this box is broken" in refused["message"], refused
    assert (await api.call("GET", path("v1")))[0] == 200
    assert (await api.call("DELETE", path("v1", "three")))[0] == 200
    assert (await api.call("DELETE", path("v2", "one")))[0] == 200
    assert (await api.call("DELETE", path("v2")))[0] == 200
    assert (await api.call("GET", path("v1")))[1]["items"] == []
