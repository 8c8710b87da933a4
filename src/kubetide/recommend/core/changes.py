"""What changed since the last report: rows that came, went, or recommend something else."""

from collections.abc import Sequence

import msgspec

from kubetide.recommend.core.rows import TOLERANCE, Amounts, Row


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One container whose row is not what it was."""

    container: str
    what: str
    """`new`, `gone`, `risk` or `size`."""
    before: Row | None = None
    after: Row | None = None


def compare(before: Sequence[Row], after: Sequence[Row]) -> list[Difference]:
    """Return what differs; sizes within 5 % of each other are equal."""
    old, new = ({row.key: row for row in rows} for rows in (before, after))
    found = []
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        what = _what(was, now)
        if what:
            found.append(Difference(container=" ".join(filter(None, key)), what=what, before=was, after=now))
    return found


def _what(was: Row | None, now: Row | None) -> str:
    if was is None:
        return "new"
    if now is None:
        return "gone"
    if was.risk != now.risk:
        return "risk"
    return "size" if _moved(was.recommended, now.recommended) else ""


def _moved(was: Amounts | None, now: Amounts | None) -> bool:
    if was is None or now is None:
        return was is not now
    pairs = (
        (was.cpu_request_millis, now.cpu_request_millis),
        (was.memory_request_bytes, now.memory_request_bytes),
    )
    return any(abs((one or 0) - (other or 0)) > TOLERANCE * max(one or 0, other or 0) for one, other in pairs)
