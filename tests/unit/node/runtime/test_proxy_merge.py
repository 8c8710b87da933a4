"""How resources change on their way through the runtime proxy, field by field."""

from typing import Any

import pytest

from kubetide.node.runtime.proxy_merge import LinuxResources, merge_hook_response, merge_update_request

STORED = LinuxResources(
    cpu_period=1,
    cpu_quota=2,
    cpu_shares=3,
    memory_limit_in_bytes=4,
    oom_score_adj=5,
    cpuset_cpus="0",
    cpuset_mems="1",
    hugepage_limits=(("2MB", 6),),
    unified={"a": "1", "b": "1"},
    memory_swap_limit_in_bytes=7,
)


@pytest.mark.parametrize(
    ("field", "value", "by_hook", "by_request"),
    [
        ("cpu_shares", 9, 9, 9),
        ("cpu_shares", 0, 3, 3),
        ("cpu_period", -1, 1, 1),
        ("memory_swap_limit_in_bytes", -1, 7, 7),
        pytest.param("memory_limit_in_bytes", -1, 4, 4, id="no-memory-limit-is-left-to-the-reconciler"),
        pytest.param("cpu_quota", -1, -1, -1, id="no-quota-passes"),
        ("cpu_quota", 0, 2, 2),
        pytest.param("oom_score_adj", 0, 0, 5, id="a-hook-may-set-the-score-to-zero"),
        pytest.param("oom_score_adj", 1001, 5, 5, id="a-score-that-is-none"),
        ("oom_score_adj", -1000, -1000, 5),
        pytest.param("cpuset_cpus", "", "", "0", id="empty-clears-for-a-hook-and-keeps-for-a-request"),
        ("cpuset_mems", "3", "3", "3"),
        ("unified", {"b": "2"}, {"a": "1", "b": "2"}, {"a": "1", "b": "2"}),
        ("hugepage_limits", (("1GB", 1),), (("2MB", 6),), (("2MB", 6),)),
    ],
)
def test_every_field_has_its_own_rule(field: str, value: Any, by_hook: Any, by_request: Any) -> None:
    incoming = LinuxResources(**{field: value})
    hooked, requested = merge_hook_response(STORED, incoming), merge_update_request(STORED, incoming)
    assert (getattr(hooked, field), getattr(requested, field)) == (by_hook, by_request)


def test_without_one_side_the_stored_one_stays() -> None:
    for merge in (merge_hook_response, merge_update_request):
        assert merge(STORED, None) is STORED
        assert merge(None, None) is None
    assert merge_hook_response(None, STORED) is None
