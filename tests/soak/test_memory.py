"""What soaks measure memory by: it sees what is held, also in arrays, and not what was let go."""

import numpy as np

from soak.memory import MIB, heap_mib


def test_what_is_held_counts_and_what_is_let_go_does_not() -> None:
    kept: list[object] = []
    start = heap_mib()
    kept.append({"bytes": bytes(4 * MIB)})
    kept.append(np.zeros(2 * MIB, dtype=np.uint8))
    assert 5.5 < heap_mib() - start < 6.5
    kept.clear()
    assert abs(heap_mib() - start) < 0.5


def test_what_measuring_takes_does_not_count() -> None:
    kept: list[list[int]] = []
    grown = []
    before = heap_mib()
    for _ in range(5):
        kept += ([] for _ in range(200_000))
        now = heap_mib()
        grown.append(now - before)
        before = now
    # 56 bytes each and the place in a list that grows by an eighth at a time; the doubling of a table would be 20 MiB.
    assert max(grown) < 2 * min(grown), grown
