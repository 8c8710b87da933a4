"""Core scheduling by the kernel's own calls, on processes that the test starts.

Needs a kernel built with CONFIG_SCHED_CORE and a CPU whose cores have several threads.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from kubetide.node.core.hooks.cookies import CookieMemory
from kubetide.node.core.plan import ClearCookies, CreateCookie, Grouped
from kubetide.node.runtime.core_sched import CookieError, PrctlCookies, apply_cookies, read_cookies

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITING = "import sys; sys.stdin.read()"


def kernel() -> PrctlCookies:
    """Return the machine's kernel; skip the test where it has no core scheduling."""
    found = PrctlCookies()
    try:
        found.get(0)
    except CookieError as error:
        pytest.skip(f"needs CONFIG_SCHED_CORE and cores with several threads: {error}")
    assert found.usable()
    return found


@contextmanager
def processes(count: int) -> Iterator[list[int]]:
    """Start processes that wait, and end them."""
    started = [subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield [one.pid for one in started]
    finally:
        for one in started:
            one.communicate()


def sync(memory: CookieMemory, real: PrctlCookies, *containers: Grouped) -> None:
    """Look, decide, act and learn once."""
    pids = memory.processes.union(*(one.pids for one in containers))
    plan = memory.plan(containers, read_cookies(real, sorted(pids)), now=NOW)
    memory.applied(plan, apply_cookies(real, plan.operations))


def container(uid: str, *pids: int, group: str = "shop", enabled: bool = True) -> Grouped:
    return Grouped(uid=uid, identity="main", group=group, enabled=enabled, pids=pids)


def test_cookies_are_made_shared_and_taken_off_and_the_agent_keeps_none() -> None:
    real = kernel()
    with processes(3) as pids:
        assert set(read_cookies(real, pids).values()) == {0}
        (made,) = apply_cookies(real, [CreateCookie(group="shop", first=pids[0], others=tuple(pids[1:]))])
        assert made.reason == ""
        (cookie,) = set(made.cookies.values())
        assert cookie != 0
        assert read_cookies(real, pids) == dict.fromkeys(pids, cookie)
        assert real.get(0) == 0
        (cleared,) = apply_cookies(real, [ClearCookies(pids=tuple(pids))])
        assert cleared.cookies == dict.fromkeys(pids, 0)
        assert real.get(0) == 0


def test_a_process_that_is_gone_is_left_out() -> None:
    real = kernel()
    with processes(1) as gone:
        pass
    with processes(1) as alive:
        (made,) = apply_cookies(real, [CreateCookie(group="shop", first=alive[0], others=tuple(gone))])
        assert list(made.cookies) == alive
        assert made.reason


def test_a_group_has_one_cookie_and_another_group_another() -> None:
    real = kernel()
    memory = CookieMemory()
    with processes(4) as (web, side, late, other):
        everyone = (container("web", web), container("side", side, late), container("other", other, group="bank"))
        sync(memory, real, *everyone)
        one = memory.groups["shop"].cookie
        assert memory.groups["bank"].cookie not in (0, one)
        assert {real.get(pid) for pid in (web, side, late)} == {one}
        again = CookieMemory()
        sync(again, real, *everyone)
        assert again.groups["shop"].cookie == one
        sync(memory, real, everyone[0], container("side", side, late, enabled=False), everyone[2])
        assert [real.get(pid) for pid in (web, side, late)] == [one, 0, 0]
