"""Horizontal autoscaling by release: which rule holds from which Kubernetes version, and the feature gates.

The controller and the API server follow one table, because both look at the same gates: the server decides which
fields are kept, the controller which of them it honours. 1.38 behaves like 1.37.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kubetide.api.values.compat import Gate, Rule, Version, parse_version
from kubetide.errors import InvalidInput

VERSIONS = tuple(Version(1, minor) for minor in range(33, 39))
DEFAULT_VERSION = Version(1, 37)
SAME_AS_NEWEST = frozenset({Version(1, 37), Version(1, 38)})
"""Releases that behave alike."""
_V33, _V34, _V35, _V36, _V37, _ = VERSIONS

SCALE_TO_ZERO = "HPAScaleToZero"
CONFIGURABLE_TOLERANCE = "HPAConfigurableTolerance"
GENERATION = "HPAGeneration"
GATES_FIELD = "feature-gates"
"""What an error about a gate names as its field."""
_POD_LEVEL = "PodLevelResources"
_POD_LEVEL_IN_PLACE = "InPlacePodLevelResourcesVerticalScaling"

GATES = (
    Gate(
        name=SCALE_TO_ZERO,
        since=_V33,
        on_since=_V37,
        meaning="minReplicas may be 0; from 1.36 on the controller remembers that it scaled to zero itself",
    ),
    Gate(
        name=CONFIGURABLE_TOLERANCE,
        since=_V33,
        on_since=_V35,
        locked_since=_V37,
        meaning="behavior.scaleUp.tolerance and behavior.scaleDown.tolerance are kept and honoured",
    ),
    Gate(
        name=GENERATION,
        since=_V37,
        on_since=_V37,
        meaning="metadata.generation is counted, status.observedGeneration is written",
    ),
    Gate(name=_POD_LEVEL, since=_V33, on_since=_V34, meaning="pod-level requests count for utilization"),
    Gate(name=_POD_LEVEL_IN_PLACE, since=_V35, on_since=_V36, meaning="accepted; horizontal scaling does not use it"),
    Gate(name="HPAOptimizedSelectorStore", since=_V37, on_since=_V37, meaning="accepted; changes no decision"),
    Gate(
        name="StaleControllerConsistencyHPA",
        since=_V37,
        on_since=_V37,
        meaning="accepted; kubetide always waits for its cache to show its own status write",
    ),
)

POD_LEVEL_REQUESTS = Rule(
    id="pod-level-requests",
    since=_V34,
    gate=_POD_LEVEL,
    meaning="utilization of a pod with pod-level requests is measured against those, with init containers and overhead",
)
CONTAINER_MUST_EXIST = Rule(
    id="container-not-found",
    since=_V35,
    meaning="a ContainerResource metric fails while any pod lacks the container; before, such a pod requests nothing",
)
SCALED_TO_ZERO = Rule(
    id="scaled-to-zero",
    since=_V36,
    meaning="a target at 0 replicas is woken only if the condition ScaledToZero says that the autoscaler put it there",
)
TOLERANCE = Rule(
    id="tolerance-per-direction",
    since=_V33,
    gate=CONFIGURABLE_TOLERANCE,
    meaning="behavior.scaleUp.tolerance and behavior.scaleDown.tolerance replace the cluster's tolerance",
)
OBSERVED_GENERATION = Rule(
    id="observed-generation",
    since=_V37,
    gate=GENERATION,
    meaning="the API server counts metadata.generation, every full status write sets status.observedGeneration",
)
BINARY_MEMORY = Rule(
    id="binary-memory",
    since=_V34,
    meaning="averages of memory are written in binary units (512Mi) in the status; the amount is the same",
)
SPEC_ERROR_LABEL = Rule(
    id="spec-error-label",
    since=_V37,
    meaning="reconciliations whose first failed metric has an unknown type are labelled spec instead of internal",
)
REFERENCE_VERSIONS = Rule(
    id="reference-api-version",
    since=_V34,
    meaning="scaleTargetRef.apiVersion must name a group (not for ReplicationController), describedObject.apiVersion "
    "must parse; objects stored before stay editable",
)
MAX_REPLICAS_REQUIRED = Rule(
    id="max-replicas-required",
    since=_V36,
    meaning="a maxReplicas of 0 is reported as Required, before as Invalid",
)
ERRORS_ONCE = Rule(id="errors-once", since=_V37, meaning="identical validation errors are reported once")
MINIMUM_OF_ZERO = Rule(
    id="minimum-of-zero",
    since=_V33,
    gate=SCALE_TO_ZERO,
    meaning="minReplicas may be 0 (with an Object or External metric)",
)
CONDITION_GENERATION = Rule(
    id="condition-generation",
    since=_V37,
    meaning="status.conditions[].observedGeneration is kept and must not be negative",
)

RULES = (
    POD_LEVEL_REQUESTS,
    CONTAINER_MUST_EXIST,
    Rule(
        id="replica-range",
        since=_V35,
        always=True,
        meaning="proposals and sums beyond their range become the end of it instead of wrapping around",
    ),
    SCALED_TO_ZERO,
    TOLERANCE,
    OBSERVED_GENERATION,
    Rule(
        id="immediate-reconcile",
        since=_V37,
        always=True,
        meaning="a new autoscaler and a changed spec are handled at once",
    ),
    Rule(
        id="scale-conflict-retry",
        since=_V34,
        always=True,
        meaning="a conflict on /scale is retried, five attempts in all, unless somebody else set another count",
    ),
    BINARY_MEMORY,
    Rule(
        id="replica-gauges",
        since=_V35,
        always=True,
        meaning="gauges num_horizontal_pod_autoscalers and desired_replicas",
    ),
    SPEC_ERROR_LABEL,
    Rule(
        id="read-your-writes",
        since=_V37,
        always=True,
        meaning="no reconcile from a cache older than the last status write (stale_sync_skips_total counts)",
    ),
    REFERENCE_VERSIONS,
    MAX_REPLICAS_REQUIRED,
    Rule(
        id="v1-object-average",
        since=_V36,
        always=True,
        meaning="an Object metric with an average keeps its shape on the way through autoscaling/v1",
    ),
    ERRORS_ONCE,
    MINIMUM_OF_ZERO,
    CONDITION_GENERATION,
    Rule(
        id="deleted-meanwhile",
        since=_V37,
        always=True,
        meaning="an autoscaler that is deleted while it is decided about changes nothing any more",
    ),
    Rule(
        id="scale-by-count-alone",
        since=_V37,
        always=True,
        meaning="a write of /scale is checked by spec.replicas, whatever its labels and annotations are",
    ),
    Rule(
        id="usage-in-v1",
        since=_V37,
        always=True,
        meaning="usage is read as metrics.k8s.io/v1 where v1beta1 is not served",
    ),
)


def gate_rows() -> list[tuple[str, str, str, str, str]]:
    """Return the table of gates for people: gate, releases from which it exists, is on, is final; meaning."""
    return [
        (gate.name, str(gate.since), str(gate.on_since), str(gate.locked_since or ""), gate.meaning) for gate in GATES
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaCompat:
    """The release to behave like, and the gates that are on."""

    version: Version = DEFAULT_VERSION
    gates: frozenset[str] = frozenset(gate.name for gate in GATES if gate.default(DEFAULT_VERSION))

    def has(self, rule: Rule) -> bool:
        """Return whether a rule holds."""
        return self.version >= rule.since and (not rule.gate or rule.gate in self.gates)

    def gate(self, name: str) -> bool:
        """Return whether a gate is on."""
        return name in self.gates


def hpa_compat(version: str = str(DEFAULT_VERSION), gates: Iterable[tuple[str, bool]] = ()) -> HpaCompat:
    """Return the behaviour of a release with single gates set; refuse what that release would refuse."""
    chosen = parse_version(version, VERSIONS)
    known = {gate.name: gate for gate in GATES if chosen >= gate.since}
    on = {name: gate.default(chosen) for name, gate in known.items()}
    for name, value in gates:
        if name not in known:
            known_names = ", ".join(known)
            raise InvalidInput(f"unknown feature gate {name!r} in {chosen} (known: {known_names})", field=GATES_FIELD)
        if known[name].locked(chosen) and value != on[name]:
            final = f"{name} is final since {known[name].locked_since}: it can only be {_word(on[name])}"
            raise InvalidInput(final, field=GATES_FIELD)
        on[name] = value
    if on.get(_POD_LEVEL_IN_PLACE) and not on[_POD_LEVEL]:
        raise InvalidInput(f"{_POD_LEVEL_IN_PLACE} needs {_POD_LEVEL}: switch both off", field=GATES_FIELD)
    return HpaCompat(version=chosen, gates=frozenset(name for name, value in on.items() if value))


def _word(on: bool) -> str:
    return "true" if on else "false"
