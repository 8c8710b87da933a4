"""Writing a decision: each part on its own way, and what failed says so under its reason."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.kube.client.transport import Response
from kubetide.slo.core.observation import NodeDecision
from kubetide.slo.node_writer import NodeWriter
from kubetide.slo.telemetry import SloInstruments
from kubetide.telemetry import Telemetry

STATUS, ANNOTATIONS = {"allocatable": {"kubernetes.io/batch-cpu": "1"}}, {"annotations": {"a": "b"}}
TOPOLOGY = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n"
NODE = "/api/v1/nodes/n"


class Answers:
    """A transport that answers by path and remembers what was sent."""

    def __init__(self, **codes: int) -> None:
        self._codes = codes
        self.sent: list[tuple[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        self.sent.append((path, msgspec.json.decode(body or b"null")))
        name = {TOPOLOGY: "topology", f"{NODE}/status": "status", NODE: "node"}[path]
        return Response(self._codes.get(name, 200), {}, b'{"metadata": {"name": "n"}}')

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError("nothing is watched here")

    async def close(self) -> None:
        await asyncio.sleep(0)


def write(decision: NodeDecision, **codes: int) -> tuple[Answers, NodeWriter, Telemetry]:
    answers, telemetry = Answers(**codes), Telemetry()
    clock = SystemClock()
    writer = NodeWriter(Client(answers, clock=clock), clock=clock, instruments=SloInstruments(telemetry))
    asyncio.run(writer.write("n", decision))
    return answers, writer, telemetry


def counted(telemetry: Telemetry, reason: str, status: str) -> bool:
    name = "slo_controller_node_resource_reconcile_count"
    return f'{name}{{reason="{reason}",status="{status}"}} 1.0' in telemetry.render().decode()


def test_status_goes_through_its_subresource_and_annotations_through_the_object() -> None:
    answers, writer, telemetry = write(NodeDecision(status_patch={"status": STATUS, "metadata": ANNOTATIONS}))
    assert answers.sent == [(f"{NODE}/status", {"status": STATUS}), (NODE, {"metadata": ANNOTATIONS})]
    assert set(writer.written("n")) == {"status"}
    writer.forget("n")
    assert writer.written("n") == {}
    name = "slo_controller_node_resource_reconcile_count"
    assert f'{name}{{reason="updateNodeStatus",status="succeeded"}} 2.0' in telemetry.render().decode()


def test_zones_that_cannot_be_written_do_not_keep_the_node_from_being_written() -> None:
    answers, writer, telemetry = write(
        NodeDecision(zones=[{"name": "node-0"}], status_patch={"status": STATUS}), topology=403
    )
    assert [path for path, _ in answers.sent] == [TOPOLOGY, f"{NODE}/status"]
    assert counted(telemetry, "updateNodeResourceTopology", "failed")
    assert counted(telemetry, "updateNodeStatus", "succeeded")
    assert set(writer.written("n")) == {"status"}


def test_a_node_that_has_gone_is_fine_and_counted_as_gone() -> None:
    _, _, telemetry = write(NodeDecision(metadata_patch={"metadata": ANNOTATIONS}), node=404)
    assert counted(telemetry, "updateNodeMetaNotFound", "failed")


def test_a_refused_status_is_an_error_to_be_tried_again() -> None:
    with pytest.raises(ApiError):
        write(NodeDecision(status_patch={"status": STATUS}), status=403)
