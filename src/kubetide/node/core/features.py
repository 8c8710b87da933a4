"""Feature gates of the agent: names and defaults of the reference, parsed from `Name=true,Other=false`.

`AllAlpha` and `AllBeta` switch groups; a gate that is named itself wins over its group.
"""

from dataclasses import dataclass

from kubetide.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Gate:
    """A switch, its stage and what it is by default."""

    default: bool
    stage: str


ALPHA, BETA = "alpha", "beta"

GATES: dict[str, Gate] = {
    "AuditEvents": Gate(True, ALPHA),
    "AuditEventsHTTPHandler": Gate(True, ALPHA),
    "BECPUSuppress": Gate(True, BETA),
    "BECPUManager": Gate(False, ALPHA),
    "BECPUEvict": Gate(False, ALPHA),
    "BEMemoryEvict": Gate(False, ALPHA),
    "CPUBurst": Gate(True, BETA),
    "SystemConfig": Gate(False, ALPHA),
    "RdtResctrl": Gate(True, BETA),
    "CgroupReconcile": Gate(False, ALPHA),
    "NodeTopologyReport": Gate(True, BETA),
    "Accelerators": Gate(False, ALPHA),
    "CPICollector": Gate(False, ALPHA),
    "Libpfm4": Gate(False, ALPHA),
    "PSICollector": Gate(False, ALPHA),
    "BlkIOReconcile": Gate(False, ALPHA),
    "ColdPageCollector": Gate(False, ALPHA),
    "HugePageReport": Gate(False, ALPHA),
}

HOOK_GATES: dict[str, Gate] = {
    "GroupIdentity": Gate(True, BETA),
    "CPUSetAllocator": Gate(True, BETA),
    "GPUEnvInject": Gate(False, ALPHA),
    "BatchResource": Gate(True, BETA),
    "CPUNormalization": Gate(False, ALPHA),
    "CoreSched": Gate(False, ALPHA),
}

IGNORED = frozenset({"Libpfm4"})
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


def parse_gates(text: str, known: dict[str, Gate] = GATES) -> dict[str, bool]:
    """Return all gates as switched by `text`; raise SettingsError for an unknown gate or value."""
    wanted = switches(text, field="feature-gates", what="feature gate")
    for name in wanted:
        if name not in known and name not in _GROUPS:
            raise SettingsError(f"unknown feature gate {name!r}", field="feature-gates")
    result = {name: gate.default for name, gate in known.items()}
    for group, stage in _GROUPS.items():
        if group in wanted:
            result.update({name: wanted[group] for name, gate in known.items() if gate.stage == stage})
    result.update({name: value for name, value in wanted.items() if name in known})
    return result
