"""Quantities and label selectors."""

from collections.abc import Iterator

from conformance.adapters.hpa_releases import compat_of
from conformance.registry import SUITE, Case, Skip, suite
from kubetide.api.values.quantity import cpu_millis, memory_bytes, milli_text, parse_quantity, quantity_float
from kubetide.api.values.selectors import parse_selector
from kubetide.errors import QuantityError, SelectorError
from kubetide.hpa.core.describe import resource_text


@suite("hpa/quantity")
def quantity(case: Case) -> Iterator[str]:
    tags = case.get("tags", [])
    if "reference_defect" in tags:
        raise Skip("reference_defect")
    text = case["input"]
    try:
        parsed = parse_quantity(text)
    except QuantityError as error:
        if not case.get("error"):
            yield f"{text!r}: refused ({error}), should parse"
        return
    if case.get("error"):
        yield f"{text!r}: parsed as {parsed}, should be refused"
        return
    if "int64_overflow" in tags:
        return
    actual = {
        "milliValue": (parsed.milli, cpu_millis(text)),
        "value": (parsed.value, memory_bytes(text)),
        "sign": (parsed.sign,),
        "canonical": (parsed,),
        "asMilliDecimalSI": (milli_text(parsed.milli),),
    }
    if "approxFloat" in case:
        actual["approxFloat"] = (quantity_float(text),)
    for name, values in actual.items():
        wanted = parse_quantity(case["canonical"]) if name == "canonical" else case[name]
        for value in values:
            if value != wanted:
                yield f"{text!r} {name}: expected {wanted}, got {value}"
    if parse_quantity(str(parsed)) != parsed:
        yield f"{text!r}: {parsed} does not read back"


@suite("hpa-newer/status_quantity_v137")
def status_quantity(case: Case) -> Iterator[str]:
    shown = resource_text(case["resource"], case["milliValue"], compat_of(case[SUITE]))
    if shown != case["text"]:
        yield f"{case['milliValue']} of {case['resource']}: expected {case['text']}, got {shown}"


@suite("hpa/selector")
def selector(case: Case) -> Iterator[str]:
    text = case["input"]
    try:
        parsed = parse_selector(text)
    except SelectorError as error:
        if not case.get("error"):
            yield f"{text!r}: refused ({error}), should parse"
        return
    if case.get("error"):
        yield f"{text!r}: parsed as {parsed}, should be refused"
        return
    if str(parsed) != case["canonical"]:
        yield f"{text!r}: expected {case['canonical']!r}, got {str(parsed)!r}"
    for match in case["matches"]:
        if parsed.matches(match["labels"]) != match["matches"]:
            yield f"{text!r} on {match['labels']}: expected {match['matches']}"
