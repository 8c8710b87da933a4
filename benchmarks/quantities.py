"""Parse a million CPU strings: the fast path against the exact parser and against `decimal.Decimal`.

python benchmarks/quantities.py
"""

import random
import time
from decimal import Decimal

from kubetide.api.values.quantity import cpu_millis, parse_quantity

COUNT = 1_000_000
_FACTORS = {"n": Decimal("1e-9"), "m": Decimal("1e-3")}


def with_decimal(text: str) -> int:
    """The straightforward way: a Decimal and a table of suffixes."""
    factor = _FACTORS.get(text[-1])
    amount = Decimal(text) if factor is None else Decimal(text[:-1]) * factor
    return int((amount * 1000).to_integral_value(rounding="ROUND_CEILING"))


def main() -> None:
    rng = random.Random(1)
    texts = [
        rng.choice((f"{rng.randrange(10**10)}n", f"{rng.randrange(8000)}m", str(rng.randrange(64))))
        for _ in range(COUNT)
    ]
    seconds = {}
    results = {}
    for name, function in (
        ("decimal", with_decimal),
        ("exact", lambda text: parse_quantity(text).milli),
        ("fast path", cpu_millis),
    ):
        started = time.process_time()
        results[name] = [function(text) for text in texts]
        seconds[name] = time.process_time() - started
    assert results["exact"] == results["fast path"] == results["decimal"]
    print(f"{COUNT:,} CPU strings, CPU seconds (ratio to decimal)")
    for name, spent in seconds.items():
        print(f"  {name:10} {spent:6.2f}  ({spent / seconds['decimal']:.2f})")


if __name__ == "__main__":
    main()
