"""CPU lists: what is accepted, what is refused, how they are written."""

import pytest

from kubetide.api.values.cpuset import CpuSet, CpuSetError, same_cpus


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        pytest.param("", [], id="empty-text-is-the-empty-set"),
        pytest.param("3", [3], id="one-cpu"),
        pytest.param("0-2,7", [0, 1, 2, 7], id="range-and-single"),
        pytest.param("5-3", [], id="a-backward-range-adds-nothing"),
        pytest.param("0,0-1,1", [0, 1], id="repeats-collapse"),
        pytest.param("100000", [100000], id="a-single-id-may-be-large"),
    ],
)
def test_cpu_lists_parse_as_linux_writes_them(text: str, ids: list[int]) -> None:
    assert list(CpuSet.parse(text)) == ids


@pytest.mark.parametrize("text", [" 1", "1 ", "a", "1-", "-1", "1,,2", "1-2-3", "0-5000", "99999999999"])
def test_what_is_no_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(CpuSetError):
        CpuSet.parse(text)


def test_the_canonical_text_is_ascending_with_ranges_merged() -> None:
    assert str(CpuSet.of([5, 3, 1, 0, 4, 9])) == "0-1,3-5,9"


def test_set_algebra_keeps_values_immutable() -> None:
    left, right = CpuSet.parse("0-3"), CpuSet.parse("2-5")
    assert (str(left | right), str(left & right), str(left - right)) == ("0-5", "2-3", "0-1")
    assert CpuSet.parse("1") <= left
    assert str(left) == "0-3"


def test_two_spellings_of_one_set_are_the_same_cpus() -> None:
    assert same_cpus("0,1,2", "0-2")
    assert not same_cpus("0-2", "nonsense")
