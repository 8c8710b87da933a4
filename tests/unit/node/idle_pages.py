"""The text of `memory.idle_page_stats`, as kernels with kidled write it."""

from collections.abc import Callable

KINDS = (
    *("csei", "dsei", "cfei", "dfei", "csui", "dsui", "cfui", "dfui"),
    *("csea", "dsea", "cfea", "dfea", "csua", "dsua", "cfua", "dfua"),
    "slab",
)
HEAD = (
    "# version: 1.0",
    "# page_scans: 24",
    "# slab_scans: 0",
    "# scan_period_in_seconds: 120",
    "# use_hierarchy: 1",
    "# buckets: 1,2,5,15,30,60,120,240",
    *("# legend",) * 8,
)


def rows_of(numbers: Callable[[str], str]) -> list[str]:
    """Return one line for every kind of page, with the numbers of its eight buckets."""
    return [f"  {kind} {numbers(kind)}" for kind in KINDS]
