"""Histograms of the recommender and of the node agent's peak prediction: columns of a `kubetide.stats.bank.Bank`."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.registry import NotApplicable, suite
from kubetide.stats.bank import Bank
from kubetide.stats.buckets import Buckets, exponential
from kubetide.stats.instants import ZERO_TIME, microseconds
from kubetide.stats.saved import Saved, save

PERCENTILES = (0, 0.01, 0.05, 0.1, 0.25, 0.33, 0.5, 0.66, 0.75, 0.9, 0.95, 0.99, 0.999, 1)
Case = dict[str, Any]


def scheme(options: Case) -> Buckets:
    kind = options.get("type") or options.get("kind") or "exponential"
    if kind == "linear":
        raise NotApplicable("all histograms of the product have exponential buckets")
    return exponential(
        maximum=options["maxValue"],
        first=options["firstBucketSize"],
        ratio=options["ratio"],
        epsilon=options["epsilon"],
    )


class Column:
    """One histogram: a column of a bank that it shares with others."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.number = bank.allocate()

    def add(self, value: float, weight: float, at: int) -> None:
        self.bank.add([self.number], value, weight, at)

    def subtract(self, value: float, weight: float, at: int) -> None:
        self.bank.subtract([self.number], value, weight, at)

    def merge(self, other: "Column") -> None:
        block = self.bank.select([self.number])
        block.merge([0], self.bank.select([other.number]))
        self.bank.put([self.number], block)

    def percentile(self, p: float) -> float:
        return float(self.bank.select([self.number]).percentiles([p])[0, 0])

    @property
    def empty(self) -> bool:
        return bool(self.bank.select([self.number]).empty()[0])

    def save(self) -> Saved:
        return save(self.bank.select([self.number]))[0]

    def load(self, saved: Saved) -> None:
        self.bank.load(self.number, saved)


def near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def micros(millis: int | None) -> int:
    return ZERO_TIME if millis is None else millis * 1000


def saved_of(checkpoint: Case) -> Saved:
    weights = {int(k): v for k, v in (checkpoint.get("bucketWeights") or {}).items()}
    return Saved(micros(checkpoint.get("referenceTimestampMs")), weights, checkpoint.get("totalWeight") or 0.0)


def weight_differences(got: dict[int, int], want: dict[str, int], where: str) -> Iterator[str]:
    wanted = {int(k): v for k, v in want.items()}
    for bucket in sorted(got.keys() | wanted.keys()):
        if abs(got.get(bucket, 0) - wanted.get(bucket, 0)) > 1:
            yield f"{where} bucket {bucket}: got {got.get(bucket, 0)}, expected {wanted.get(bucket, 0)}"


def at_reference(checkpoint: Case, reference: int, half_life: int) -> float:
    """Return the total weight of a recorded checkpoint as it would be at another reference time."""
    total = float(checkpoint.get("totalWeight") or 0.0)
    apart = reference - micros(checkpoint.get("referenceTimestampMs"))
    return total * 2.0 ** (-apart / half_life) if half_life and apart and total else total


@suite("vpa/histogram")
def histogram(case: Case) -> Iterable[str]:
    buckets = scheme(case["options"])
    half_life = timedelta(milliseconds=case["halfLifeMs"]) if case["kind"] == "decaying" else None
    if buckets.count != case["numBuckets"]:
        yield f"number of buckets: got {buckets.count}, expected {case['numBuckets']}"
        return
    # Narrow blocks, so that registers of one case lie in different ones.
    bank = Bank(buckets, half_life, block_width=2)
    registers = [Column(bank) for _ in range(case["registers"])]
    recorded = case["resultsV171"] if "resultsV171" in case else case["results"]
    expected = {result["step"]: result for result in recorded}
    for step, op in enumerate(case["ops"]):
        h = registers[op["h"]]
        match op["op"]:
            case "add":
                h.add(op["value"], op["weight"], micros(op["tMs"]))
            case "subtract":
                h.subtract(op["value"], op["weight"], micros(op["tMs"]))
            case "merge":
                h.merge(registers[op["from"]])
            case "saveload":
                saved = h.save()
                whole = saved.reference // 1_000_000 * 1_000_000
                bank.free([h.number])
                registers[op["h"]] = Column(bank)
                registers[op["h"]].load(Saved(whole, saved.weights, saved.total))
            case "load":
                try:
                    h.load(saved_of(op["checkpoint"]))
                    failed = False
                except ValueError:
                    failed = True
                if failed != expected[step]["error"]:
                    yield f"step {step}: load failed is {failed}"
            case "probe":
                yield from _probe(h, expected[step], step)


def _probe(h: Column, result: Case, step: int) -> Iterator[str]:
    state, ignored = result["state"], result.get("mergeShiftSensitive") or ()
    if "isEmpty" not in ignored and h.empty != state["isEmpty"]:
        yield f"step {step}: empty is {h.empty}"
    if "percentiles" not in ignored:
        for p, want in zip(PERCENTILES, state["percentiles"], strict=True):
            if want is not None and not near(h.percentile(p), want):
                yield f"step {step}: percentile {p}: got {h.percentile(p)}, expected {want}"
    saved, checkpoint = h.save(), state["checkpoint"]
    if "bucketWeights" not in ignored:
        yield from weight_differences(dict(saved.weights), checkpoint.get("bucketWeights") or {}, f"step {step}:")
    half_life = (h.bank.half_life or timedelta()) // timedelta(microseconds=1)
    wanted_total = at_reference(checkpoint, saved.reference, half_life)
    if "totalWeight" not in ignored and not near(saved.total, wanted_total):
        yield f"step {step}: total: got {saved.total}, expected {wanted_total}"
    if "referenceTimestampMs" not in ignored and saved.reference != micros(checkpoint["referenceTimestampMs"]):
        yield f"step {step}: reference: got {saved.reference}, expected {checkpoint['referenceTimestampMs']}"


@suite("vpa/histogram_buckets")
def histogram_buckets(case: Case) -> Iterable[str]:
    for name, part in case.items():
        if not isinstance(part, dict) or "bucketStarts" not in part:
            continue
        buckets = scheme(part["options"])
        if buckets.count != part["numBuckets"]:
            yield f"{name}: got {buckets.count} buckets, expected {part['numBuckets']}"
        for index, (got, want) in enumerate(zip(buckets.starts.tolist(), part["bucketStarts"], strict=False)):
            if got != want:
                yield f"{name}: bucket {index} starts at {got!r}, expected {want!r}"


@suite("node/histogram_bucket")
def node_histogram_bucket(case: Case) -> Iterable[str]:
    given, want = case["input"], case["expected"]
    buckets = scheme(given)
    if buckets.count != want["numBuckets"]:
        yield f"number of buckets: got {buckets.count}, expected {want['numBuckets']}"
    if buckets.find(given["values"]).tolist() != want["buckets"]:
        yield f"buckets: got {buckets.find(given['values']).tolist()}, expected {want['buckets']}"
    for got, start in zip(buckets.starts.tolist(), want["starts"], strict=True):
        if not near(got, start):
            yield f"start: got {got}, expected {start}"


@suite("node/histogram")
def node_histogram(case: Case) -> Iterable[str]:
    given, want = case["input"], case["expected"]
    half_life = timedelta(seconds=given["halfLifeSeconds"]) if given.get("decaying") else None
    try:
        h = Column(Bank(scheme(given["options"]), half_life))
    except ValueError:
        if not want.get("error"):
            yield "the options were refused"
        return
    if want.get("error"):
        yield "the options were accepted"
        return
    if h.bank.buckets.count != want["numBuckets"]:
        yield f"number of buckets: got {h.bank.buckets.count}, expected {want['numBuckets']}"
    for op in given.get("ops") or ():
        change = h.add if op["op"] == "add" else h.subtract
        change(op["value"], op["weight"], int(op["unixSeconds"] * 1_000_000))
    if h.empty != want["empty"]:
        yield f"empty is {h.empty}"
    yield from _node_percentiles(h, want["percentiles"], "percentile")
    saved = h.save()
    if (checkpoint := want.get("checkpoint")) is not None:
        yield from weight_differences(dict(saved.weights), checkpoint.get("bucketWeights") or {}, "checkpoint")
        if not near(saved.total, checkpoint["totalWeight"]):
            yield f"total: got {saved.total}, expected {checkpoint['totalWeight']}"
        reference = checkpoint.get("referenceTimestamp")
        at = ZERO_TIME if reference is None else microseconds(datetime.fromisoformat(reference).astimezone(UTC))
        if half_life is not None and saved.reference != at:
            yield f"reference: got {saved.reference}, expected {reference}"
    if (after := want.get("percentilesAfterLoad")) is not None:
        restored = Column(h.bank)
        restored.load(saved)
        yield from _node_percentiles(restored, after, "percentile after load")


def _node_percentiles(h: Column, want: dict[str, float], what: str) -> Iterator[str]:
    for p, value in want.items():
        if value is not None and not near(h.percentile(float(p)), value):
            yield f"{what} {p}: got {h.percentile(float(p))}, expected {value}"
