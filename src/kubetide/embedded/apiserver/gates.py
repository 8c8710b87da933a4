"""Feature gates of the API server, spelt as kube-apiserver spells them: `--feature-gates=Name=true,Other=false`.

A gate that is off makes the server forget a field, or refuse a value, as a cluster does that is not asked for the
feature. Configurable tolerance is on here, unlike in Kubernetes up to 1.34, so that it can be tried without asking.
"""

from kubetide.errors import InvalidInput

CONFIGURABLE_TOLERANCE = "HPAConfigurableTolerance"
SCALE_TO_ZERO = "HPAScaleToZero"

_KNOWN = {CONFIGURABLE_TOLERANCE: True, SCALE_TO_ZERO: False}
_SPELLINGS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}

DEFAULT_GATES = frozenset(name for name, on in _KNOWN.items() if on)


def parse_gates(text: str) -> frozenset[str]:
    """Return the gates that are on; refuse a gate that is not known and a value that is neither true nor false."""
    gates = dict(_KNOWN)
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in gates:
            raise InvalidInput(f"unknown feature gate {name!r} (known: {', '.join(gates)})", field="--feature-gates")
        if value not in _SPELLINGS:
            raise InvalidInput(f"{name} must be true or false", field="--feature-gates")
        gates[name] = _SPELLINGS[value]
    return frozenset(name for name, on in gates.items() if on)
