"""Numbers in labels and annotations, read as Go's `strconv` reads them.

Python is more generous: it takes white space, underscores between digits and the digits of other scripts. A label
that upstream would pass over must not become a number here.
"""

import math
import re

from kubetide.errors import InvalidInput

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+", re.ASCII)


def parse_float(text: str) -> float:
    """Return the finite number that `text` spells; raise InvalidInput for anything else."""
    number = math.inf
    try:
        if _DECIMAL.fullmatch(text):
            number = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            number = float.fromhex(text)
    except OverflowError as error:
        raise InvalidInput(f"{text!r} is too large a number") from error
    if not math.isfinite(number):
        raise InvalidInput(f"{text!r} is not a finite number")
    return number
