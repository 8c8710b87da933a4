"""Whatever somebody writes: it is understood, or refused by an error of kubetide's own that says so."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubetide.api.objects.core import Node, Pod
from kubetide.api.values.codec import decode, decode_folded
from kubetide.api.values.cpuset import CpuSet
from kubetide.api.values.patch import JsonPatch, MergePatch, StrategicMergePatch
from kubetide.api.values.quantity import cpu_millis, memory_bytes, parse_quantity, quantity_float
from kubetide.api.values.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    parse_field_selector,
    parse_selector,
    selector_from,
)
from kubetide.config import Doc, Settings, load, options
from kubetide.durations import format_duration, parse_duration
from kubetide.errors import InvalidInput, KubetideError
from kubetide.flags import parse_flags
from kubetide.kube.client.decoding import decode_page

LONG = "9" * 4400
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
names = st.sampled_from(
    (
        *("a", "metadata", "spec", "containers", "name", "ports", "containerPort", "finalizers", "conditions", "type"),
        *("$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "$x", ""),
    )
)
documents: st.SearchStrategy[Any] = st.recursive(
    scalars | st.sampled_from(["delete", "replace", "merge"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(names, documents, max_size=4)
pointers = st.lists(names | st.sampled_from(["0", "1", "-", "01", "~1", LONG]), max_size=3).map(
    lambda steps: "".join(f"/{step}" for step in steps)
)
operations = st.dictionaries(st.sampled_from(["op", "path", "from", "value"]), documents, max_size=4) | st.builds(
    lambda op, path, source, value: {"op": op, "path": path, "from": source, "value": value},
    st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
    pointers,
    pointers,
    documents,
)
numberish = st.text("0123456789+-.eEinumkKMGTP _x٣²", max_size=12) | st.text(max_size=8)


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("parse", [parse_quantity, cpu_millis, memory_bytes, quantity_float])
@given(text=numberish | scalars)
@example(text=LONG)
@example(text=f"{LONG}m")
@example(text=f"{LONG}n")
@example(text=f"{LONG}Ki")
@example(text=f"1e{LONG}")
@example(text="²")
def test_quantities(parse: Callable[[Any], object], text: Any) -> None:
    with contextlib.suppress(KubetideError):
        parse(text)


@given(numberish)
@example("1e-400")
def test_a_quantity_that_is_read_is_canonical_after_one_printing(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except InvalidInput:
        return
    shown = str(quantity)
    assert str(parse_quantity(shown)) == shown
    number = shown.rstrip("numkMGTPEi").split("e")[0] if shown[-1].isalpha() or "e" in shown else shown
    digits = number.rstrip("K")
    assert "." not in digits
    assert not digits.startswith("+")
    assert Fraction(digits).denominator == 1


@pytest.mark.parametrize("parse", [parse_selector, parse_field_selector])
@given(text=st.text("ab/.-_!=<>(), \\in\tnot", max_size=20) | st.text(max_size=12))
@example(text=f"a>{LONG}")
@example(text=f"a={LONG}")
def test_selectors(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(KubetideError):
        parse(text)


@given(
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
    st.lists(
        st.builds(
            LabelSelectorRequirement,
            key=st.text(max_size=3),
            operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", ""]),
            values=st.none() | st.lists(st.text(max_size=3), max_size=2).map(tuple),
        ),
        max_size=2,
    ),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
def test_selector_objects(
    labels: dict[str, str], expressions: list[LabelSelectorRequirement], node: dict[str, str]
) -> None:
    with contextlib.suppress(KubetideError):
        selector_from(LabelSelector(match_labels=labels, match_expressions=tuple(expressions))).matches(node)


@given(objects, objects)
@example({"containers": [{"name": []}]}, {"containers": [{"name": {}}, {"name": []}]})
@example({"finalizers": {"a": 1}}, {"$deleteFromPrimitiveList/finalizers": 5})
def test_merge_patches(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for kind in (MergePatch, StrategicMergePatch):
        before = repr(target)
        with contextlib.suppress(KubetideError):
            assert isinstance(kind(patch).apply(target), dict)
        assert repr(target) == before


@pytest.mark.parametrize(
    "patch",
    [
        MergePatch(nested(2000)),
        StrategicMergePatch(nested(2000)),
        JsonPatch([{"op": "add", "path": "/a" * 2000, "value": 1}]),
        JsonPatch([{"op": "remove", "path": "/a" * 2000}]),
        JsonPatch([{"op": "test", "path": "", "value": nested(2000)}]),
    ],
    ids=["merge", "strategic", "add", "remove", "test"],
)
def test_what_is_nested_too_deeply_is_refused(patch: MergePatch | StrategicMergePatch | JsonPatch) -> None:
    with pytest.raises(KubetideError, match=r"deeply|more than 500 steps"):
        patch.apply(nested(2000))


@pytest.mark.parametrize("kind", [MergePatch, StrategicMergePatch])
@given(patch=scalars | st.lists(scalars, max_size=2))
def test_a_patch_that_is_no_object_is_refused(kind: Callable[[Any], Any], patch: Any) -> None:
    with pytest.raises(KubetideError):
        kind(patch).apply({})


@given(objects, st.lists(operations | scalars, max_size=4))
@example({}, [{"op": ["add"], "path": "/a", "value": 1}])
def test_json_patches(target: dict[str, Any], patch: list[Any]) -> None:
    before = repr(target)
    with contextlib.suppress(KubetideError):
        assert isinstance(JsonPatch(patch).apply(target), dict)
    assert repr(target) == before


@given(st.text("0123456789.hmsunµ+-", max_size=12) | st.text(max_size=8))
@example(f"{LONG}h")
@example("0.000001ns")
def test_durations(text: str) -> None:
    try:
        duration = parse_duration(text)
    except KubetideError:
        return
    assert parse_duration(format_duration(duration)) == duration


@given(st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)))
def test_a_duration_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


class Colour(Enum):
    RED = "red"


class Everything(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "everything"

    switch: Annotated[bool, Doc("A switch.")] = False
    count: Annotated[int, Doc("A number.", aliases=("number",))] = 1
    share: Annotated[float, Doc("A share.")] = 0.5
    period: Annotated[timedelta, Doc("A time.")] = timedelta(seconds=1)
    limit: Annotated[timedelta | None, Doc("A time or none.")] = None
    words: Annotated[tuple[str, ...], Doc("Words.")] = ()
    colour: Annotated[Colour, Doc("A colour.")] = Colour.RED
    place: Annotated[Path, Doc("A file.")] = Path("/")


known = {"everything": options(Everything)}
flag_names = [option.flag for option in options(Everything)]
words = st.text(max_size=6) | st.builds(
    lambda dashes, name, value: f"{dashes}{name}{value}",
    st.sampled_from(["", "-", "--", "---"]),
    st.sampled_from([*flag_names, "number", "v", "vmodule", "everything.count", "SWITCH", ""]),
    st.sampled_from(["", "=", "=1", "=²", "=true", f"={LONG}", "=1h", "=nan", "=\x00"]),
)


@given(st.lists(words, max_size=4))
@example(["--v=²"])
@example([f"--v={LONG}"])
@example([f"--count={LONG}"])
def test_command_lines(arguments: list[str]) -> None:
    with contextlib.suppress(KubetideError):
        parsed = parse_flags(arguments, known)
        load(Everything, flags=parsed.by_section["everything"])


@given(
    st.dictionaries(st.sampled_from([option.env for option in options(Everything)]), numberish, max_size=3),
    st.dictionaries(st.sampled_from([*flag_names, "other"]) | scalars, documents, max_size=3),
)
@example({}, {1: 2})
def test_settings(env: dict[str, str], file: dict[str, Any]) -> None:
    with contextlib.suppress(KubetideError):
        load(Everything, env=env, file=file)


@given(documents | st.binary(max_size=20))
def test_objects_of_any_shape(document: Any) -> None:
    with contextlib.suppress(TypeError, ValueError):  # infinities are no JSON
        data = document if isinstance(document, bytes) else msgspec.json.encode(document)
        for kind in (Pod, Node):
            with contextlib.suppress(KubetideError):
                decode(data, kind)
            with contextlib.suppress(KubetideError):
                decode_folded(data, kind)
            with contextlib.suppress(KubetideError):
                asyncio.run(decode_page(data, kind))


@given(st.text("0123456789-, +٣", max_size=16))
@example(LONG)
@example(f"0-{LONG}")
def test_cpu_lists(text: str) -> None:
    with contextlib.suppress(KubetideError):
        CpuSet.parse(text)
