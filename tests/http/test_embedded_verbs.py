"""The verb suite against the embedded API server over HTTPS."""

import pytest

from cluster import (  # noqa: F401 - they add their cases
    verb_suite_autoscaling,
    verb_suite_fields,
    verb_suite_nulls,
    verb_suite_protobuf,
    verb_suite_types,
)
from cluster.verb_suite import CASES, Api, Case
from embedded_server import running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_embedded_server_over_https(case: Case) -> None:
    async with running() as server:
        server.api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "suite"}})
        transport = server.transport()
        try:
            await case(Api(transport, "suite"))
        finally:
            await transport.close()
