"""The table of built-in fields says what a real API server says."""

from pathlib import Path

import msgspec
import pytest

import kubetide.embedded
from e2e.controlplane import ControlPlane
from e2e.field_tables import Raw, render, wanted_kinds
from kubetide.clock import SystemClock
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files

TABLE = Path(kubetide.embedded.__file__).with_name("builtin_fields.txt")
MADE_FROM = "1.37"


async def test_the_table_of_fields_is_that_of_a_real_server(control_plane: ControlPlane, tmp_path: Path) -> None:
    transport = HttpTransport(from_files([control_plane.kubeconfig("admin")], clock=SystemClock()))

    async def get(path: str) -> Raw:
        answer = await transport.request("GET", path)
        assert answer.status == 200, path
        found: Raw = msgspec.json.decode(answer.body)
        return found

    try:
        version = await get("/version")
        served = f"{version['major']}.{version['minor']}"
        if served != MADE_FROM:
            pytest.skip(f"the table is that of Kubernetes {MADE_FROM}, this server is {served}: install that one")
        versions = {version for version, _ in wanted_kinds()}
        names = {f"apis/{version}" if "/" in version else f"api/{version}" for version in versions}
        documents = {name: await get(f"/openapi/v3/{name}") for name in sorted(names)}
    finally:
        await transport.close()
    expected = tmp_path / TABLE.name
    expected.write_text(render(documents, wanted_kinds()))
    assert TABLE.read_text() == expected.read_text(), f"{expected} has what it should be"
