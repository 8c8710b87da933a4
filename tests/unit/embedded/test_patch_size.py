"""Patches over the API: none makes an object larger than one can be created."""

import json
from typing import Any

from kubetide.api.values.patch import RESULT_LIMIT
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.server import ApiServer

PATH = "/api/v1/namespaces/default/configmaps"
JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"


async def ask(api: ApiServer, method: str, path: str, body: Any, content_type: str = "application/json") -> int:
    answer = await api.handle(Request(method, path, body=json.dumps(body).encode(), content_type=content_type))
    assert isinstance(answer, Answer)
    return answer.status


async def cluster(size: int) -> ApiServer:
    api = ApiServer(clock=SystemClock())
    assert await ask(api, "POST", PATH, {"metadata": {"name": "one"}, "data": {"a": "x" * size}}) == 201
    return api


async def test_a_small_request_of_copies_is_refused() -> None:
    api = await cluster(10)
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"a": ["x"]}}]
    operations += [{"op": "copy", "from": "/metadata/annotations/a", "path": "/metadata/annotations/a/-"}] * 40
    assert await ask(api, "PATCH", f"{PATH}/one", operations, JSON) == 413


async def test_an_object_does_not_grow_without_end_patch_by_patch() -> None:
    third = RESULT_LIMIT // 3
    api = await cluster(third)
    assert await ask(api, "PATCH", f"{PATH}/one", {"data": {"b": "x" * third}}, MERGE) == 200
    assert await ask(api, "PATCH", f"{PATH}/one", {"data": {"c": "x" * third}}, MERGE) == 413
    assert await ask(api, "PATCH", f"{PATH}/one", {"data": {"a": "y" * third}}, MERGE) == 200
    assert await ask(api, "PATCH", f"{PATH}/one", {"data": {"a": None}}, MERGE) == 200
