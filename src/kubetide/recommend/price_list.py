"""Prices from the command line or from a file, which may differ by the labels of nodes.

default: {cpu: 0.03, gib: 0.004}
nodes:
  - match: {node.kubernetes.io/instance-type: m5.large}
    cpu: 0.025
    gib: 0.0035
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kubetide.api.objects.core import Node
from kubetide.errors import InvalidInput
from kubetide.recommend.core.money import Price, Prices


class _Amounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpu: float
    gib: float


class _Nodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: dict[str, str]
    cpu: float
    gib: float


class PriceList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Money per core-hour and GiB-hour, in any currency."""

    default: _Amounts
    nodes: list[_Nodes] = []

    def prices(self, nodes: Mapping[str, Sequence[Node]]) -> Prices:
        """Return the prices of nodes, by cluster; of several entries that match a node the first counts."""
        by_node: dict[tuple[str, str], Price] = {}
        for cluster, members in nodes.items():
            for node in members:
                labels = node.metadata.labels or {}
                fits = next((each for each in self.nodes if each.match.items() <= labels.items()), None)
                if fits is not None:
                    by_node[cluster, node.metadata.name] = Price(fits.cpu, fits.gib)
        return Prices(default=Price(self.default.cpu, self.default.gib), by_node=by_node)


def read_prices(text: str) -> PriceList | None:
    """Return what --price says: `cpu=…,gib=…`, the name of a file, or nothing."""
    if not text:
        return None
    if "=" in text:
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            amounts = _Amounts(float(parts.pop("cpu")), float(parts.pop("gib")))
        except (KeyError, ValueError) as error:
            raise InvalidInput(f"{text!r} is not such as cpu=0.03,gib=0.004", field="--price") from error
        if parts:
            raise InvalidInput(f"{', '.join(parts)}: only cpu and gib have a price", field="--price")
        return _checked(PriceList(amounts), text)
    try:
        return _checked(msgspec.yaml.decode(Path(text).read_bytes(), type=PriceList), text)
    except OSError as error:
        raise InvalidInput(f"{text}: {error.strerror}", field="--price") from error
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{text}: {error}", field="--price") from error


def _checked(found: PriceList, text: str) -> PriceList:
    prices = [found.default.cpu, found.default.gib, *(price for each in found.nodes for price in (each.cpu, each.gib))]
    if not all(math.isfinite(price) and price >= 0 for price in prices):
        raise InvalidInput(f"{text}: a price is a number from 0 on", field="--price")
    return found
