"""The verb suite against a real kube-apiserver, apart from the differences that are allowed."""

import uuid

import pytest

from cluster import verb_suite_fields, verb_suite_nulls, verb_suite_protobuf, verb_suite_types  # noqa: F401 - they add their cases
from cluster.verb_differences import REAL_ONLY_DIFFERENCES
from cluster.verb_suite import CASES, Api, Case
from e2e.controlplane import ControlPlane
from kubetide.clock import SystemClock
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_real_api_server(case: Case, control_plane: ControlPlane) -> None:
    if case.__name__ in REAL_ONLY_DIFFERENCES:
        pytest.skip(REAL_ONLY_DIFFERENCES[case.__name__])
    transport = HttpTransport(from_files([control_plane.kubeconfig("admin")], clock=SystemClock()))
    namespace = f"suite-{uuid.uuid4().hex[:10]}"
    try:
        api = Api(transport, namespace)
        status, body = await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert status == 201, body
        await case(api)
    finally:
        await transport.close()
