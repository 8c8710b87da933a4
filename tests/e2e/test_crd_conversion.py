"""The same custom resource with a conversion webhook on a real kube-apiserver."""

import asyncio
import uuid
from pathlib import Path

from cluster.conversion_suite import DEFINITIONS, boxes_live_in_two_versions, definition, webhook
from cluster.verb_suite import Api
from e2e.controlplane import ControlPlane
from kubetide.clock import SystemClock
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files


async def test_a_real_server_has_objects_live_in_two_versions(control_plane: ControlPlane, tmp_path: Path) -> None:
    transport = HttpTransport(from_files([control_plane.kubeconfig("admin")], clock=SystemClock()))
    group = f"c{uuid.uuid4().hex[:8]}.example.com"
    api = Api(transport, "default")
    async with webhook(tmp_path) as client:
        try:
            status, made = await api.call("POST", DEFINITIONS, definition(group, client))
            assert status == 201, made
            await _served(api, group)
            await boxes_live_in_two_versions(api, group)
        finally:
            await api.call("DELETE", f"{DEFINITIONS}/boxes.{group}")
            await transport.close()


async def _served(api: Api, group: str) -> None:
    for _ in range(100):
        answers = [
            await api.transport.request("GET", api.path("boxes", group=group, version=version))
            for version in ("v1", "v2")
        ]
        if all(answer.status == 200 for answer in answers):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"boxes of {group} were never served")
