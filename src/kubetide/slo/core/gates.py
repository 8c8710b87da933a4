"""Feature gates of Koordinator's manager: which exist since when, their defaults, and what kubetide does with them.

Every name that some release knows is accepted, so that the flags of an existing chart start kubetide unchanged. Those
of the scheduler and of quotas have no effect here; they and names that nobody knows are reported once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kubetide.api.values.compat import Version
from kubetide.slo.core.compat import VERSIONS

_ON = frozenset({"true", "t", "1"})
_V4, _V5, _V6, _V7, _V8 = VERSIONS
MAIN = Version(1, 9)
"""The development branch after the newest release."""


@dataclass(frozen=True, slots=True)
class ManagerGate:
    """One gate. `used`: it changes what kubetide does."""

    name: str
    since: Version
    default: bool = False
    stage: str = "alpha"
    used: bool = True

    def default_in(self, version: Version) -> bool:
        """Return the default of a release; one gate was on in 1.6 only."""
        return self.default or (self.name == SYNC_GPU_SHARED and version == _V6)


SYNC_GPU_SHARED = "EnableSyncGPUSharedResource"
_WEBHOOKS = ("PodMutatingWebhook", "PodValidatingWebhook", "WebhookFramework")
_ELASTIC = ("ElasticMutatingWebhook", "ElasticValidatingWebhook")
_USED = {
    _V4: (
        "NodeMutatingWebhook",
        "NodeValidatingWebhook",
        "ConfigMapValidatingWebhook",
        "ColocationProfileSkipMutatingResources",
    ),
    _V6: (SYNC_GPU_SHARED,),
    _V7: (
        "ValidatePodDeviceResource",
        "EnablePodEnhancedValidator",
        "ReservationMutatingWebhook",
        "ColocationProfileController",
    ),
    _V8: ("ColocationProfileSkipValidatingPriority",),
    MAIN: ("DisableExtendedResourceSpec", "DisableDeviceResourceSpec"),
}
_UNUSED = {
    _V4: ("MultiQuotaTree", "ElasticQuotaIgnorePodOverhead", "ElasticQuotaGuaranteeUsage", "DisableDefaultQuota"),
    _V5: ("SupportParentQuotaSubmitPod",),
    _V6: (
        "ElasticQuotaEnableUpdateResourceKey",
        "EnableQuotaAdmission",
        "PriorityTransformer",
        "PreemptionPolicyTransformer",
    ),
    _V8: ("ElasticQuotaEvaluationTransformPod", "ReplaceResourcesTransformer"),
    MAIN: ("EnableQuotaAdmissionOnUpdate", "BindingAdmissionWebhook"),
}
GATES: dict[str, ManagerGate] = {
    gate.name: gate
    for gate in (
        *(ManagerGate(name, _V4, default=True, stage="beta") for name in _WEBHOOKS),
        *(ManagerGate(name, _V4, default=True, stage="beta", used=False) for name in _ELASTIC),
        ManagerGate("DisablePVCReservation", _V4, stage="beta", used=False),
        *(ManagerGate(name, since) for since, names in _USED.items() for name in names),
        *(ManagerGate(name, since, used=False) for since, names in _UNUSED.items() for name in names),
    )
}


def known_gates(version: Version) -> dict[str, ManagerGate]:
    """Return the gates of a release."""
    return {name: gate for name, gate in GATES.items() if gate.since <= version}


def gate_enabled(entries: Sequence[str], name: str, version: Version) -> bool:
    """Return whether a feature is switched on, as `Name=true`: the last entry about it counts, else its default."""
    switched = GATES[name].default_in(version)
    for found, value in _read(entries):
        if found.lower() == name.lower():
            switched = value.lower() in _ON
    return switched


def gate_warnings(entries: Sequence[str], version: Version) -> Iterator[str]:
    """Yield what to report about the gates that were set: unknown, without effect, or of a later release."""
    by_name = {name.lower(): gate for name, gate in GATES.items()}
    known = known_gates(version)
    for name, value in _read(entries):
        gate = by_name.get(name.lower())
        if gate is None:
            yield f"feature gate {name} is not known"
        elif not gate.used and value.lower() in _ON and not gate.default:
            yield f"feature gate {gate.name} has no effect here"
        elif gate.name not in known and gate.since != MAIN:
            yield f"feature gate {gate.name} is of {gate.since}, later than --compat {version}"


def _read(entries: Sequence[str]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        name, _, value = entry.partition("=")
        if name.strip():
            yield name.strip(), value.strip()
