"""Core scheduling by the kernel's own calls, on processes that the test starts.

Needs a kernel built with CONFIG_SCHED_CORE and a CPU whose cores have several threads.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from kubetide.node.core.hooks.cookies import Cookies
from kubetide.node.core.hooks.core_sched import CookieError, add_cookie, clear_cookie, get_cookie
from kubetide.node.runtime.core_sched import PrctlCookies

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


def test_cookies_are_made_shared_and_taken_off_and_the_agent_keeps_none() -> None:
    real = kernel()
    with processes(3) as pids:
        assert get_cookie(real, pids) == (0, [])
        cookie, carriers = add_cookie(real, pids)
        assert cookie != 0
        assert carriers == sorted(pids)
        assert get_cookie(real, pids) == (cookie, pids)
        assert real.get(0) == 0
        assert clear_cookie(real, pids) == sorted(pids)
        assert get_cookie(real, pids) == (0, [])
        assert real.get(0) == 0


def test_a_process_that_is_gone_is_left_out() -> None:
    real = kernel()
    with processes(1) as gone:
        pass
    with processes(1) as alive:
        cookie, carriers = add_cookie(real, [*alive, *gone])
        assert cookie != 0
        assert carriers == alive


def test_a_group_has_one_cookie_and_another_group_another() -> None:
    real = kernel()
    cookies = Cookies(real)
    with processes(4) as (web, side, late, other):
        one = cookies.enable("pod/web", "shop", (web,), NOW)
        assert cookies.enable("pod/side", "shop", (side, late), NOW) == one
        assert cookies.enable("pod/other", "bank", (other,), NOW) not in (0, one)
        assert {real.get(pid) for pid in (web, side, late)} == {one}
        again = Cookies(real)
        again.load([("pod/web", "shop", (web,)), ("pod/other", "bank", (other,))], NOW)
        assert again.groups["shop"].cookie == one
        cookies.disable("pod/side", (side, late), NOW)
        assert [real.get(pid) for pid in (web, side, late)] == [one, 0, 0]
