"""Feature gates of the API server, spelt as kube-apiserver spells them: `--feature-gates=Name=true,Other=false`.

A gate that is off makes the server forget a field, or refuse a value, as a cluster does that is not asked for the
feature. The gates and their defaults are those of the newest release; all may be switched, so that an older cluster
can be tried.
"""

from kubetide.api.objects.hpa_compat import CONFIGURABLE_TOLERANCE, DEFAULT_VERSION, GATES, GENERATION, SCALE_TO_ZERO
from kubetide.errors import InvalidInput

SHARDED_LIST_AND_WATCH = "ShardedListAndWatch"
_KNOWN = {
    gate.name: gate.default(DEFAULT_VERSION)
    for gate in GATES
    if gate.name in (CONFIGURABLE_TOLERANCE, GENERATION, SCALE_TO_ZERO)
} | {SHARDED_LIST_AND_WATCH: False}
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
