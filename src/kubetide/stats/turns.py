"""Turns: how samples that must be handled in order are handled many at a time.

What happens to one column depends on what happened to it before, and on no other column. So the first sample of every
column can be handled at once, then the second of every column, and so on.
"""

import numpy as np

from kubetide.stats.buckets import Ints


def ranks(columns: Ints) -> list[Ints]:
    """Split positions into turns: the first of every column, the second of every column, and so on."""
    if not columns.size:
        return []
    if (columns[1:] > columns[:-1]).all():
        return [np.arange(columns.size)]
    order = np.argsort(columns, kind="stable")
    ordered = columns[order]
    starts = np.flatnonzero(np.r_[True, np.diff(ordered) != 0])
    lengths = np.diff(np.r_[starts, columns.size])
    if lengths.max() == 1:
        return [np.arange(columns.size)]
    rank = np.arange(columns.size) - np.repeat(starts, lengths)
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(1, int(lengths.max())))
    return [order[part] for part in np.split(by_rank, bounds)]
