"""The verb suite against a real kube-apiserver, apart from the differences that are allowed."""

import asyncio
import uuid
from pathlib import Path

import pytest

from cluster import (  # noqa: F401 - they add their cases
    verb_suite_fields,
    verb_suite_nulls,
    verb_suite_protobuf,
    verb_suite_types,
)
from cluster.verb_differences import REAL_ONLY_DIFFERENCES
from cluster.verb_suite import CASES, Api, Case
from cluster.verb_suite_autoscaling import WITHOUT_GATES
from e2e.controlplane import ControlPlane, running
from kubetide.clock import SystemClock
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_real_api_server(case: Case, control_plane: ControlPlane) -> None:
    if case.__name__ in REAL_ONLY_DIFFERENCES:
        pytest.skip(REAL_ONLY_DIFFERENCES[case.__name__])
    await run_case(case, control_plane)


def test_a_real_api_server_without_gates(control_plane: ControlPlane, tmp_path: Path) -> None:
    """A server of its own, because gates are set when it starts."""
    assert control_plane.url
    with running(tmp_path, extra=("--feature-gates=HPAScaleToZero=false,HPAGeneration=false",)) as plane:
        for case in WITHOUT_GATES:
            asyncio.run(run_case(case, plane))


async def run_case(case: Case, plane: ControlPlane) -> None:
    transport = HttpTransport(from_files([plane.kubeconfig("admin")], clock=SystemClock()))
    namespace = f"suite-{uuid.uuid4().hex[:10]}"
    try:
        api = Api(transport, namespace)
        status, body = await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert status == 201, body
        await case(api)
    finally:
        await transport.close()
