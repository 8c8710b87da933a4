"""From a proposal to the final count: windows, limits, and what is remembered."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.hpa import Behavior
from kubetide.api.values.codec import convert
from kubetide.hpa.core.behavior import ScaleEvent, ScaleEvents, complete_rules, limit_by_rules, limit_plain
from kubetide.hpa.core.observation import Memory
from kubetide.hpa.core.stabilization import Recommendation, Recommendations, stabilize, stabilize_both_ways


@suite("hpa/normalize")
def normalize(case: dict[str, Any]) -> Iterable[str]:
    given, expected = case["in"], case["out"]
    now = convert(case["now"], datetime)
    window = timedelta(seconds=case["config"]["downscaleStabilizationSeconds"])
    current, proposal = given["currentReplicas"], given["desiredReplicas"]
    minimum, maximum = given["minReplicas"], given["maxReplicas"]
    past = recommendations(given["recommendations"])
    memory = Memory(ups=scale_events(given["scaleUpEvents"]), downs=scale_events(given["scaleDownEvents"]))
    rules = None
    if case["kind"] == "no_behavior":
        stable = stabilize(proposal, past, window, now=now)
        limited = limit_plain(stable.replicas, current, minimum=minimum, maximum=maximum)
    else:
        rules = complete_rules(convert(given["behavior"], Behavior), window)
        stable = stabilize_both_ways(
            proposal, current, past, up_window=rules.up_window, down_window=rules.down_window, now=now
        )
        limited = limit_by_rules(
            stable.replicas, current, rules, memory.ups, memory.downs, minimum=minimum, maximum=maximum, now=now
        )
    if limited.replicas != current:
        memory = memory.rescaled(current, limited.replicas, rules, now)
    conditions = expected["conditions"]
    yield from differences(expected["replicas"], limited.replicas, path="replicas")
    yield from differences(conditions["AbleToScale"]["reason"], stable.reason, path="AbleToScale.reason")
    yield from differences("True", conditions["AbleToScale"]["status"], path="AbleToScale.status")
    yield from differences(conditions["ScalingLimited"]["reason"], limited.reason, path="ScalingLimited.reason")
    yield from differences(conditions["ScalingLimited"]["status"], str(limited.cut), path="ScalingLimited.status")
    yield from differences(
        recommendations(expected["recommendationsAfter"]), stable.recommendations, path="recommendations"
    )
    yield from differences(scale_events(expected["scaleUpEventsAfter"]), memory.ups, path="scaleUpEvents")
    yield from differences(scale_events(expected["scaleDownEventsAfter"]), memory.downs, path="scaleDownEvents")


def recommendations(raw: list[dict[str, Any]] | None) -> Recommendations:
    return tuple(Recommendation(one["replicas"], convert(one["time"], datetime)) for one in raw or ())


def scale_events(raw: list[dict[str, Any]] | None) -> ScaleEvents:
    return tuple(ScaleEvent(one["change"], convert(one["time"], datetime), one["outdated"]) for one in raw or ())
