"""What a real API server writes in protobuf, read by our tables, is what it writes in JSON."""

import json
import uuid
from typing import Any

from cluster.verb_suite import Api
from cluster.verb_suite_protobuf import PROTOBUF, WRITTEN, collection
from e2e.controlplane import ControlPlane
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.protobuf.reader import decode_protobuf
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files

CLUSTER_SCOPED = (
    "/api/v1/namespaces",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/apiregistration.k8s.io/v1/apiservices",
)


def told(value: Any) -> Any:
    """Return JSON without nulls and empty lists, which protobuf cannot tell from nothing."""
    if isinstance(value, dict):
        return {name: told(held) for name, held in value.items() if held is not None and held != []}
    return [told(item) for item in value] if isinstance(value, list) else value


async def both(api: Api, path: str) -> list[Any]:
    answers = [await api.transport.request("GET", path, accept=accept) for accept in ("application/json", PROTOBUF)]
    assert [answer.status for answer in answers] == [200, 200], path
    return [told(json.loads(answers[0].body)["items"]), told(decode_protobuf(answers[1].body).get("items", []))]


async def test_lists_are_the_same_in_both(control_plane: ControlPlane) -> None:
    transport = HttpTransport(from_files([control_plane.kubeconfig("admin")], clock=SystemClock()))
    api = Api(transport, f"protobuf-{uuid.uuid4().hex[:8]}")
    try:
        status, made = await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": api.namespace}})
        assert status == 201, made
        paths = list(CLUSTER_SCOPED)
        for number, (plural, obj) in enumerate(WRITTEN):
            path = collection(api, obj, plural)
            status, made = await api.call("POST", path, {**obj, "metadata": {"name": f"object-{number}"}})
            assert status == 201, made
            paths.append(path)
        for path in paths:
            as_json, as_protobuf = await both(api, path)
            assert as_json, path
            assert as_protobuf == as_json, path
        missing = await transport.request("GET", api.path("pods", "none"), accept=PROTOBUF)
        refused = decode_protobuf(missing.body)
        assert (refused["kind"], refused["reason"], refused["code"]) == ("Status", "NotFound", 404)
    finally:
        await transport.close()
