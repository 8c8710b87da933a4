"""A namespace that is split: its autoscalers are shared one by one, and nothing is written twice."""

from datetime import timedelta

import pytest

from kubetide.api.objects.scheme import HPAS
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.control.core.ranges import RANGES
from kubetide.kube.control.shards import is_together
from kubetide.testing.builders import make_hpa
from simulated.replicas import QUEUE, QUICK, Replica, Replicas, SkewedClock, drill, workloads
from simulated.replicas import sizes as sizes_of_namespaces
from simulated.split_namespace import NAMESPACE, SPLIT, huge, sizes_of


def writers(replicas: Replicas, *, since: float = 0.0) -> set[str]:
    """Return who wrote in the namespace that is split."""
    return {who for at, who, path in replicas.checker.writes if f"/{NAMESPACE}/" in path and at >= since}


def owner(replicas: Replicas, name: str) -> Replica:
    """Return who decides about an autoscaler of that namespace."""
    (found,) = (one for one in replicas.all if one.running.controller.explain("hpa", f"{NAMESPACE}/{name}"))
    return found


@pytest.mark.parametrize("server_shards", [True, False], ids=["server-filters", "filtered-on-arrival"])
def test_replicas_share_the_autoscalers_of_one_namespace(server_shards: bool) -> None:
    async def main(replicas: Replicas) -> None:
        elsewhere = await workloads(replicas, 6)
        names = await huge(replicas, 24)
        for _ in range(3):
            await replicas.start()
        await replicas.cluster.run_for(timedelta(minutes=1))
        assert sum(one.ranges for one in replicas.all) == RANGES
        assert sizes_of(replicas, names) == {2}
        assert sizes_of_namespaces(replicas, elsewhere) == {2}
        assert writers(replicas) == {"replica-1", "replica-2", "replica-3"}
        held = [
            one.running.counted("kubetide_informer_objects", resource="horizontalpodautoscalers.autoscaling")
            for one in replicas.all
        ]
        assert sum(held) == len(elsewhere) + 3 * len(names), "all read the namespace, and nobody what is another's"
        assert f"ranges of namespaces (split: {NAMESPACE}), with 3" in replicas.all[0].running.controller.notes()[0]

    drill(main, settings=SPLIT, server_shards=server_shards)


def test_autoscalers_of_a_replica_that_died_are_taken_over_when_its_lease_has_run_out() -> None:
    async def main(replicas: Replicas) -> None:
        names = await huge(replicas, 16)
        first, second = await replicas.start(), await replicas.start()
        await replicas.cluster.run_for(timedelta(seconds=40))
        first.stop(kill=True)
        replicas.cluster.metrics.set_external_metric("", "queue", 40.0)
        await replicas.cluster.run_for(timedelta(seconds=13))
        assert 2 in sizes_of(replicas, names), "the half of the dead waits"
        await replicas.cluster.run_for(timedelta(seconds=30))
        assert second.ranges == RANGES
        assert sizes_of(replicas, names) == {4}

    drill(main, settings=SPLIT)


def test_a_partition_and_clocks_that_disagree_do_no_harm() -> None:
    async def main(replicas: Replicas) -> None:
        names = await huge(replicas, 16)
        clock = replicas.cluster.clock
        replicas.clocks += [SkewedClock(clock, timedelta(minutes=5 * by)) for by in (-1, 0, 1)]
        first, second, third = [await replicas.start() for _ in range(3)]
        await replicas.cluster.run_for(timedelta(seconds=40))
        first.cut()
        third.cut()
        replicas.cluster.metrics.set_external_metric("", "queue", 40.0)
        await replicas.cluster.run_for(timedelta(seconds=45))
        assert (first.ranges, second.ranges, third.ranges) == (0, RANGES, 0)
        assert sizes_of(replicas, names) == {4}
        first.cut(off=False)
        third.cut(off=False)
        await replicas.cluster.run_for(timedelta(seconds=45))
        replicas.cluster.metrics.set_external_metric("", "queue", 30.0)
        await replicas.cluster.run_for(timedelta(seconds=45))
        assert sizes_of(replicas, names) == {3}
        assert min(one.ranges for one in replicas.all) > 0

    drill(main, settings=SPLIT)


def test_replicas_that_divide_otherwise_wait_for_each_other() -> None:
    async def main(replicas: Replicas) -> None:
        names = await huge(replicas, 8)
        cluster = replicas.cluster
        before = await replicas.start(shards_split=())
        await cluster.run_for(timedelta(seconds=30))
        after = await replicas.start()
        await cluster.run_for(timedelta(seconds=30))
        assert (before.ranges, after.ranges) == (RANGES, 0)
        before.stop()
        await cluster.run_for(timedelta(seconds=40))
        assert after.ranges == RANGES
        cluster.metrics.set_external_metric("", "queue", 30.0)
        await cluster.run_for(timedelta(seconds=30))
        assert sizes_of(replicas, names) == {3}

    drill(main, settings=SPLIT)


def test_an_autoscaler_that_is_made_anew_may_be_another_replicas() -> None:
    async def main(replicas: Replicas) -> None:
        await huge(replicas, 2)
        cluster, client = replicas.cluster, replicas.cluster.client()
        for _ in range(2):
            await replicas.start()
        await cluster.run_for(timedelta(seconds=40))
        owners = set()
        remade = make_hpa("web-1", NAMESPACE, target="web-1", maximum=4, metrics=[QUEUE], behavior=QUICK)
        for turn in range(8):
            replicas.cluster.metrics.set_external_metric("", "queue", 30.0 if turn % 2 == 0 else 20.0)
            await client.delete(HPAS, "web-1", namespace=NAMESPACE)
            await cluster.apply(remade)
            began = cluster.clock.monotonic()
            await cluster.run_for(timedelta(seconds=40))
            assert replicas.all[0].running.replicas(NAMESPACE, "web-1") == (3 if turn % 2 == 0 else 2)
            made = [who for at, who, path in replicas.checker.writes if "/web-1/" in path and at >= began]
            owners.add(made[-1])
            assert owner(replicas, "web-1")
        assert owners == {"replica-1", "replica-2"}

    drill(main, settings=SPLIT)


def test_two_autoscalers_of_one_target_are_noticed_though_two_replicas_look_after_them() -> None:
    async def main(replicas: Replicas) -> None:
        await huge(replicas, 1)
        cluster = replicas.cluster
        for _ in range(2):
            await replicas.start(scale_watch_from=1)
        await cluster.run_for(timedelta(seconds=40))
        for _ in range(20):  # a uid is drawn, until it is another replica's
            await cluster.apply(
                make_hpa("other", NAMESPACE, target="web-0", maximum=4, metrics=[QUEUE], behavior=QUICK)
            )
            await cluster.run_for(timedelta(seconds=20))
            if owner(replicas, "other") is not owner(replicas, "web-0"):
                break
            await cluster.client().delete(HPAS, "other", namespace=NAMESPACE)
        assert owner(replicas, "other") is not owner(replicas, "web-0")
        cluster.metrics.set_external_metric("", "queue", 40.0)
        await cluster.run_for(timedelta(seconds=40))
        found = await cluster.client().list(HPAS, namespace=NAMESPACE)
        told = [{one.type: one.reason for one in hpa.status.conditions or ()} for hpa in found.items]
        assert {each["ScalingActive"] for each in told} == {"AmbiguousSelector"}
        assert replicas.all[0].running.replicas(NAMESPACE, "web-0") == 2

    drill(main, settings=SPLIT)


def test_namespaces_are_split_only_where_replicas_share_the_work() -> None:
    with pytest.raises(SettingsError, match="hpa-shards-split: needs --hpa-shards=auto"):
        HpaSettings(shards_split=("huge",))
    assert is_together("shards of kubetide-hpa, split: huge", "kubetide-hpa")
    assert not is_together("shards of kubetide-hpa-2", "kubetide-hpa")
