"""Which release of the Vertical Pod Autoscaler decides (`--compat`), and which features are switched on.

`RULES` is the one table of what changed between releases; `docs/reference/compat.md` is made from it. A rule is in
force in one of three ways:

    from its version   an object that an older release accepts must not be refused by us
    as a fix           under every version: the older rule loses data or gives up for good. `upstream_behavior` takes
                       fixes back, for whoever compares decisions with the release
    as an addition     under every version: nothing that an older release says or does becomes different

`GATES` are the feature gates of all three components; each component hands its own list to `gate_enabled`.
"""

from collections.abc import Sequence
from enum import Enum

from kubetide.api.values.compat import Compat, Rule, Version, parse_version
from kubetide.errors import InvalidInput, SettingsError

V1_7 = Version(1, 7)
V1_8 = Version(1, 8)
VERSIONS = (V1_7, V1_8)
DEFAULT = V1_7
"""The newest release; 1.8 is upstream's main branch."""


RESIZE_ERROR_DEFERRED = Rule(
    id="resize-error-deferred",
    since=V1_8,
    always=True,
    fix=True,
    meaning="A resize that failed in the kubelet (`PodResizeInProgress` with reason `Error`) is deferred and "
    "tried again; 1.7 remembers the recommendation as infeasible.",
)
NODE_CAPACITY_INFEASIBLE = Rule(
    id="node-capacity-infeasible",
    since=V1_8,
    always=True,
    fix=True,
    meaning="A resize patch that the API server forbids with cause `NodeCapacity` is infeasible; other failures "
    "are not.",
)
OOM_AGE_FROM_LAST_SAMPLE = Rule(
    id="oom-age-from-last-sample",
    since=V1_8,
    always=True,
    fix=True,
    meaning="An OOM kill is too old when it is more than a memory interval older than the last sample; 1.7 "
    "measures from the end of the window and loses fresh ones.",
)
PODS_LEAVE_AFTER_SAMPLES = Rule(
    id="pods-leave-after-samples",
    since=V1_8,
    always=True,
    fix=True,
    meaning="Pods that are gone leave the model after the samples and OOM kills of the loop are in (step "
    "`DeleteRemovedPods`).",
)
CONTROLLED_RESOURCES = Rule(
    id="controlled-resources-validated",
    since=V1_8,
    meaning="`controlledResources` takes `cpu` and `memory` only; names that the stored object uses stay "
    "allowed with a warning.",
)
TARGET_BY_SCHEMA = Rule(
    id="target-ref-by-schema",
    since=V1_8,
    meaning="A new VPA without `targetRef` is left to the schema of the custom resource; 1.7 refuses it in the "
    "webhook.",
)
SKIPPED_RESIZES = Rule(
    id="skipped-resizes-reported",
    since=V1_8,
    always=True,
    meaning="A pod whose resize is skipped as infeasible gets the event `InPlaceResizeSkipped` and counts in "
    "`vpa_updater_in_place_infeasible_skip_pods_total`.",
)
ZERO_COUNTERS = Rule(
    id="counters-start-at-zero",
    since=V1_8,
    always=True,
    meaning="`evicted_pods_total` and `in_place_updated_pods_total` exist with 0 for every VPA that was looked at.",
)
WARNINGS_WITH_ERRORS = Rule(
    id="warnings-with-errors",
    since=V1_8,
    always=True,
    meaning="Warnings about a VPA come back with the answer that refuses it, too.",
)
POINTERS_ESCAPED = Rule(
    id="patch-paths-escaped",
    since=V1_8,
    always=True,
    meaning="Resource names and annotation keys are escaped in patch paths (`~` and `/`).",
)
BODY_LIMIT = Rule(
    id="review-body-limit",
    since=V1_8,
    always=True,
    meaning="A review of more than 5 MiB is answered with HTTP 413.",
)
STATUS_LEASE_FLAGS = Rule(
    id="status-lease-flags",
    since=V1_8,
    always=True,
    meaning="The lease between admission controller and updater has flags for name, namespace and times.",
)

RULES = (
    RESIZE_ERROR_DEFERRED,
    NODE_CAPACITY_INFEASIBLE,
    OOM_AGE_FROM_LAST_SAMPLE,
    PODS_LEAVE_AFTER_SAMPLES,
    CONTROLLED_RESOURCES,
    TARGET_BY_SCHEMA,
    SKIPPED_RESIZES,
    ZERO_COUNTERS,
    WARNINGS_WITH_ERRORS,
    POINTERS_ESCAPED,
    BODY_LIMIT,
    STATUS_LEASE_FLAGS,
)


FOLLOWED = Compat(DEFAULT)
"""What is followed where nothing else is asked for."""


def compat_of(text: str, *, exactly: bool = False) -> Compat:
    """Return what `--compat` asks for: `1.7`, `v1.7` or `1.7.1`; SettingsError for a release that is not known."""
    try:
        return Compat(parse_version(text, VERSIONS), exactly)
    except InvalidInput as error:
        raise SettingsError(str(error), field="compat") from error


class GateStage(Enum):
    """How far a feature is."""

    ALPHA = "alpha"
    REMOVED = "always on"


GATES: dict[str, GateStage] = {
    "CPUStartupBoost": GateStage.ALPHA,
    "DaemonSetScope": GateStage.ALPHA,
    "InPlace": GateStage.ALPHA,
    "InPlaceOrRecreate": GateStage.REMOVED,
    "NativeSidecar": GateStage.ALPHA,
    "PerVPAConfig": GateStage.ALPHA,
    "RequestToLimitRatio": GateStage.ALPHA,
    "VPAPodLevelResources": GateStage.ALPHA,
}
_GROUPS = {"AllAlpha": GateStage.ALPHA, "AllBeta": None}


def gate_enabled(gates: Sequence[str], name: str) -> bool:
    """Return whether a feature is switched on: by its own name, else by its group; the last mention counts."""
    named: bool | None = None
    grouped = False
    for entry in gates:
        key, value = _gate(entry)
        if key == name:
            named = value
        elif key in _GROUPS and _GROUPS[key] is GATES[name]:
            grouped = value
    if GATES[name] is GateStage.REMOVED:
        return True
    return grouped if named is None else named


def check_gates(gates: Sequence[str], *, section: str) -> None:
    """Raise SettingsError for a gate that is unknown, or neither true nor false."""
    for entry in gates:
        try:
            key, _ = _gate(entry)
        except SettingsError as error:
            raise SettingsError(str(error), subject=section, field="feature_gates") from error
        if key not in GATES and key not in _GROUPS:
            known = ", ".join(sorted({*GATES, *_GROUPS}))
            raise SettingsError(
                f"unknown feature gate {key!r} (known: {known})", subject=section, field="feature_gates"
            )


def _gate(entry: str) -> tuple[str, bool]:
    key, _, text = entry.partition("=")
    spelt = text.strip().lower()
    if spelt not in ("true", "false", "1", "0", "t", "f"):
        raise SettingsError(f"feature gate {key.strip()!r} must be true or false")
    return key.strip(), spelt in ("true", "1", "t")
