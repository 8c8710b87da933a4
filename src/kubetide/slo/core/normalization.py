"""CPU normalization: how much faster a node's CPU is than the baseline machine, and what follows from it.

The ratio comes from a table by CPU model and by what is switched on (hyper-threading, turbo). It is written on the
node with two decimals; the amplification annotation follows the ratio that is already on the node, one reconcile later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kubetide.api.objects.core import Node
from kubetide.api.objects.meta import ApiObject
from kubetide.api.objects.resources import CPU
from kubetide.api.qos import cpu_normalization
from kubetide.api.values.codec import decode_folded
from kubetide.errors import InvalidInput
from kubetide.slo.core.config import choose, own_fields

Raw = dict[str, Any]

AMPLIFICATION_ANNOTATION = "node.koordinator.sh/resource-amplification-ratio"
CPU_BASIC_INFO_ANNOTATION = "node.koordinator.sh/cpu-basic-info"

_LOWEST, _HIGHEST = 1.0, 5.0
_SAME = 0.01


class CPUBasicInfo(ApiObject, frozen=True, kw_only=True, gc=False):
    """What the agent reports about the CPU of its node."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False


class NormalizationError(InvalidInput):
    """No ratio can be calculated; what is on the node stays."""


@dataclass(frozen=True, slots=True)
class Amplification:
    """The annotation to write, or None: it goes. `error` says why there is none, if something is wrong."""

    annotation: str | None
    error: str = ""


def strategy_of(config: Mapping[str, Any], node: Node) -> Raw:
    """Return the normalization or amplification strategy for a node."""
    entry = choose(config.get("nodeConfigs"), node.metadata.labels)
    if entry is not None:
        return own_fields(entry)
    return {name: value for name, value in config.items() if name != "nodeConfigs"}


def normalization_annotation(strategy: Mapping[str, Any], node: Node, info_text: str | None) -> str:
    """Return the text of the ratio annotation; raise NormalizationError if it cannot be known."""
    try:
        switch = cpu_normalization.node_switch(node.metadata.labels)
    except InvalidInput as error:
        raise NormalizationError(str(error)) from error
    enabled = switch if switch is not None else strategy.get("enable") is True
    return cpu_normalization.ratio_text(_ratio(strategy, info_text) if enabled else 1.0)


def annotation_needs_write(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> bool:
    """Return whether the ratio on the node must change; an unreadable new ratio is not written."""
    try:
        wanted = cpu_normalization.node_ratio(new)
    except InvalidInput:
        return False
    try:
        found = cpu_normalization.node_ratio(old)
    except InvalidInput:
        return True
    if (found == -1) != (wanted == -1):
        return True
    return abs(found - wanted) > _SAME


def amplification(node: Node, strategy: Mapping[str, Any]) -> Amplification:
    """Return the amplification annotation: configured ratios, CPU times the ratio that is already on the node.

    One ratio below 1 takes the whole annotation away: a node that shrinks for the scheduler is a mistake.
    """
    try:
        normalized = cpu_normalization.node_ratio(node.metadata.annotations)
    except InvalidInput as error:
        return Amplification(None, str(error))
    ratios = dict(strategy.get("resourceAmplificationRatio") or {}) if strategy.get("enable") is True else {}
    configured = ratios.get(CPU, 0.0)
    cpu = (configured if configured > 0 else 1.0) * (normalized if normalized > 0 else 1.0)
    if cpu > 1:
        ratios[CPU] = cpu
    for name, ratio in sorted(ratios.items()):
        if ratio < 1:
            return Amplification(None, f"the amplification ratio of {name} is {ratio}, must be at least 1")
    # Two decimals are part of the protocol; JSON encoders would drop the zeros.
    texts = [f"{msgspec.json.encode(name).decode()}:{ratio:.2f}" for name, ratio in sorted(ratios.items())]
    return Amplification("{" + ",".join(texts) + "}" if texts else None)


def ratio_above_one(annotations: Mapping[str, str] | None) -> float:
    """Return the calculated ratio if it enlarges anything, else 1."""
    try:
        return max(cpu_normalization.node_ratio(annotations), 1.0)
    except InvalidInput:
        return 1.0


def _ratio(strategy: Mapping[str, Any], info_text: str | None) -> float:
    if not info_text:
        raise NormalizationError("the node's topology has no CPU information yet")
    try:
        info = decode_folded(info_text, CPUBasicInfo, what=CPU_BASIC_INFO_ANNOTATION)
    except InvalidInput as error:
        raise NormalizationError(str(error)) from error
    model = (strategy.get("ratioModel") or {}).get(info.cpu_model) or {}
    field = {
        (False, False): "baseRatio",
        (True, False): "hyperThreadEnabledRatio",
        (False, True): "turboEnabledRatio",
        (True, True): "hyperThreadTurboEnabledRatio",
    }[info.hyper_thread_enabled, info.turbo_enabled]
    what, ratio = f"{field} of CPU model {info.cpu_model!r}", model.get(field)
    if ratio is None:
        what, ratio = "defaultRatio", strategy.get("defaultRatio")
    if ratio is None:
        raise NormalizationError(f"{field} of CPU model {info.cpu_model!r} is not given, nor is a defaultRatio")
    if not _LOWEST <= ratio <= _HIGHEST:
        raise NormalizationError(f"{what} is {ratio}, must be 1.0 to 5.0")
    return float(ratio)
