"""Checkpoints that lie in the future, brought back to the present.

One sample with a wrong date makes everything before it worthless: a histogram weighs samples by 2^(t/half-life), and a
container that has a sample from next year takes none from today. Samples from the future are refused (`feeding`); this
heals what was stored before they were. What a histogram says about amounts is kept, only its times are not believed:

    reference   the multiple of the half-life nearest to now; weights move with it by a power of two
    total       not above what the counted samples can weigh today: 0.1 each of CPU, 1 per memory window
    samples     not later than now; open windows end at most one interval from now

A histogram whose times are right comes out as it was.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kubetide.stats.instants import MICROSECOND, ZERO_TIME, microseconds, moment
from kubetide.stats.saved import Saved
from kubetide.vpa.recommender.core.aggregate import MINIMAL_WEIGHT, Tuning
from kubetide.vpa.recommender.core.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What counts as the future, and how often samples come."""

    now: datetime
    skew: timedelta
    """How far ahead of our clock a time may be."""
    loop: timedelta
    """How long between two samples of a container at least."""


def healed(content: Checkpoint, tuning: Tuning, present: Present) -> tuple[Checkpoint, str]:
    """Return a checkpoint without times from the future, and what was wrong with it; empty if nothing was."""
    problem = _problem(content, tuning, present)
    if not problem:
        return content, ""
    now, interval = microseconds(present.now), tuning.interval // MICROSECOND
    memory_weight = max(1.0, 2.0 * content.count * (present.loop / tuning.interval))
    windows = tuple(
        window._replace(
            end=min(window.end, now + interval), last=min(window.last, now), last_cpu=min(window.last_cpu, now)
        )
        for window in content.windows
    )
    return (
        replace(
            content,
            cpu=_brought_back(content.cpu, tuning.cpu_half_life, now, MINIMAL_WEIGHT * content.count),
            memory=_brought_back(content.memory, tuning.memory_half_life, now, memory_weight),
            first=min(content.first, now),
            last=min(content.last, now),
            windows=windows,
        ),
        problem,
    )


def _problem(content: Checkpoint, tuning: Tuning, present: Present) -> str:
    """Name the first time that cannot be.

    A reference is the multiple of the half-life nearest to a sample, and a memory peak counts at the end of its window:
    both may be ahead of now by that much.
    """
    now = microseconds(present.now) + present.skew // MICROSECOND
    interval = tuning.interval // MICROSECOND
    cpu, memory = tuning.cpu_half_life // MICROSECOND, tuning.memory_half_life // MICROSECOND
    for name, at, latest in (
        ("firstSampleStart", content.first, now),
        ("lastSampleStart", content.last, now),
        ("cpuHistogram.referenceTimestamp", content.cpu.reference, now + cpu),
        ("memoryHistogram.referenceTimestamp", content.memory.reference, now + interval + memory),
    ):
        if at > latest:
            return f"{name} {moment(at):%Y-%m-%dT%H:%M:%SZ}"
    if any(max(one.last, one.last_cpu) > now or one.end > now + interval for one in content.windows):
        return "open windows"
    return ""


def _brought_back(saved: Saved, half_life: timedelta, now: int, heaviest: float) -> Saved:
    """Return a histogram with its reference at now and a total that is not above `heaviest`."""
    if saved.reference == ZERO_TIME:
        return saved
    length = half_life // MICROSECOND
    reference = ZERO_TIME + (2 * (now - ZERO_TIME) + length) // (2 * length) * length
    steps = round((saved.reference - reference) / length)
    try:
        total = math.ldexp(saved.total, steps)
    except OverflowError:
        total = heaviest
    return Saved(reference, saved.weights, min(total, heaviest))
