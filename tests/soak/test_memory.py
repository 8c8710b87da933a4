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
