"""Looking up who selects whom finds what trying every pair finds, in the same order."""

from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.values.selectors import NOTHING, Selector, parse_selector
from kubetide.verdicts.core.selecting import Labelled, Selecting

keys, values = st.sampled_from("abc"), st.sampled_from("xyz")
labels = st.dictionaries(keys, values, max_size=3)
terms = st.one_of(
    st.builds("{}={}".format, keys, values),
    st.builds("{}!={}".format, keys, values),
    st.builds("{} in ({})".format, keys, st.sets(values, min_size=1).map(",".join)),
    st.builds("{} notin ({})".format, keys, values),
    keys,
    keys.map("!{}".format),
)
selectors = st.one_of(st.lists(terms, max_size=3).map(lambda parts: parse_selector(",".join(parts))), st.just(NOTHING))


@given(st.lists(selectors, max_size=8), labels)
def test_selectors_are_found_by_the_labels_they_match(found: list[Selector], own: dict[str, str]) -> None:
    index = Selecting(enumerate(found))
    assert index.those(own) == [place for place, selector in enumerate(found) if selector.matches(own)]


@given(st.lists(labels, max_size=8), selectors)
def test_objects_are_found_by_the_selector_that_matches_them(found: list[dict[str, str]], selector: Selector) -> None:
    pods = [Pod(metadata=ObjectMeta(name=str(place), labels=own)) for place, own in enumerate(found)]
    assert Labelled(pods).those(selector) == [pod for pod in pods if selector.matches(pod.metadata.labels)]
