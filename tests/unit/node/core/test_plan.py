"""How values merge on the way down the tree."""

import pytest

from kubetide.errors import KubetideError
from kubetide.node.core import files
from kubetide.node.core.plan import Batch, Plan, Target, Write, merge, merge_if_larger, merge_if_looser


@pytest.mark.parametrize(
    ("current", "target", "grows"),
    [("0", "1", True), ("5", "5", False), ("5", "max", True), ("max", "5", False), ("-1", "5", True)],
)
def test_memory_grows_when_the_target_is_larger(current: str, target: str, grows: bool) -> None:
    assert merge_if_larger(files.MEMORY_MIN, current, target).grows is grows


@pytest.mark.parametrize(
    ("current", "target", "grows"), [("-1", "100", False), ("100", "-1", True), ("-1", "-1", False)]
)
def test_no_quota_is_the_largest_quota(current: str, target: str, grows: bool) -> None:
    assert merge_if_larger(files.CPU_QUOTA, current, target).grows is grows


def test_cpus_grow_to_the_union_first() -> None:
    assert merge_if_looser("0-1", "1-3").value == "0-3"
    assert not merge_if_looser("0-3", "1-2").grows


def test_a_value_that_is_no_size_is_an_error() -> None:
    with pytest.raises(KubetideError):
        merge_if_larger(files.MEMORY_MIN, "abc", "5")


def test_files_without_a_rule_take_the_target() -> None:
    assert merge(files.CPU_BVT, "2", "-1").value == "-1"


def test_an_empty_plan_is_recognised() -> None:
    assert Plan().is_empty
    assert not Plan(batches=(Batch.flat(Write(file=files.CPU_SHARES, value="2", target=Target.TIER)),)).is_empty
