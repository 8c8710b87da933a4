"""Prices of nodes from OpenCost, where it runs in the cluster: asked through the API server, nothing to configure.

The costs of a day by node are divided by what they were for: core-hours and GiB-hours. So discounts that OpenCost knows
of are in the prices.
"""

from collections.abc import Mapping

import msgspec

from kubetide.api.values.codec import decode
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.recommend.core.money import Price, Prices
from kubetide.recording.prometheus_proxy import Flavour, find_service

OPENCOST = Flavour(("opencost", "opencost-service"), (9003,))
WINDOW = "1d"
_GIB = 2**30


class _Allocation(msgspec.Struct, frozen=True, rename="camel"):
    cpu_core_hours: float = 0.0
    cpu_cost: float = 0.0
    ram_byte_hours: float = 0.0
    ram_cost: float = 0.0


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""
    data: list[dict[str, _Allocation] | None] = []


async def node_prices(client: Client) -> Mapping[str, Price] | None:
    """Return what a core and a GiB cost per hour on each node; None where there is no OpenCost."""
    path = await find_service(client, (OPENCOST,))
    if path is None:
        return None
    query = {"window": WINDOW, "aggregate": "node", "accumulate": "true"}
    body = (await client.request("GET", f"{path}/allocation", query=query)).body
    answer = decode(body, _Answer, what="answer of OpenCost")
    if answer.code != 200:
        raise KubetideError(f"OpenCost answers {answer.code}: {answer.message}")
    return {
        name: Price(each.cpu_cost / each.cpu_core_hours, each.ram_cost / (each.ram_byte_hours / _GIB))
        for part in answer.data
        for name, each in (part or {}).items()
        if each.cpu_core_hours > 0 and each.ram_byte_hours > 0 and not name.startswith("__")
    }


def averaged(by_cluster: Mapping[str, Mapping[str, Price]]) -> Prices | None:
    """Return prices by node; what runs elsewhere costs what the nodes cost on average."""
    by_node = {(cluster, name): price for cluster, found in by_cluster.items() for name, price in found.items()}
    if not by_node:
        return None
    core = sum(price.core for price in by_node.values()) / len(by_node)
    gib = sum(price.gib for price in by_node.values()) / len(by_node)
    return Prices(default=Price(core, gib), by_node=by_node)
