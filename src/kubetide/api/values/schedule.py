"""Cron schedules: five fields (minute, hour, day of month, month, day of week), `*`, lists, ranges, steps, names.

A window is a schedule and how long it lasts: `0 2 * * mon-fri 3h`. Times are UTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_HORIZON = timedelta(days=366 * 5)
MOST_WINDOWS = 64
LONGEST_WINDOW = timedelta(days=31)
"""Anybody who may write an annotation may write a schedule, and everybody waits while it is looked at."""


class ScheduleError(InvalidInput):
    """A text is not a cron schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The minutes at which something is due."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first due minute after `moment`, or None if there is none for years."""
        at = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = moment + _HORIZON
        while at < end:
            if at.month not in self.months or not self._day_fits(at):
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            elif at.hour not in self.hours:
                at = at.replace(minute=0) + timedelta(hours=1)
            elif at.minute not in self.minutes:
                at += timedelta(minutes=1)
            else:
                return at
        return None

    def _day_fits(self, at: datetime) -> bool:
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:  # a star on one side leaves the choice to the other
            return day and weekday
        return day or weekday


def parse_schedule(text: str) -> Schedule:
    """Return the schedule a cron text describes."""
    fields = _MACROS.get(text.strip(), text).split()
    if len(fields) != 5:
        raise ScheduleError(f"{text!r} must have five fields")
    minutes = _field(fields[0], 0, 59, {})
    hours = _field(fields[1], 0, 23, {})
    days = _field(fields[2], 1, 31, {})
    months = _field(fields[3], 1, 12, _MONTHS)
    weekdays = frozenset(day % 7 for day in _field(fields[4], 0, 7, _DAYS))
    return Schedule(minutes, hours, days, months, weekdays, fields[2][0] in "*?", fields[4][0] in "*?")


def _field(text: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step_text = part.partition("/")
        step = _number(step_text, {}, part) if step_text else 1
        if span in ("*", "?"):
            first, last = low, high
        else:
            start, dash, end = span.partition("-")
            first = _number(start, names, part)
            last = _number(end, names, part) if dash else (high if step_text else first)
        if step < 1 or not low <= first <= last <= high:
            raise ScheduleError(f"{part!r} is not within {low}-{high}")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(text: str, names: dict[str, int], part: str) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit()) or len(text) > 4:
        raise ScheduleError(f"{part[:40]!r} is not a number, range or step")
    return int(text)


@dataclass(frozen=True, slots=True)
class Window:
    """A time that comes again and lasts for a while."""

    schedule: Schedule
    lasts: timedelta

    def is_open(self, now: datetime) -> bool:
        """Return whether it is within the window."""
        began = self.schedule.next_after(now - self.lasts)
        return began is not None and began <= now


def parse_windows(text: str) -> tuple[Window, ...]:
    """Return the windows of a text such as `0 2 * * * 3h; 0 0 * * sat,sun 24h`."""
    windows = []
    parts = [part for part in (part.strip() for part in text.split(";")) if part]
    if len(parts) > MOST_WINDOWS:
        raise ScheduleError(f"has {len(parts)} windows; the most is {MOST_WINDOWS}")
    for part in parts:
        schedule, _, lasts = part.rpartition(" ")
        try:
            length = parse_duration(lasts)
        except InvalidInput as error:
            raise ScheduleError(f"{part!r} must be a cron schedule and a duration such as 3h") from error
        if not timedelta(0) < length <= LONGEST_WINDOW:
            raise ScheduleError(f"{part!r} must last longer than 0 and at most {LONGEST_WINDOW.days} days")
        windows.append(Window(parse_schedule(schedule), length))
    return tuple(windows)


def any_open(windows: Sequence[Window], now: datetime) -> bool:
    """Return whether it is within one of the windows."""
    return any(window.is_open(now) for window in windows)
