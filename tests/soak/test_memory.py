"""What soaks measure memory by: it sees what is held, whatever was held or freed before."""

from soak.memory import MIB, heap_mib, traced


def test_what_is_held_counts_and_what_is_let_go_does_not() -> None:
    before = bytearray(8 * MIB)
    with traced():
        start = heap_mib()
        held = bytearray(4 * MIB)
        assert heap_mib() - start >= 4
        del before
        assert heap_mib() - start >= 4
        del held
        assert heap_mib() - start < 1
