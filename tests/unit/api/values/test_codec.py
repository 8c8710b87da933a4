"""Decoding: tolerant of unknown fields and nulls, exact about errors."""

import msgspec
import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ApiObject, ObjectMeta
from kubetide.api.values.codec import (
    convert,
    decode,
    decode_folded,
    decode_raw,
    encode,
    fold_keys,
    to_builtins,
    without_nulls,
)
from kubetide.errors import DecodeError


class Inner(ApiObject, frozen=True, kw_only=True):
    read_iops: int | None = msgspec.field(name="readIOPS", default=None)


class Outer(ApiObject, frozen=True, kw_only=True):
    cpu_policy: str = ""
    inner: Inner | None = None
    many: tuple[Inner, ...] | None = None
    by_name: dict[str, Inner] | None = None


def test_unknown_fields_and_nulls_are_passed_over() -> None:
    pod = decode(
        b'{"metadata":{"name":null,"labels":null,"new":1},"spec":{"containers":null,"nodeName":null,"x":[]},"status":null}',
        Pod,
    )
    assert pod == Pod()


@pytest.mark.parametrize(
    "text", ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456789Z", "2024-01-02T04:04:05+01:00"]
)
def test_timestamps_come_with_and_without_fractions(text: str) -> None:
    found = decode(f'{{"creationTimestamp":"{text}"}}', ObjectMeta).creation_timestamp
    assert found is not None
    assert found.timestamp() == pytest.approx(1704164645, abs=1)


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"spec":{"nodeName":3}}', b"[]", b'{"metadata":{"name":"\xff"}}', b"[" * 100_000]
)
def test_what_is_no_pod_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(DecodeError, match="Pod"):
        decode(data, Pod)


def test_errors_carry_the_path() -> None:
    with pytest.raises(DecodeError, match=r"\$\.spec\.nodeName"):
        decode(b'{"spec":{"nodeName":3}}', Pod, what="pod shop/web")


def test_keys_fold_like_go() -> None:
    text = '{"CPUPOLICY":"a","Inner":{"readiops":1},"MANY":[{"ReadIOPS":2}],"byname":{"Keep":{"READIOPS":3}},"other":1}'
    assert decode_folded(text, Outer) == Outer(
        cpu_policy="a",
        inner=Inner(read_iops=1),
        many=(Inner(read_iops=2),),
        by_name={"Keep": Inner(read_iops=3)},
    )


def test_a_null_for_an_item_is_the_zero_value_and_a_null_for_a_field_says_nothing() -> None:
    text = '{"cpuPolicy":null,"many":[null,{"readIOPS":2}],"byName":{"a":null}}'
    assert decode_folded(text, Outer) == Outer(many=(Inner(), Inner(read_iops=2)), by_name={"a": Inner()})
    assert fold_keys([None, "a"], list[str]) == ["", "a"]
    assert fold_keys({"cpu": None}, dict[str, str | int | float]) == {"cpu": 0}
    assert fold_keys({"cpu": None}, dict[str, int | None]) == {"cpu": None}
    assert fold_keys([None], list[list[int]]) == [[]]
    assert fold_keys([None], list[bool]) == [False]


def test_objects_become_plain_json_values() -> None:
    assert to_builtins(Outer(many=(Inner(read_iops=1),)))["many"] == [{"readIOPS": 1}]
    assert without_nulls({"a": None, "b": [{"c": None}]}) == {"b": [{}]}
    assert decode_raw(encode({"a": 1})) == {"a": 1}
    assert convert({"cpuPolicy": None}, Outer) == Outer()
