"""The verb suite against the embedded API server, in process and in virtual time."""

import pytest

from cluster import (  # noqa: F401 - they add their cases
    verb_suite_fields,
    verb_suite_nulls,
    verb_suite_protobuf,
    verb_suite_types,
)
from cluster.verb_suite import CASES, Api, Case
from cluster.verb_suite_autoscaling import WITHOUT_GATES
from kubetide.embedded.apiserver.gates import parse_gates
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_embedded_server_in_process(case: Case) -> None:
    async def main() -> None:
        api = ApiServer(clock=virtual_clock())
        api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "suite"}})
        await case(Api(InProcessTransport(api), "suite"))

    run_virtual(main())


@pytest.mark.parametrize("case", WITHOUT_GATES, ids=lambda case: case.__name__)
def test_the_embedded_server_without_gates(case: Case) -> None:
    async def main() -> None:
        api = ApiServer(clock=virtual_clock(), gates=parse_gates("HPAScaleToZero=false,HPAGeneration=false"))
        api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "suite"}})
        await case(Api(InProcessTransport(api), "suite"))

    run_virtual(main())
