"""Events have two API groups and one storage: core/v1 is stored, events.k8s.io/v1 is a view of it."""

from kubetide.embedded.apiserver.rest.status import Raw

_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)


def event_from_core(obj: Raw) -> Raw:
    """Return the events.k8s.io/v1 view of a core event."""
    view = dict(obj, apiVersion="events.k8s.io/v1")
    for core, modern in _RENAMED:
        if core in view:
            view[modern] = view.pop(core)
    return view


def event_to_core(obj: Raw) -> Raw:
    """Return the core event that an events.k8s.io/v1 object stands for."""
    core_view = dict(obj, apiVersion="v1")
    for core, modern in _RENAMED:
        if modern in core_view:
            core_view[core] = core_view.pop(modern)
    return core_view
