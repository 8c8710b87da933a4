"""How much memory is held, in two ways.

A soak that runs beside other tests counts what Python has allocated since it began: that does not depend on what ran
before it in the process, on the allocator of the machine or on its pages. The whole process is what an operator sees,
and says something only in a process of its own.
"""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 2**20


@contextmanager
def traced() -> Iterator[None]:
    """Count allocations from here on; NumPy and msgspec report theirs too. Takes about half as much CPU again."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def heap_mib() -> float:
    """Return what was allocated since counting began and is still held; 0 while nobody counts."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / MIB


def resident_mib() -> float:
    """Return the memory of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024
