"""Memory that runs out on a real kernel: the alarm comes before the OOM kill, and a raised limit prevents it."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kernel.tree import Tree, cgroup_tree, until
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.clock import SystemClock
from kubetide.node.core.memory_alarms import Alarm
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.host.detect import has_pressure
from kubetide.node.host.readers import CgroupReader
from kubetide.node.memory_watch import MemoryWatch

MIB = 2**20
LIMIT = 128 * MIB

HOLDER = """
import sys, time
held = []
while True:
    try:
        wanted = int(open(sys.argv[1]).read() or 0)
    except (OSError, ValueError):
        wanted = 0
    while len(held) < wanted:
        part = bytearray(1048576)
        part[::4096] = b"x" * 256
        held.append(part)
    open(sys.argv[2], "w").write(str(len(held)))
    time.sleep(0.02)
"""
"""Holds as many mebibytes as a file says, and says in another how many it holds."""


@pytest.fixture
def tree() -> Iterator[Tree]:
    with cgroup_tree() as made:
        made.tiers()
        yield made


class Grower:
    """A pod whose process holds as much memory as a test says."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree = tree
        self.directory = f"{tree.pod('grower', 'Burstable', 'main')}/main"
        self.limit(LIMIT)
        self._wanted, self._held = folder / "wanted", folder / "held"
        self._wanted.write_text("0")
        self.process = tree.run(self.directory, HOLDER, str(self._wanted), str(self._held))
        self.reader = CgroupReader(tree.host, tree.layout)
        self._watch = MemoryWatch(self.reader, SystemClock())
        self._pod = self._state()

    def _state(self) -> PodState:
        running = {"name": "main", "containerID": "containerd://main", "state": {"running": {}}}
        raw = {
            "metadata": {"name": "grower", "namespace": "test", "uid": "grower"},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [running]},
        }
        return pod_state(convert(raw, Pod), self.tree.paths)

    def limit(self, amount: int, *, high: int | None = None) -> None:
        """Write limits as a kubelet does."""
        name = "memory.limit_in_bytes" if self.tree.version == 1 else "memory.max"
        middle = "memory" if self.tree.version == 1 else ""
        place = self.tree.root / middle / self.directory
        (place / name).write_text(str(amount))
        if high is not None:
            (place / "memory.high").write_text(str(high))

    async def hold(self, mebibytes: int) -> None:
        """Wait until the process holds so much."""
        self._wanted.write_text(str(mebibytes))
        await until(lambda: self._held.exists() and self._held.read_text() == str(mebibytes))

    def look(self) -> Alarm | None:
        """Look once."""
        return self._watch.look((self._pod,)).get(("grower", "main"))


@asynccontextmanager
async def growing(tree: Tree, folder: Path) -> AsyncIterator[Grower]:
    yield Grower(tree, folder)


async def test_an_alarm_comes_before_the_oom_kill_and_a_raised_limit_prevents_it(tree: Tree, tmp_path: Path) -> None:
    async with growing(tree, tmp_path) as grower:
        alarm, held = None, 60
        while alarm is None:
            assert held < 112, "no alarm was raised on the way to the limit"
            await grower.hold(held := held + 4)
            alarm = grower.look()
        assert (alarm.rule, alarm.limit) == ("soon", LIMIT)
        assert held * MIB <= alarm.need < LIMIT
        grower.limit(2 * LIMIT)
        await grower.hold(150)
        assert grower.process.poll() is None
        assert grower.reader.oom_kills(grower.directory) == 0
        # Far from its new limit, it is looked at no more.
        assert grower.look() is None


async def test_memory_that_grows_beyond_its_limit_is_oom_killed(tree: Tree, tmp_path: Path) -> None:
    async with growing(tree, tmp_path) as grower:
        (tmp_path / "wanted").write_text("400")
        await until(lambda: grower.process.poll() is not None)


async def test_what_is_slowed_down_by_memory_high_is_pressed(tree: Tree, tmp_path: Path) -> None:
    if tree.version == 1:
        pytest.skip("memory.high needs cgroup v2")
    async with growing(tree, tmp_path) as grower:
        high = 64 * MIB
        grower.limit(LIMIT, high=high)
        await grower.hold(40)
        grower.look()
        (tmp_path / "wanted").write_text("80")
        found: list[Alarm] = []

        async def pressed() -> bool:
            alarm = grower.look()
            found.extend([] if alarm is None else [alarm])
            return any(one.limit == high and one.hits for one in found)

        async with asyncio.timeout(60):
            while not await pressed():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
        assert grower.reader.limits_reached(grower.directory) > 0
        if has_pressure(tree.host, tree.layout):
            assert all(one.pressure is not None for one in found)
        assert grower.reader.oom_kills(grower.directory) == 0


@pytest.mark.skipif("KUBETIDE_IN_VM" in os.environ, reason="files of the inner machine lie in memory, not in a cache")
async def test_page_cache_raises_no_alarm(tree: Tree, tmp_path: Path) -> None:
    async with growing(tree, tmp_path) as grower:
        await grower.hold(10)
        written = tmp_path / "file"
        code = "import sys\nwith open(sys.argv[1], 'wb') as f:\n    for _ in range(400): f.write(bytes(1048576))\n"
        writer = tree.run(grower.directory, code, str(written))
        await until(lambda: writer.poll() is not None)
        usage = grower.reader.memory_usage(grower.directory)
        assert usage > 0.7 * LIMIT, "the cache fills the limit"
        assert [grower.look(), grower.look()] == [None, None]
