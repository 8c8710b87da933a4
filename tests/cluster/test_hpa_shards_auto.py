"""Replicas of the autoscaler that share the work: all of it is done, and nothing twice."""

import json
from datetime import timedelta

import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.rest.requests import Request, User
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings, ShardBy
from kubetide.kube.control.core.ranges import ALL_RANGES, RANGES, ShardMode, ranges_text
from kubetide.kube.control.shards import CLAIMS
from simulated.replicas import Replicas, SkewedClock, WriteChecker, drill, replicas_of, sizes, workloads


@pytest.mark.parametrize("server_shards", [True, False], ids=["server-filters", "filtered-on-arrival"])
def test_replicas_share_all_namespaces_and_hold_no_others(server_shards: bool) -> None:
    async def main(replicas: Replicas) -> None:
        names = await workloads(replicas, 12)
        for _ in range(3):
            await replicas.start()
        await replicas.cluster.run_for(timedelta(minutes=1))
        owned = [one.ranges for one in replicas.all]
        assert sum(owned) == RANGES
        assert min(owned) > RANGES / 6
        assert sizes(replicas, names) == {2}
        held = [
            one.running.counted("kubetide_informer_objects", resource="horizontalpodautoscalers.autoscaling")
            for one in replicas.all
        ]
        assert sum(held) == len(names)
        told = replicas.all[0].running.controller.notes()
        assert told[0] == f"owns {owned[0]} of 256 ranges of namespaces, with 3 members"
        assert any("does not filter by shard" in note for note in told) is not server_shards

    drill(main, server_shards=server_shards)


def test_one_replica_owns_everything_and_a_second_one_takes_its_share() -> None:
    async def main(replicas: Replicas) -> None:
        names = await workloads(replicas, 8)
        first = await replicas.start()
        await replicas.cluster.run_for(timedelta(seconds=30))
        assert first.ranges == RANGES
        assert sizes(replicas, names) == {2}
        second = await replicas.start()
        replicas.cluster.metrics.set_external_metric("", "queue", 40.0)
        await replicas.cluster.run_for(timedelta(seconds=30))
        assert 0 < second.ranges < RANGES
        assert first.ranges + second.ranges == RANGES
        assert sizes(replicas, names) == {4}

    drill(main)


def test_ranges_of_a_replica_that_stops_are_taken_over_at_once() -> None:
    async def main(replicas: Replicas) -> None:
        names = await workloads(replicas, 8)
        first, second = await replicas.start(), await replicas.start()
        await replicas.cluster.run_for(timedelta(seconds=40))
        first.stop()
        await replicas.cluster.run_for(timedelta(seconds=6))
        assert second.ranges == RANGES
        replicas.cluster.metrics.set_external_metric("", "queue", 30.0)
        await replicas.cluster.run_for(timedelta(seconds=20))
        assert sizes(replicas, names) == {3}

    drill(main)


def test_ranges_of_a_replica_that_died_are_taken_over_when_its_lease_has_run_out() -> None:
    async def main(replicas: Replicas) -> None:
        await workloads(replicas, 8)
        first, second = await replicas.start(), await replicas.start()
        await replicas.cluster.run_for(timedelta(seconds=40))
        first.stop(kill=True)
        await replicas.cluster.run_for(timedelta(seconds=13))
        assert 0 < second.ranges < RANGES
        await replicas.cluster.run_for(timedelta(seconds=7))
        assert second.ranges == RANGES

    drill(main)


def test_a_replica_that_was_cut_off_writes_nothing_and_comes_back_with_its_share() -> None:
    async def main(replicas: Replicas) -> None:
        names = await workloads(replicas, 8)
        first, second = await replicas.start(), await replicas.start()
        await replicas.cluster.run_for(timedelta(seconds=40))
        first.cut()
        await replicas.cluster.run_for(timedelta(seconds=25))
        assert (first.ranges, second.ranges) == (0, RANGES)
        first.cut(off=False)
        replicas.cluster.metrics.set_external_metric("", "queue", 40.0)
        await replicas.cluster.run_for(timedelta(seconds=40))
        assert first.ranges > 0
        assert first.ranges + second.ranges == RANGES
        assert sizes(replicas, names) == {4}

    drill(main)


def test_a_partition_and_clocks_that_disagree_do_no_harm() -> None:
    async def main(replicas: Replicas) -> None:
        names = await workloads(replicas, 8)
        clock = replicas.cluster.clock
        replicas.clocks += [SkewedClock(clock, timedelta(minutes=5 * by)) for by in (-1, 0, 1)]
        first, second, third = [await replicas.start() for _ in range(3)]
        await replicas.cluster.run_for(timedelta(seconds=40))
        assert sizes(replicas, names) == {2}
        first.cut()
        third.cut()
        replicas.cluster.metrics.set_external_metric("", "queue", 40.0)
        await replicas.cluster.run_for(timedelta(seconds=45))
        assert (first.ranges, second.ranges, third.ranges) == (0, RANGES, 0)
        assert sizes(replicas, names) == {4}
        first.cut(off=False)
        third.cut(off=False)
        second.cut()
        replicas.cluster.metrics.set_external_metric("", "queue", 30.0)
        await replicas.cluster.run_for(timedelta(seconds=60))
        assert first.ranges + third.ranges == RANGES
        assert sizes(replicas, names) == {3}
        second.cut(off=False)

    drill(main)


def test_one_leader_and_replicas_that_share_keep_each_other_out() -> None:
    async def main(replicas: Replicas) -> None:
        names = await workloads(replicas, 4)
        alone = await replicas.start(shards=ShardMode.OFF)
        await replicas.cluster.run_for(timedelta(seconds=30))
        sharing = await replicas.start()
        await replicas.cluster.run_for(timedelta(seconds=30))
        assert (alone.running.controller.leading, sharing.ranges) == (True, 0)
        alone.stop()
        await replicas.cluster.run_for(timedelta(seconds=30))
        assert sharing.ranges == RANGES
        other = await replicas.start(shards=ShardMode.OFF)
        replicas.cluster.metrics.set_external_metric("", "queue", 30.0)
        await replicas.cluster.run_for(timedelta(seconds=60))
        assert not other.running.controller.leading
        assert sizes(replicas, names) == {3}
        sharing.stop()
        await replicas.cluster.run_for(timedelta(seconds=30))
        assert other.running.controller.leading

    async def body() -> None:
        async with replicas_of(server_shards=True) as replicas:
            await main(replicas)

    run_virtual(body())


def claim(checker: WriteChecker, who: str, ranges: frozenset[int]) -> None:
    """Tell the checker of a Lease that is written."""
    body = json.dumps({"metadata": {"annotations": {CLAIMS: ranges_text(ranges)}}}).encode()
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{who}"
    checker(Request("PUT", path, body=body, user=User(who)), 200)


def write(checker: WriteChecker, who: str) -> int:
    """Tell the checker of a status that is written; return how many double writes it knows of."""
    path = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web/status"
    checker(Request("PUT", path, user=User(who)), 200)
    return len(checker.doubles)


def test_the_checker_counts_a_write_to_a_range_that_has_passed_on() -> None:
    checker = WriteChecker(SystemClock())
    assert write(checker, "replica-1") == 1  # it never claimed it
    claim(checker, "replica-1", ALL_RANGES)
    assert write(checker, "replica-1") == 1
    claim(checker, "replica-2", ALL_RANGES)
    assert write(checker, "replica-2") == 1
    assert write(checker, "replica-1") == 2  # the other has it since
    claim(checker, "replica-1", frozenset())
    claim(checker, "replica-1", ALL_RANGES)
    assert write(checker, "replica-1") == 2


def test_the_checker_knows_a_claim_that_waits_from_one_that_holds() -> None:
    checker = WriteChecker(SystemClock())
    claim(checker, "replica-1", ALL_RANGES)
    claim(checker, "replica-2", ALL_RANGES)
    assert write(checker, "replica-1") == 0
    claim(checker, "replica-2", ALL_RANGES)
    assert write(checker, "replica-2") == 1  # renewing a claim beside the owner's does not make it its own
    assert write(checker, "replica-1") == 2
    claim(checker, "replica-1", frozenset())
    claim(checker, "replica-2", ALL_RANGES)
    assert write(checker, "replica-2") == 2  # the owner gave it up


@pytest.mark.parametrize(
    ("options", "other"),
    [
        pytest.param({"shard": "0/2"}, "hpa-shard", id="a-fixed-shard"),
        pytest.param({"shard_by": ShardBy.UID}, "hpa-shard-by=uid", id="shards-by-uid"),
        pytest.param({"leader_elect": False}, "hpa-leader-elect=false", id="no-leases"),
    ],
)
def test_shards_that_exclude_each_other_are_refused(options: dict[str, object], other: str) -> None:
    with pytest.raises(SettingsError, match=f"hpa-shards: auto and {other} exclude each other"):
        HpaSettings(shards=ShardMode.AUTO, **options)  # type: ignore[arg-type]
