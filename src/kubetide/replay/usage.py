"""The usage side of the line protocol: told the past, asked to decide, told more.

begin     a fleet: names, sampling interval, length of a period, resources; all that was learned before is dropped
observe   the samples of one container in the period that began at `time`, null where there is none
oom       a container passed its memory limit
decide    answered with sizes per container: [cores, bytes] or [cores, bytes, limit bytes]
end       nothing more comes
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from kubetide.errors import InvalidInput
from kubetide.replay.core.policies import Decision, Fleet, OomKill, Period, SizePolicy, size_policy
from kubetide.replay.stdio import check_second, with_whole
from kubetide.stats.buckets import Floats
from kubetide.vpa.core.policy import CPU, MEMORY

_MILLI = 1000.0
_WHOLE = frozenset({"interval", "period", "time"})
_MOST = {CPU: 1e9, MEMORY: 2.0**63}
"""Samples above are no measurements."""
_LONGEST_PERIOD = 366 * 86400
Samples = list[float | None]


class Begin(msgspec.Struct, tag="begin", kw_only=True):
    interval: int
    period: int
    resources: list[str]
    containers: list[str]


class Observe(msgspec.Struct, tag="observe", kw_only=True):
    container: str
    time: int
    cpu: Samples | None = None
    memory: Samples | None = None


class Oom(msgspec.Struct, tag="oom", kw_only=True):
    container: str
    time: int
    limit: float


class Decide(msgspec.Struct, tag="decide", kw_only=True):
    time: int


class End(msgspec.Struct, tag="end", kw_only=True):
    pass


Message = Begin | Observe | Oom | Decide | End


class UsageSession:
    """One run of a size policy over one or more fleets, each from scratch."""

    def __init__(self, policy: str) -> None:
        self._make = size_policy(policy)
        self._fleet: _Run | None = None

    def handle(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take in one message; return the answer where one is due."""
        try:
            parsed = msgspec.convert(with_whole(message, _WHOLE), Message)
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error)) from error
        if isinstance(parsed, Begin):
            self._fleet = _Run(parsed, self._make)
            return None
        if isinstance(parsed, End):
            return None
        if self._fleet is None:
            raise InvalidInput("comes before `begin`", field="type")
        if isinstance(parsed, Observe):
            self._fleet.observe(parsed)
        elif isinstance(parsed, Oom):
            self._fleet.oom(parsed)
        else:
            return {"decisions": self._fleet.decide(parsed.time)}
        return None


class _Run:
    """A fleet between its `begin` and the next."""

    def __init__(self, begin: Begin, make: Any) -> None:
        _check(begin)
        self._names = begin.containers
        self._columns = {name: column for column, name in enumerate(begin.containers)}
        self._fleet = Fleet(
            size=len(begin.containers),
            interval_seconds=begin.interval,
            period_seconds=begin.period,
            resources=frozenset(begin.resources),
        )
        self._policy: SizePolicy = make(self._fleet)
        self._seen: dict[int, Observe] = {}
        self._ooms: dict[int, OomKill] = {}
        self._begun: dict[int, int] = {}
        """By column: the second in which its last period began."""
        self._decided: int | None = None

    def observe(self, message: Observe) -> None:
        """Keep a container's samples until the period is complete."""
        column = self._column(message.container)
        check_second(message.time, message.container)
        if column in self._seen:
            raise InvalidInput("is observed twice before `decide`", subject=message.container, field="time")
        _check_later(message.time, self._begun.get(column), message.container)
        count = self._fleet.period_seconds // self._fleet.interval_seconds
        for resource in self._fleet.resources:
            samples = getattr(message, resource)
            if samples is None or len(samples) != count:
                found = "none" if samples is None else str(len(samples))
                raise InvalidInput(f"needs {count} samples, has {found}", subject=message.container, field=resource)
            known = [sample for sample in samples if sample is not None]
            if known and min(known) < 0.0:
                raise InvalidInput("has a negative sample", subject=message.container, field=resource)
            if known and max(known) > _MOST[resource]:
                too_much = f"has a sample above {_MOST[resource]:.3g}"
                raise InvalidInput(too_much, subject=message.container, field=resource)
        self._seen[column], self._begun[column] = message, message.time

    def oom(self, message: Oom) -> None:
        """Keep the first OOM kill of a container in the period."""
        column = self._column(message.container)
        check_second(message.time, message.container)
        if not 0.0 <= message.limit <= _MOST[MEMORY]:
            raise InvalidInput(f"{message.limit:g} is no limit in bytes", subject=message.container, field="limit")
        self._ooms.setdefault(column, OomKill(column, message.time, message.limit))

    def decide(self, now: int) -> dict[str, list[float | None]]:
        """Tell the policy the period that ends now, and return its sizes by name."""
        check_second(now, "decide")
        _check_later(now, self._decided, "decide")
        self._decided = now
        if not self._names:
            return {}
        starts = np.full(self._fleet.size, now - self._fleet.period_seconds, dtype=np.int64)
        for column, message in self._seen.items():
            starts[column] = message.time
        self._policy.observe(
            Period(
                starts=starts,
                cpu=self._matrix(CPU),
                memory=self._matrix(MEMORY),
                ooms=tuple(self._ooms[column] for column in sorted(self._ooms)),
            )
        )
        self._seen, self._ooms = {}, {}
        return self._named(self._policy.decide())

    def _matrix(self, resource: str) -> Floats | None:
        """Return the period's samples by containers."""
        if resource not in self._fleet.resources:
            return None
        count = self._fleet.period_seconds // self._fleet.interval_seconds
        by_container = np.full((self._fleet.size, count), np.nan)
        for column, message in self._seen.items():
            by_container[column] = np.array(getattr(message, resource), dtype=np.float64)
        return np.ascontiguousarray(by_container.T)

    def _named(self, decision: Decision) -> dict[str, list[float | None]]:
        """Return whole millicores and bytes, rounded up; a container without any is left out."""
        # What is whole already stays: 4.065 × 1000 is a little more than 4065.
        cpu = None if decision.cpu is None else np.ceil(np.round(decision.cpu * _MILLI, 6)) / _MILLI
        memory = None if decision.memory is None else np.ceil(decision.memory)
        limit = None if decision.memory_limit is None else np.ceil(decision.memory_limit)
        columns = [cpu, memory] if limit is None else [cpu, memory, limit]
        if cpu is None and memory is None:
            return {}
        lists = [[None] * self._fleet.size if values is None else values.tolist() for values in columns]
        return {name: list(row) for name, row in zip(self._names, zip(*lists, strict=True), strict=True)}

    def _column(self, name: str) -> int:
        if name not in self._columns:
            raise InvalidInput(f"unknown container {name!r}", field="container")
        return self._columns[name]


def _check_later(time: int, last: int | None, subject: str) -> None:
    if last is not None and time <= last:
        raise InvalidInput(f"{time} is not after {last}: time only goes forward", subject=subject, field="time")


def _check(begin: Begin) -> None:
    if begin.interval <= 0:
        raise InvalidInput("must be above 0", subject="begin", field="interval")
    if begin.period <= 0 or begin.period % begin.interval:
        raise InvalidInput("must be a multiple of the interval", subject="begin", field="period")
    if begin.period > _LONGEST_PERIOD:
        raise InvalidInput("must be at most a year", subject="begin", field="period")
    unknown = sorted(set(begin.resources) - {CPU, MEMORY})
    if unknown or not begin.resources:
        raise InvalidInput(f"must be some of cpu and memory, not {begin.resources}", subject="begin", field="resources")
    if len(set(begin.containers)) != len(begin.containers):
        raise InvalidInput("contains a name twice", subject="begin", field="containers")
