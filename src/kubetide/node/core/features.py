"""Feature gates of the agent: names and defaults as upstream has them, parsed from `Name=true,Other=false`.

`AllAlpha` and `AllBeta` switch groups; a gate that is named itself wins over its group. Every gate is accepted under
every version, but a group reaches only the gates that the version in force has: charts switch AllAlpha on, and an
upgrade of the agent must not begin to evict pods because of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kubetide.api.values.compat import Compat, Version
from kubetide.errors import SettingsError
from kubetide.node.core.compat import NEWEST, V4, V5, V6, V7, V8

UNRELEASED: Version = Version(1, 9)
"""Gates of upstream's development branch: no version that can be chosen has them."""


@dataclass(frozen=True, slots=True)
class NodeGate:
    """A switch, its stage, what it is by default, and the version that brought it."""

    default: bool
    stage: str
    since: Version = V4


ALPHA, BETA = "alpha", "beta"

GATES: dict[str, NodeGate] = {
    "AuditEvents": NodeGate(True, ALPHA),
    "AuditEventsHTTPHandler": NodeGate(True, ALPHA),
    "BECPUSuppress": NodeGate(True, BETA),
    "BECPUManager": NodeGate(False, ALPHA),
    "BECPUEvict": NodeGate(False, ALPHA),
    "BEMemoryEvict": NodeGate(False, ALPHA),
    "CPUBurst": NodeGate(True, BETA),
    "SystemConfig": NodeGate(False, ALPHA),
    "RdtResctrl": NodeGate(True, BETA),
    "CgroupReconcile": NodeGate(False, ALPHA),
    "NodeTopologyReport": NodeGate(True, BETA),
    "Accelerators": NodeGate(False, ALPHA),
    "CPICollector": NodeGate(False, ALPHA),
    "Libpfm4": NodeGate(False, ALPHA),
    "PSICollector": NodeGate(False, ALPHA),
    "BlkIOReconcile": NodeGate(False, ALPHA),
    "ColdPageCollector": NodeGate(False, ALPHA),
    "HugePageReport": NodeGate(False, ALPHA),
    "RDMADevices": NodeGate(False, ALPHA, V6),
    "PodResourcesProxy": NodeGate(False, ALPHA, V6),
    "CPUEvict": NodeGate(False, ALPHA, V7),
    "MemoryEvict": NodeGate(False, ALPHA, V7),
    "ResctrlCollector": NodeGate(False, ALPHA, V7),
    "HamiCoreVGPUMonitor": NodeGate(False, ALPHA, V7),
    "CPUAllocatableEvict": NodeGate(False, ALPHA, V8),
    "MemoryAllocatableEvict": NodeGate(False, ALPHA, V8),
    "PerCPUMetric": NodeGate(False, ALPHA, UNRELEASED),
    "NodeMetricPromMetrics": NodeGate(False, ALPHA, UNRELEASED),
}

HOOK_GATES: dict[str, NodeGate] = {
    "GroupIdentity": NodeGate(True, BETA),
    "CPUSetAllocator": NodeGate(True, BETA),
    "GPUEnvInject": NodeGate(False, ALPHA),
    "BatchResource": NodeGate(True, BETA),
    "CPUNormalization": NodeGate(False, ALPHA),
    "CoreSched": NodeGate(False, ALPHA),
    "TerwayQoS": NodeGate(False, ALPHA, V5),
    "TCNetworkQoS": NodeGate(False, ALPHA, V6),
    "Resctrl": NodeGate(False, ALPHA, V6),
    "RDMADeviceInject": NodeGate(False, ALPHA, V6),
    "OOMScoreAdj": NodeGate(False, ALPHA, UNRELEASED),
}

UNSUPPORTED: dict[str, str] = {
    "Libpfm4": "counters are read with perf_event_open",
    "RDMADevices": "RDMA devices are not reported",
    "RDMADeviceInject": "RDMA devices are not given to containers",
    "PodResourcesProxy": "there is no pod-resources socket of its own",
    "HamiCoreVGPUMonitor": "GPU shares of HAMi are not watched",
    "PerCPUMetric": "usage is not reported by CPU",
    "NodeMetricPromMetrics": "the NodeMetric is not repeated as gauges",
}
"""Gates that are accepted and do nothing here, with what is missing; one line of the log names those that are on."""

_GROUPS = {"AllAlpha": ALPHA, "AllBeta": BETA}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def switches(text: str, *, field: str, what: str = "extension") -> dict[str, bool]:
    """Read `name=true,other=false`; raise SettingsError for a value that is neither."""
    found: dict[str, bool] = {}
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        name, equals, value = item.partition("=")
        if not equals or value.strip() not in _TRUE | _FALSE:
            raise SettingsError(f"{what} {name} must be true or false", field=field)
        found[name.strip()] = value.strip() in _TRUE
    return found


def parse_gates(text: str, known: dict[str, NodeGate] = GATES, compat: Compat = NEWEST) -> dict[str, bool]:
    """Return all gates as switched by `text`; raise SettingsError for an unknown gate or value."""
    wanted = switches(text, field="feature-gates", what="feature gate")
    for name in wanted:
        if name not in known and name not in _GROUPS:
            raise SettingsError(f"unknown feature gate {name!r}", field="feature-gates")
    result = {name: gate.default for name, gate in known.items()}
    for group, stage in _GROUPS.items():
        if group in wanted:
            reached = (name for name, gate in known.items() if gate.stage == stage and gate.since <= compat.version)
            result.update(dict.fromkeys(reached, wanted[group]))
    result.update({name: value for name, value in wanted.items() if name in known})
    return result


def unsupported(gates: Mapping[str, bool]) -> list[str]:
    """Return what does not work here of the gates that are on, by themselves or by their group."""
    return [f"{name}: {UNSUPPORTED[name]}" for name, on in gates.items() if on and name in UNSUPPORTED]
