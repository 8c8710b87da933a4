"""JSON → protobuf → JSON changes nothing, whatever the kind; and nothing that is not known gets through."""

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.field_tables import wanted_kinds
from kubetide.embedded.apiserver.protobuf.reader import decode_protobuf
from kubetide.embedded.apiserver.protobuf.tables import find_message
from kubetide.embedded.apiserver.rest.status import StatusError
from protobuf_bodies import body, encode, field, make_object, message_of, reachable, wrap

KINDS = [*wanted_kinds(), ("meta.k8s.io/v1", "DeleteOptions"), ("v1", "Status")]
EVERY_KIND = pytest.mark.parametrize(("api_version", "kind"), KINDS)
STRANGE = 5000


@EVERY_KIND
def test_an_object_with_everything_comes_back_whole(api_version: str, kind: str) -> None:
    whole = make_object(api_version, kind)
    assert decode_protobuf(encode(whole)) == whole


@EVERY_KIND
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_any_object_comes_back_as_it_was(api_version: str, kind: str, seed: int) -> None:
    some = make_object(api_version, kind, random.Random(seed))
    assert decode_protobuf(encode(some)) == some


@pytest.mark.parametrize(("api_version", "kind"), wanted_kinds())
def test_so_does_a_list(api_version: str, kind: str) -> None:
    item = make_object(api_version, kind)
    items = [{name: value for name, value in item.items() if name not in ("apiVersion", "kind")}]
    listed = {"apiVersion": api_version, "kind": f"{kind}List", "metadata": {"resourceVersion": "7"}, "items": items}
    assert decode_protobuf(encode(listed)) == listed


@EVERY_KIND
def test_a_field_that_is_not_in_the_table_is_refused_wherever_it_is(api_version: str, kind: str) -> None:
    for message, path in reachable(message_of(api_version, kind)):
        for strange in (field(STRANGE, "text"), field(STRANGE, 0)):
            with pytest.raises(StatusError, match=f"field {STRANGE} of {message.name} ") as refused:
                decode_protobuf(body(api_version, kind, wrap(strange, path)))
            assert refused.value.code == 415


@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_no_bytes_break_the_reader(noise: bytes, kind: tuple[str, str]) -> None:
    assert find_message(*kind) is not None
    with contextlib.suppress(StatusError):
        assert decode_protobuf(body(*kind, noise))["kind"] == kind[1]


@settings(max_examples=200)
@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_no_damage_breaks_the_reader(kind: tuple[str, str], seed: int, rng: random.Random) -> None:
    damaged = bytearray(encode(make_object(*kind, random.Random(seed))))
    for _ in range(rng.randint(1, 4)):
        damaged[rng.randrange(4, len(damaged))] = rng.randrange(256)
    with contextlib.suppress(StatusError):
        decode_protobuf(bytes(damaged))
