"""How much memory is held, in two ways.

A soak that runs beside other tests adds up the sizes of the objects that are alive: how that grows does not depend on
what ran before in the process, on the allocator of the machine or on its pages, and it costs nothing in between
(tracing every allocation takes four times the CPU). The whole process is what an operator sees, and says something only
in a process of its own.
"""

import gc
import sys
from collections.abc import Sequence
from pathlib import Path

MIB = 2**20


def heap_mib() -> float:
    """Return the size of all objects that are alive, arrays and texts included."""
    gc.collect()
    # The collector knows containers that may form cycles; texts, arrays and dicts of them are found from there.
    reached: Sequence[object] = gc.get_objects()
    alive = {id(each): each for each in reached}
    while reached:
        further = {id(each): each for each in gc.get_referents(*reached) if id(each) not in alive}
        alive |= further
        reached = list(further.values())
    # The comprehension above keeps it in a cell, which the collector knows: it doubles at times, whatever is measured.
    alive.pop(id(alive), None)
    return sum(sys.getsizeof(each, 0) for each in alive.values()) / MIB


def resident_mib() -> float:
    """Return the memory of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024
