"""Which CPUs best-effort work gets, in the order in which they are taken."""

import pytest

from kubetide.node.core.qos.cpu_pick import pick
from nodeworld import processors_of

TWO_SOCKETS = [{"cpu": cpu, "core": cpu // 2, "socket": cpu // 4, "node": cpu // 4} for cpu in range(8)]
NO_THREADS = [{"cpu": cpu, "core": cpu, "socket": cpu // 2, "node": cpu // 2} for cpu in range(4)]
FOUR_THREADS = [{"cpu": cpu, "core": cpu // 4, "socket": 0, "node": 0} for cpu in range(8)]


@pytest.mark.parametrize(
    ("processors", "count", "expected"),
    [
        pytest.param(TWO_SOCKETS, 2, [0, 1], id="both-threads-of-a-core"),
        pytest.param(TWO_SOCKETS, 3, [0, 1, 4], id="a-single-thread-comes-from-where-the-pairs-stopped"),
        pytest.param(TWO_SOCKETS, 5, [0, 1, 4, 5, 2], id="an-odd-count-ends-with-one-thread"),
        pytest.param(TWO_SOCKETS[1:], 4, [4, 5, 2, 3], id="the-larger-socket-comes-first"),
        pytest.param(TWO_SOCKETS[::-1], 3, [0, 1, 4], id="the-order-of-the-list-does-not-matter"),
        pytest.param(NO_THREADS, 3, [0, 2, 1], id="without-threads-sockets-take-turns"),
        pytest.param(FOUR_THREADS, 6, [0, 1, 2, 3, 4, 5], id="four-threads-are-two-pairs"),
        pytest.param(TWO_SOCKETS, 9, [], id="more-than-there-are"),
        pytest.param(TWO_SOCKETS, 0, [], id="none-wanted"),
    ],
)
def test_whole_cores_are_taken_socket_by_socket(
    processors: list[dict[str, int]], count: int, expected: list[int]
) -> None:
    assert pick(count, processors_of(processors)) == expected
