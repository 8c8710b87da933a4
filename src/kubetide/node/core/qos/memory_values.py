"""Memory protection and throttling values of one cgroup.

    memory.min  = request x min %           memory.low = request x low %, raised to min when smaller
    memory.high = floor to pages of request + (limit - request) x throttling %, raised to min when smaller

Protection grows from the request because that is what the scheduler promised; throttling begins between
request and limit so that a pod slows down before it is OOM killed.

    page cache of a pod = the size that is given, at most the pod's limit; else limit x percent; 0 switches it off
"""

from dataclasses import dataclass

from kubetide.node.core.formats.numbers import trunc_div

UNLIMITED = 9223372036854775807

#: Order in which the files of one directory are written, and whether a parent must stay above its children.
FILES: tuple[tuple[str, bool], ...] = (
    ("memory.min", True),
    ("memory.low", True),
    ("memory.high", True),
    ("memory.wmark_ratio", False),
    ("memory.wmark_scale_factor", False),
    ("memory.wmark_min_adj", False),
    ("memory.priority", False),
    ("memory.use_priority_oom", False),
    ("memory.oom.group", False),
    ("memory.pagecache_limit.enable", False),
    ("memory.pagecache_limit.size", False),
    ("memory.pagecache_limit.sync", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryValue:
    """One memory file of one directory."""

    directory: str
    resource: str
    value: int
    mergeable: bool


def percent_of(amount: int, percent: int) -> int:
    """Return a whole percent of an amount, the fraction dropped."""
    return trunc_div(amount * percent, 100)


def memory_high(request: int, limit: int, throttling_percent: int, page_size: int) -> int:
    """Return memory.high for a throttling percent above 0."""
    value = request + trunc_div((limit - request) * throttling_percent, 100)
    return trunc_div(value, page_size) * page_size


def page_cache_limit(
    limit: int, *, size: int | None, percent: int | None, enable: bool | None, sync: bool | None
) -> dict[str, int | None]:
    """Return the page cache limit of a pod whose memory limit is given (-1: none); nothing where nothing is set."""
    if size is not None:
        wanted = size if limit < 0 else min(size, limit)
    elif percent is not None:
        wanted = percent_of(limit, percent) if limit > 0 else 0
    elif enable is None:
        return {}
    else:
        return {"memory.pagecache_limit.enable": int(enable)}
    limited = wanted > 0
    return {
        "memory.pagecache_limit.enable": int(limited if enable is None else enable),
        "memory.pagecache_limit.size": max(wanted, 0),
        "memory.pagecache_limit.sync": int(sync is True) if limited else None,
    }


def writes_of(directory: str, values: dict[str, int | None]) -> list[MemoryValue]:
    """Return the values that are set, in file order."""
    return [
        MemoryValue(directory=directory, resource=resource, value=value, mergeable=mergeable)
        for resource, mergeable in FILES
        if (value := values.get(resource)) is not None
    ]
