"""What one autoscaler remembers between turns, and how careful it is after a restart.

Memory lives in the process: past proposals for the windows, own rescales for the rate limits. A restart loses it, and
a controller that has forgotten the last five minutes must not be bolder than one that remembers them. So, for objects
older than the moment this process began to act:

- The first proposal that stands is held, together with the size found then, as one more recommendation for a whole
  window for shrinking. It enters as min(held, current): it keeps the size, it never brings an old size back.
- If the status shows a rescale so recent that a policy would still look at it, that rescale is remembered again where
  its size can be told, and shrinking waits until everything from before the restart is out of every period.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from kubetide.api.hpa import HorizontalPodAutoscaler
from kubetide.hpa.behavior import Rules, ScaleEvent, ScaleEvents, longest_period, remember_event
from kubetide.hpa.stabilization import Recommendation, Recommendations


class AfterStart(msgspec.Struct, frozen=True, kw_only=True):
    """Care after a restart, for one autoscaler."""

    held: Recommendation | None = None
    """Size and time of the first proposal that stood."""
    over: bool = False
    """The held size has left its window for good."""
    looked_back: bool = False
    """The status was searched for a recent rescale."""
    last_scale: datetime | None = None
    """When the status said the last rescale was, if shrinking still has to wait for it."""

    def held_for(self, current: int, window: timedelta, *, now: datetime, edge_counts: bool) -> int | None:
        """Return what enters the maximum of the window for shrinking."""
        if self.held is None or self.over or window <= timedelta(0):
            return None
        cutoff = now - window
        if self.held.at > cutoff or (edge_counts and self.held.at == cutoff):
            return min(self.held.replicas, current)
        return None

    def holds_down(self, rules: Rules, *, now: datetime) -> bool:
        """Tell whether forgotten rescales could still forbid shrinking."""
        return self.last_scale is not None and now < self.last_scale + longest_period(rules.down)


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one autoscaler remembers. No list of recommendations is not the same as an empty one."""

    recommendations: Recommendations | None = None
    ups: ScaleEvents = ()
    downs: ScaleEvents = ()
    after_start: AfterStart | None = None
    """None: the object is younger than this process, or the rule is off."""
    last_good: Mapping[str, Recommendation] = msgspec.field(default_factory=dict)
    """What each metric proposed when it last worked."""

    def seeded(self, current: int, now: datetime) -> "Memory":
        """Begin the list of recommendations with the present size, if there is none."""
        if self.recommendations is not None:
            return self
        return replace(self, recommendations=(Recommendation(current, now),))

    def looking_back(self, hpa: HorizontalPodAutoscaler, current: int, rules: Rules | None, now: datetime) -> "Memory":
        """In the first turn after a start, learn from the status what may have been done lately."""
        start = self.after_start
        if start is None or start.looked_back:
            return self
        start = replace(start, looked_back=True)
        scaled = hpa.status.last_scale_time
        if rules is None or scaled is None:
            return replace(self, after_start=start)
        periods = max(longest_period(rules.up), longest_period(rules.down))
        if now - scaled >= periods:
            return replace(self, after_start=start)
        memory = replace(self, after_start=replace(start, last_scale=scaled))
        before, after = hpa.status.current_replicas, hpa.status.desired_replicas
        if before != after and current == after:
            event = ScaleEvent(abs(after - before), scaled)
            if after > before:
                return replace(memory, ups=(*memory.ups, event))
            return replace(memory, downs=(*memory.downs, event))
        return memory

    def holding(self, proposal: int, current: int, now: datetime) -> "Memory":
        """Remember the first proposal after a start that stood."""
        start = self.after_start
        if start is None or start.held is not None:
            return self
        return replace(self, after_start=replace(start, held=Recommendation(max(current, proposal), now)))

    def letting_go(self, held: int | None) -> "Memory":
        """Drop the held size once it no longer counts."""
        start = self.after_start
        if held is not None or start is None or start.held is None or start.over:
            return self
        return replace(self, after_start=replace(start, over=True))

    def rescaled(self, previous: int, replicas: int, rules: Rules | None, now: datetime) -> "Memory":
        """Remember a rescale that worked; without `behavior` nothing will ever ask for it."""
        if rules is None:
            return self
        if replicas > previous:
            ups = remember_event(self.ups, replicas - previous, longest_period(rules.up), now=now)
            return replace(self, ups=ups)
        downs = remember_event(self.downs, previous - replicas, longest_period(rules.down), now=now)
        return replace(self, downs=downs)


def memory_for(hpa: HorizontalPodAutoscaler, begin: datetime | None) -> Memory:
    """Return empty memory, careful if the object is older than the moment we began to act."""
    created = hpa.metadata.creation_timestamp
    if begin is None or (created is not None and created >= begin):
        return Memory()
    return Memory(after_start=AfterStart())
