"""Core scheduling cookies: decided from numbers alone, remembered as the kernel reports them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from kubetide.node.core.hooks.cookies import CookieMemory
from kubetide.node.core.plan import ClearCookies, CookieOperation, CreateCookie, Grouped, ShareCookie
from kubetide.node.runtime.core_sched import apply_cookies, read_cookies
from nodeworld import START, MemoryCookies


def container(key: str, *pids: int, group: str = "g", enabled: bool = True) -> Grouped:
    uid, _, identity = key.partition("/")
    return Grouped(uid=uid, identity=identity, group=group, enabled=enabled, pids=pids)


def sync(
    memory: CookieMemory, kernel: MemoryCookies, *containers: Grouped, now: datetime = START
) -> Sequence[CookieOperation]:
    """Look, decide, act and learn once."""
    pids = memory.processes.union(*(one.pids for one in containers))
    plan = memory.plan(containers, read_cookies(kernel, sorted(pids)), now=now)
    memory.applied(plan, apply_cookies(kernel, plan.operations))
    return plan.operations


def test_containers_of_a_group_share_one_new_cookie() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0, 3: 0, 4: 0})
    containers = container("a/1", 1, 2), container("b/1", 3), container("c/1", 4, group="other")
    assert sync(memory, kernel, *containers) == (
        CreateCookie(group="g", first=1, others=(2, 3)),
        CreateCookie(group="other", first=4),
    )
    assert kernel.cookies == {1: 100, 2: 100, 3: 100, 4: 101}
    assert sync(memory, kernel, *containers) == ()
    assert [memory.cookie_of(one) for one in containers] == [100, 100, 101]


def test_a_process_that_joins_its_container_gets_the_cookie_that_is_there() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0})
    sync(memory, kernel, container("a/1", 1))
    assert sync(memory, kernel, container("a/1", 1, 2)) == (ShareCookie(group="g", cookie=100, source=1, pids=(2,)),)
    assert kernel.cookies == {1: 100, 2: 100}


def test_a_container_that_is_switched_off_loses_its_cookie_and_no_other_does() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0, 9: 0})
    sync(memory, kernel, container("a/1", 1), container("b/1", 2))
    kernel.cookies[9] = 55
    operations = sync(
        memory, kernel, container("a/1", 1), container("b/1", 2, enabled=False), container("c/1", 9, enabled=False)
    )
    assert operations == (ClearCookies(pids=(2,)),), "what nobody here gave is nobody's here to take"
    assert kernel.cookies == {1: 100, 2: 0, 9: 55}
    assert list(memory.members) == ["a/1"]


def test_a_group_whose_processes_are_all_gone_gets_a_new_cookie() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0})
    sync(memory, kernel, container("a/1", 1))
    kernel.cookies = {9: 0}
    sync(memory, kernel, container("a/2", 9))
    assert kernel.cookies == {9: 101}


def test_a_process_number_that_is_used_again_gets_the_cookie_of_its_group() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0})
    sync(memory, kernel, container("a/1", 1, 2))
    kernel.cookies[1] = 0
    assert sync(memory, kernel, container("a/1", 1, 2)) == (ShareCookie(group="g", cookie=100, source=2, pids=(1,)),)


def test_cookies_are_adopted_after_a_restart_and_the_first_of_a_group_counts() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 7, 2: 7, 3: 8})
    sync(memory, kernel, container("a/1", 1, 2), container("b/1", 3))
    assert memory.groups["g"].cookie == 7
    assert kernel.cookies == {1: 7, 2: 7, 3: 7}


def test_a_group_that_nobody_is_in_is_forgotten_after_five_minutes() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0})
    sync(memory, kernel, container("a/1", 1))
    sync(memory, kernel, now=START + timedelta(seconds=300))
    assert memory.groups
    sync(memory, kernel, now=START + timedelta(seconds=301))
    assert (memory.groups, memory.members) == ({}, {})


def test_nothing_is_done_before_any_cookie_could_be_read() -> None:
    assert sync(CookieMemory(), MemoryCookies(), container("a/1", 1)) == ()


def test_processes_that_could_not_be_read_for_a_while_keep_their_cookie() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0})
    sync(memory, kernel, container("a/1", 1, 2))
    kept, kernel.cookies = kernel.cookies, {}
    assert sync(memory, kernel, container("a/1", 1, 2)) == ()
    kernel.cookies = kept
    assert sync(memory, kernel, container("a/1", 1, 2)) == ()


def test_a_plan_that_nobody_carried_out_leaves_no_trace() -> None:
    memory, containers = CookieMemory(), (container("a/1", 1, 2),)
    first = memory.plan(containers, {1: 0, 2: 0}, now=START)
    assert first.operations
    assert memory.plan(containers, {1: 0, 2: 0}, now=START) == first
    assert (memory.groups, memory.members) == ({}, {})


def test_a_source_that_became_another_process_meanwhile_gives_nothing_away() -> None:
    kernel = MemoryCookies({1: 0, 2: 7})
    (outcome,) = apply_cookies(kernel, [ShareCookie(group="g", cookie=7, source=1, pids=(2,))])
    assert (outcome.cookies, kernel.changes) == ({2: 7}, [])
    assert "process 1" in outcome.reason


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_cookie_that_is_refused_once_is_given_by_the_next_sync(refused: int) -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0, 3: 0})
    containers = container("a/1", 1, 2), container("b/1", 3)
    kernel.refused = {refused}
    sync(memory, kernel, *containers)
    assert refused not in {pid for one in memory.groups.values() for pid in one.pids}
    kernel.refused = set()
    sync(memory, kernel, *containers)
    assert set(kernel.cookies.values()) == {memory.groups["g"].cookie} != {0}
    assert sync(memory, kernel, *containers) == ()


def test_a_process_that_refuses_for_good_does_not_keep_its_group_from_a_cookie() -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0})
    kernel.refused = {1}
    containers = container("a/1", 1), container("b/1", 2)
    assert sync(memory, kernel, *containers) == (CreateCookie(group="g", first=1, others=(2,)),)
    assert sync(memory, kernel, *containers) == (CreateCookie(group="g", first=2, others=(1,)),)
    assert kernel.cookies == {1: 0, 2: 100}


@pytest.mark.parametrize("refused", [{1}, {2}, {1, 2}])
def test_a_cookie_that_could_not_be_taken_off_is_taken_off_by_the_next_sync(refused: set[int]) -> None:
    memory, kernel = CookieMemory(), MemoryCookies({1: 0, 2: 0})
    sync(memory, kernel, container("a/1", 1, 2))
    kernel.refused = refused
    for minute in range(10):
        sync(memory, kernel, container("a/1", 1, 2, enabled=False), now=START + timedelta(minutes=minute))
        assert {pid for pid, cookie in kernel.cookies.items() if cookie} == refused
    kernel.refused = set()
    sync(memory, kernel, container("a/1", 1, 2, enabled=False), now=START + timedelta(minutes=10))
    assert (kernel.cookies, memory.members) == ({1: 0, 2: 0}, {})
