"""The controlled best-effort share on real cgroups: the kernel's throttling counters move the kernel's quota."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from kernel.test_qos_kernel import CPUS, Machine
from kernel.tree import BURNER, cgroup_tree, until
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.node.core.formats.cpu import Throttling, throttled_ratio
from kubetide.node.core.qos.share_control import ShareControl
from kubetide.node.core.qos.share_target import Share, ShareTarget, Signal
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.series import kinds
from kubetide.node.core.snapshot import PodState


class Watched(Machine):
    """A machine whose strategies see the throttled ratio that the kernel counted since the last look."""

    counted: Throttling | None = None

    def look_at(self, pod: PodState) -> float:
        now = Throttling(*self.tree.periods(pod.directory), 0)
        ratio = throttled_ratio(now, self.counted) if self.counted else 0.0
        self.counted = now
        self.metrics.set(kinds.POD_THROTTLED, ratio, {kinds.POD_UID: pod.uid})
        self.measure()
        return ratio


async def passing(counter: Callable[[], int], more: int) -> None:
    """Wait until a counter has grown by more than that."""
    start = counter()
    await until(lambda: counter() > start + more)


def share_of(control: ShareControl) -> float:
    """Return the percentage of the node that best-effort work may fill with its neighbours."""
    assert control._share is not None
    return control._share.percent


async def test_throttled_neighbours_take_best_effort_work_back_within_a_second_and_calm_returns_it_slowly() -> None:
    with cgroup_tree() as tree:
        threshold = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65}
        machine = Watched(tree, {"resourceUsedThresholdWithBE": threshold})
        web = machine.add("web", label="LS")
        job = machine.add("job", label="BE", kube="BestEffort")
        tier = tree.paths.tier(BEST_EFFORT)
        control = ShareControl(ShareTarget(Signal.THROTTLED, 5.0))
        # As after some calm minutes; waiting for them here would be a test of patience.
        control._share = Share(percent=85.0, edge=90.0, calm=60.0)
        strategy = CpuSuppress(share=control)
        tree.run(job.containers[0].directory, BURNER)
        machine.look_at(web)
        machine.sync(strategy)
        assert machine.quota(tier) == CPUS * 85_000

        tree.limit_cpu(web.directory, 10_000)
        tree.run(web.containers[0].directory, BURNER)
        before = tree.periods(web.directory)[1]
        await until(lambda: tree.periods(web.directory)[1] > before + 5)
        assert machine.look_at(web) > 0.05
        machine.sync(strategy)
        assert machine.quota(tier) <= CPUS * 65_000
        first, shares = machine.quota(tier), [share_of(control)]
        while machine.quota(tier) > first / 2 and len(shares) < 40:
            await passing(lambda: tree.periods(web.directory)[0], 4)
            machine.look_at(web)
            machine.sync(strategy)
            shares.append(share_of(control))
        quota = machine.quota(tier)
        assert quota <= first / 2
        # The share only falls; the quota is what the service leaves of it, and its usage has noise.
        assert shares == sorted(shares, reverse=True)
        periods, used = tree.periods(tier)[0], tree.usage_nanos(tier)
        await asyncio.sleep(0.5)
        # Usage before periods: what passes between the two looks, a while on a busy machine, must not count as usage.
        used = tree.usage_nanos(tier) - used
        passed = tree.periods(tier)[0] - periods
        assert used <= (passed + 2) * quota * 1000 * 1.25, "the kernel keeps it there"

        tree.limit_cpu(web.directory, -1)
        machine.look_at(web)
        low = share_of(control)
        for _ in range(15):
            await passing(lambda: tree.usage_nanos(web.directory), 0)
            assert machine.look_at(web) == 0.0
            control._at = machine.snapshot().now - timedelta(seconds=1)  # a second of the agent, not of the test
            machine.sync(strategy)
        # It fell by tens within a second; after a quarter of a minute of calm it is a little up.
        assert 0 < share_of(control) - low < 10
