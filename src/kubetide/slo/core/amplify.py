"""Amplified allocatable of a node, at the moment the kubelet writes its status.

The kubelet knows nothing of amplification and writes what the machine has. So what it writes is kept in an annotation
(`raw-allocatable`) and allocatable becomes raw times ratio. A status in which CPU and memory are as before carries
amplified values: the annotation then has the raw ones.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubetide.api.objects.core import ResourceList
from kubetide.api.objects.resources import CPU, MEMORY, Amounts, parse_list
from kubetide.api.values.codec import decode_folded
from kubetide.slo.core.arithmetic import scale_milli
from kubetide.slo.core.normalization import AMPLIFICATION_ANNOTATION

Raw = dict[str, Any]

RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"


def amplified(old: Mapping[str, Any], new: Raw) -> Raw:
    """Return the node as it should be stored; raise InvalidInput if one of its annotations cannot be read."""
    meta, status = dict(new.get("metadata") or {}), dict(new.get("status") or {})
    annotations = dict(meta.get("annotations") or {})
    text = annotations.get(AMPLIFICATION_ANNOTATION)
    if text is None:
        if RAW_ALLOCATABLE not in annotations:
            return new
        del annotations[RAW_ALLOCATABLE]
        return {**new, "metadata": {**meta, "annotations": annotations}}
    ratios = decode_folded(text, dict[str, float], what=AMPLIFICATION_ANNOTATION)
    allocatable = dict(status.get("allocatable") or {})
    reported = _cpu_and_memory(allocatable)
    if RAW_ALLOCATABLE not in annotations or reported != _cpu_and_memory((old.get("status") or {}).get("allocatable")):
        raw = reported
        stored = {name: str(amount) for name, amount in raw.items()}
        annotations[RAW_ALLOCATABLE] = msgspec.json.encode(stored).decode()
    else:
        raw = _cpu_and_memory(decode_folded(annotations[RAW_ALLOCATABLE], ResourceList, what=RAW_ALLOCATABLE))
    for name, amount in raw.items():
        if ratios.get(name, 0.0) > 1:
            allocatable[name] = str(scale_milli(amount, ratios[name]))
    return {
        **new,
        "metadata": {**meta, "annotations": annotations},
        "status": {**status, "allocatable": allocatable},
    }


def _cpu_and_memory(resources: Mapping[str, Any] | None) -> Amounts:
    return parse_list({name: resources[name] for name in (CPU, MEMORY) if name in resources} if resources else None)
