"""Cron schedules: five fields (minute, hour, day of month, month, day of week), `*`, lists, ranges, steps, names."""

from dataclasses import dataclass
from datetime import datetime, timedelta

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
    if not text.isdigit():
        raise ScheduleError(f"{part!r} is not a number, range or step")
    return int(text)
