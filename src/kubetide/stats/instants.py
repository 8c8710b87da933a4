"""Instants as the histograms count them: integer microseconds since the Unix epoch.

Integers, because a hundred thousand of them are one array. `ZERO_TIME` is year 1 UTC, upstream's zero time: it
means "no sample yet", and multiples of a half-life are counted from it.
"""

from datetime import UTC, datetime, timedelta

ZERO_TIME = -62_135_596_800_000_000
MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime | None) -> int:
    """Return a time as the histograms count it; None is `ZERO_TIME`."""
    return ZERO_TIME if at is None else (at - _EPOCH) // MICROSECOND


def moment(at: int) -> datetime | None:
    """Return the aware time of a microsecond count; `ZERO_TIME` is None."""
    return None if at == ZERO_TIME else _EPOCH + timedelta(microseconds=int(at))
