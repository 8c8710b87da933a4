"""Whatever a server answers: an object, an error with a class, or a refusal of kubetide's own."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import encode
from kubetide.errors import KubetideError
from kubetide.kube.client.decoding import decode_page, parse_line
from kubetide.kube.client.errors import ApiError, error_from, error_from_status
from kubetide.kube.client.transport import Response

names = st.sampled_from(
    ("kind", "code", "reason", "message", "details", "retryAfterSeconds", "metadata", "name", "items", "type", "object")
)
words = st.sampled_from(("Status", "Conflict", "Gone", "ADDED", "MODIFIED", "BOOKMARK", "ERROR", "TooManyRequests"))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
bodies = st.binary(max_size=30) | values.map(msgspec.json.encode)
HUGE = encode({"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 10**400}})


@given(bodies, st.integers(400, 599))
@example(HUGE, 429)
def test_an_answer_that_is_an_error_has_a_class(body: bytes, status: int) -> None:
    error = error_from_status(body, status=status)
    assert isinstance(error, ApiError)
    assert str(error)


@pytest.mark.parametrize("text", ["inf", "nan", "1e400", "-1", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "", "９"])
def test_a_wait_that_makes_no_sense_is_none(text: str) -> None:
    assert error_from(Response(429, {"retry-after": text}, b"")).retry_after is None


@given(bodies)
def test_a_line_of_a_watch_is_understood_or_refused(line: bytes) -> None:
    with contextlib.suppress(KubetideError):
        parse_line(line, Pod)


@given(bodies)
async def test_a_page_of_a_list_is_understood_or_refused(body: bytes) -> None:
    with contextlib.suppress(KubetideError):
        await decode_page(body, Pod)
