"""Shard selectors, and the comparison that keeps a reconcile from a cache that has not seen our own write."""

from collections.abc import Iterator

from conformance.compare import differences
from conformance.registry import Case, suite
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.shard_selector import UID, parse_shard_selector, shard_hash
from kubetide.errors import SelectorError
from kubetide.hpa.own_writes import OwnWrites


@suite("hpa-newer/shard_selector")
def shard_selector(case: Case) -> Iterator[str]:
    try:
        parsed = parse_shard_selector(case["selector"])
    except SelectorError as error:
        if not case["error"]:
            yield f"{case['selector']!r}: refused ({error}), should parse"
        return
    if case["error"]:
        yield f"{case['selector']!r}: parsed as {parsed}, should be refused"
        return
    yield from differences(case["canonical"], str(parsed), path="canonical")
    found = [(one.field, one.start, one.end) for one in parsed.ranges]
    wanted = [(one["field"], int(one["start"], 16), int(one["end"], 16)) for one in case["requirements"]]
    yield from differences(wanted, found, path="requirements")
    for one in case["matches"]:
        hashed = shard_hash(one["uid"] if parsed.field == UID else one["namespace"])
        yield from differences(one["hash"], f"{hashed:016x}", path="hash")
        yield from differences(one["matches"], parsed.matches(one["uid"], one["namespace"]), path="matches")


@suite("hpa-newer/read_your_writes")
def read_your_writes(case: Case) -> Iterator[str]:
    writes, cache = OwnWrites(), ""
    for position, (op, expected) in enumerate(zip(case["ops"], case["results"], strict=True)):
        key = ObjectKey("shop", op.get("hpa", ""))
        match op["op"]:
            case "wrote":
                writes.wrote(key, op["uid"], op["resourceVersion"])
            case "read":
                cache = op["resourceVersion"]
            case "clear":
                writes.clear(key, op["uid"])
            case "ready":
                yield from differences(expected, not writes.is_behind(key, None, cache), path=f"ops[{position}]")
