"""A difference, applied, gives the new object."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.patch import MergePatch, merge_diff

scalars = st.one_of(st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2))
objects = st.recursive(
    st.dictionaries(st.text("abc", min_size=1, max_size=1), scalars, max_size=3),
    lambda inner: st.dictionaries(
        st.text("abc", min_size=1, max_size=1), st.one_of(scalars, inner, st.lists(scalars, max_size=2)), max_size=3
    ),
    max_leaves=12,
)


@given(objects, objects)
def test_applying_the_difference_gives_the_new_object(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert MergePatch(merge_diff(old, new)).apply(old) == new
