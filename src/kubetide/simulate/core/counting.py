"""What a simulated run came to: series of every workload, and the figures that compare policies.

time to cover a step   a step is a load that at least doubles within a minute; it is covered when for a whole minute
                       no request misses the SLO. The longest counts; one that is never covered lasts to the end
SLO missed             share of requests that took the SLO's latency or longer, found no ready pod, or were with an
                       OOM-killed one
pod-hours              pods on nodes, times hours
flaps                  changes of the replicas wanted that take back one of less than ten minutes before
money                  requests of pods on nodes, batch and mid resources included, at the prices given
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kubetide.replay.core.figures import Prices
from kubetide.stats.buckets import Floats

COLUMNS = (
    "time", "wanted", "pods", "ready", "rate", "missed", "latency",
    "used_cores", "asked_cores", "used_gib", "asked_gib",
)  # fmt: skip
"""Of a series: seconds since the start; then counts, requests per second, seconds, cores and GiB at each look."""
STEP_FACTOR = 2.0
STEP_SECONDS = 60.0
FLAP_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One policy, one seed."""

    policy: str
    seed: int
    start: float
    """The second since the epoch at which it began."""
    series: Mapping[str, Mapping[str, Floats]]
    """By workload and column."""
    oom_kills: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """When containers of each workload were OOM-killed, in seconds since the start."""
    evictions: int = 0
    digest: str = ""
    """Of all objects at the end."""


def figures(run: Run, prices: Prices) -> dict[str, float]:
    """Return the figures of a run; NaN where there is nothing to count."""
    requests = missed = pod_hours = core_hours = gib_hours = 0.0
    reversals, covers = 0, []
    for columns in run.series.values():
        seconds = looked_seconds(columns["time"])
        requests += float((columns["rate"] * seconds).sum())
        missed += float((columns["missed"] * seconds).sum())
        pod_hours += float((columns["pods"] * seconds).sum()) / 3600.0
        core_hours += float((columns["asked_cores"] * seconds).sum()) / 3600.0
        gib_hours += float((columns["asked_gib"] * seconds).sum()) / 3600.0
        reversals += flaps(columns["time"], columns["wanted"])
        covers += time_to_cover(columns["time"], columns["rate"], columns["missed"])
    found = {
        "time_to_cover": max(covers, default=float("nan")),
        "slo_missed": missed / requests if requests else float("nan"),
        "pod_hours": pod_hours,
        "oom_kills": float(sum(len(times) for times in run.oom_kills.values())),
        "evictions": float(run.evictions),
        "flaps": float(reversals),
        "core_hours": core_hours,
        "gib_hours": gib_hours,
    }
    if prices.core or prices.gib:
        found["money"] = prices.core * core_hours + prices.gib * gib_hours
    return found


def looked_seconds(times: Floats) -> Floats:
    """Return how long each look stands for: since the one before."""
    return np.diff(times, prepend=0.0)


def time_to_cover(times: Floats, rate: Floats, missed: Floats) -> list[float]:
    """Return for every step of load how long it took until nothing was missed for a minute."""
    found = []
    at = 1
    while at < times.size:
        before = int(np.searchsorted(times, times[at] - STEP_SECONDS))
        lowest = float(rate[before:at].min())
        if rate[at] <= 0.0 or rate[at] < STEP_FACTOR * lowest:
            at += 1
            continue
        covered = next((place for place in range(at, times.size) if _quiet(times, missed, place)), None)
        found.append(float(times[-1 if covered is None else covered] - times[at]))
        # The rise may last: what belongs to this step is over when a minute has passed and it is covered.
        resume = int(np.searchsorted(times, times[at] + STEP_SECONDS, side="right"))
        at = max(resume, times.size if covered is None else covered, at + 1)
    return found


def _quiet(times: Floats, missed: Floats, place: int) -> bool:
    """Return whether nothing is missed for a minute from a look on; there must be a minute left."""
    end = int(np.searchsorted(times, times[place] + STEP_SECONDS))
    return end < times.size and not missed[place : end + 1].any()


def flaps(times: Floats, wanted: Floats) -> int:
    """Return how often a change took back the direction of a change of less than ten minutes before."""
    found, last, last_at = 0, 0.0, -np.inf
    # Where no number of replicas is wanted, as of Jobs, none changes.
    change = np.nan_to_num(np.diff(wanted))
    for at in np.flatnonzero(change).tolist():
        direction, when = float(np.sign(change[at])), float(times[at + 1])
        found += direction != last and when - last_at < FLAP_SECONDS
        last, last_at = direction, when
    return found
