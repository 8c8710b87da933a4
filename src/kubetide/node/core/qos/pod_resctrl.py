"""Cache and memory bandwidth of one pod, as its annotation asks for it: a resctrl group of its own.

    {"llc": {"schemata": {"range": [0, 30]}, "schemataPerCache": [{"cacheID": 1, "range": [0, 50]}]},
     "mb":  {"schemata": {"percent": 20},    "schemataPerCache": [{"cacheID": 0, "percent": 40}]}}

A line is written only when it is complete: a value for every cache of the machine and none for one that it does not
have. A range that is none ends the reading; what was read before stays. Without any line there is no group, because
hardware has few of them.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kubetide.api.objects.meta import ApiObject
from kubetide.api.qos.qos import ANNOTATION_RESCTRL
from kubetide.api.values.codec import decode_folded
from kubetide.errors import InvalidInput
from kubetide.node.core.qos.l3_cache import AMD_VENDOR, INTEL_VENDOR, l3_mask, mba_value
from kubetide.node.core.snapshot import PodState, Snapshot

GATE = "Resctrl"
GROUP_PREFIX = "koordlet-"
_VENDORS = frozenset({INTEL_VENDOR, AMD_VENDOR})


class _Share(ApiObject, frozen=True, kw_only=True, gc=False):
    range: tuple[int, ...] = ()
    percent: int = 0


class _CacheShare(_Share, frozen=True, kw_only=True, gc=False):
    cache_id: int = msgspec.field(name="cacheID", default=0)


class _Resource(ApiObject, frozen=True, kw_only=True, gc=False):
    schemata: _Share | None = None
    schemata_per_cache: tuple[_CacheShare, ...] | None = None


class _PodResctrl(ApiObject, frozen=True, kw_only=True, gc=False):
    llc: _Resource | None = None
    mb: _Resource | None = None


def group_of(uid: str) -> str:
    """Return the name of a pod's own group."""
    return f"{GROUP_PREFIX}{uid}"


def own_groups(snapshot: Snapshot) -> dict[str, PodState]:
    """Return the pods that ask for a resctrl group of their own, by its name; none while the gate is off."""
    if not snapshot.gates.get(GATE, False):
        return {}
    return {group_of(pod.uid): pod for pod in snapshot.pods if pod.is_active and annotation_of(pod)}


def annotation_of(pod: PodState) -> str:
    """Return what a pod asks for; empty when it asks for nothing."""
    return asked_for(pod.pod.metadata.annotations)


def asked_for(annotations: Mapping[str, str] | None) -> str:
    """Return the text of the annotation; empty when it asks for nothing."""
    text = (annotations or {}).get(ANNOTATION_RESCTRL, "")
    return "" if text.strip() in ("{}", "null") else text


def pod_schemata(text: str, *, cache_ids: Sequence[int], cbm: int, vendor: str) -> str:
    """Return the schemata of a pod's own group, empty for no group; raise DecodeError for unreadable text."""
    wanted = decode_folded(text, _PodResctrl, what=ANNOTATION_RESCTRL)
    l3: dict[int, str] = {}
    mb: dict[int, str] = {}
    try:
        for cache_id, share in _shares(wanted.llc, cache_ids):
            if share.range:
                l3[cache_id] = _mask(cbm, share.range)
        for cache_id, share in _shares(wanted.mb, cache_ids):
            if share.percent and vendor in _VENDORS:
                mb[cache_id] = mba_value(share.percent, vendor)
    except InvalidInput:
        pass  # what was read before the unusable range stays
    return _line("L3", l3, cache_ids) + _line("MB", mb, cache_ids)


def _shares(resource: _Resource | None, cache_ids: Sequence[int]) -> Iterator[tuple[int, _Share]]:
    """Yield the share of every cache, then those that override single ones."""
    if resource is None:
        return
    if resource.schemata is not None:
        for cache_id in cache_ids:
            yield cache_id, resource.schemata
    for one in resource.schemata_per_cache or ():
        yield one.cache_id, one


def _mask(cbm: int, limits: tuple[int, ...]) -> str:
    if len(limits) != 2:
        raise InvalidInput("a range has a start and an end", subject=ANNOTATION_RESCTRL, field="range")
    return l3_mask(cbm, *limits)


def _line(name: str, values: dict[int, str], cache_ids: Sequence[int]) -> str:
    if set(values) != set(cache_ids) or not all(values.values()):
        return ""
    return f"{name}:" + "".join(f"{cache_id}={values[cache_id]};" for cache_id in sorted(values)) + "\n"
