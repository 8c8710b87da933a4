"""Fewer passes of the cyclic collector while large answers are decoded.

On Python 3.11 the collector runs inside the decoder and costs more than half of it, although the decoded structs
cannot form cycles; since 3.12 it waits for the decoder to return, and nothing needs to be tuned.
"""

import gc
import sys

THRESHOLDS = (100_000, 50, 1000)


def tune_gc() -> bool:
    """Raise the thresholds and take what start-up left out of the collector's sight; say whether it was needed."""
    if sys.version_info >= (3, 12):
        return False
    gc.set_threshold(*THRESHOLDS)
    gc.collect()
    gc.freeze()
    return True
