"""Laws of the node agent's pure parts."""

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.qos.cgroups import KUBE_QOS_CLASSES, CgroupDriver, CgroupPaths, join
from kubetide.api.values.cpuset import CpuSet
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.formats import cpu
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.layout import EscapesRoot, inside
from kubetide.node.core.plan import merge_if_larger, merge_if_looser
from kubetide.node.core.prediction.peak import PeakModels, PodUsage
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import PERCENTILES, points_of
from kubetide.node.core.series.ring import Ring, series_key
from kubetide.node.core.topology.pools import share_pools
from kubetide.node.core.topology.take import take
from kubetide.node.series_history import restored, rounded

cpu_ids = st.frozensets(st.integers(0, 127), max_size=40)
uids = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,4}", fullmatch=True)
names = st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True)
drivers = st.sampled_from(list(CgroupDriver))
prefixes = st.sampled_from(["", "a", "a/b", "tenant-1"])


@given(cpu_ids)
def test_a_cpu_list_survives_its_own_text(ids: frozenset[int]) -> None:
    assert CpuSet.parse(str(CpuSet(ids))) == CpuSet(ids)


@given(st.text(max_size=40))
def test_any_text_is_a_cpu_list_or_refused(text: str) -> None:
    try:
        parsed = CpuSet.parse(text)
    except InvalidInput:
        return
    assert CpuSet.parse(str(parsed)) == parsed


@given(drivers, prefixes, st.sampled_from(KUBE_QOS_CLASSES), uids, names)
def test_a_directory_leads_back_to_its_pod(
    driver: CgroupDriver, prefix: str, kube_qos: str, uid: str, container: str
) -> None:
    paths = CgroupPaths(driver, prefix)
    directory = paths.container(paths.pod(kube_qos, uid), f"containerd://{container}")
    pod, scope = directory.split("/")[-2:]
    assert paths.pod_id(pod) == uid
    assert paths.container_hash(scope) == container
    assert not paths.is_shared(directory)


@given(drivers, prefixes, st.text(max_size=40))
def test_a_directory_that_is_not_shared_lies_strictly_inside_the_root(
    driver: CgroupDriver, prefix: str, text: str
) -> None:
    paths = CgroupPaths(driver, prefix)
    if paths.is_shared(text):
        return
    place = inside("/cg", text)
    assert place.startswith("/cg/")
    assert join(place) == place


@given(st.text(max_size=60))
def test_no_name_leaves_its_root(text: str) -> None:
    try:
        place = inside("/root", text)
    except EscapesRoot:
        return
    assert place == "/root" or place.startswith("/root/")
    assert ".." not in place.split("/")


@given(cpu_ids, cpu_ids)
def test_the_first_pass_never_takes_cpus_away_and_never_gives_too_few(old: frozenset[int], new: frozenset[int]) -> None:
    merged = merge_if_looser(str(CpuSet(old)), str(CpuSet(new)))
    written = CpuSet.parse(merged.value) if merged.grows else CpuSet(old)
    assert CpuSet(old) <= written
    assert CpuSet(new) <= written


quotas = st.one_of(st.just(-1), st.integers(1000, 10**7))


@given(quotas, quotas)
def test_a_quota_grows_exactly_when_it_becomes_more(old: int, new: int) -> None:
    size = {-1: float("inf")}
    grows = merge_if_larger(files.CPU_QUOTA, str(old), str(new)).grows
    assert grows == (size.get(new, new) > size.get(old, old))


@given(st.integers(cpu.MIN_WEIGHT, cpu.MAX_WEIGHT))
def test_a_weight_survives_the_way_over_shares(weight: int) -> None:
    back = cpu.shares_to_weight(str(cpu.weight_to_shares(weight)))
    assert abs(back - weight) <= 1


@given(st.integers(-5, 300_000))
def test_shares_and_quotas_are_always_in_range(milli: int) -> None:
    assert cpu.MIN_SHARES <= cpu.milli_to_shares(milli) <= cpu.MAX_SHARES
    quota = cpu.milli_to_quota(milli)
    assert quota == -1 or quota >= cpu.MIN_QUOTA_MICROS


values = st.lists(st.floats(0, 1e9, allow_nan=False), min_size=1, max_size=300)


@given(values)
def test_percentiles_are_members_in_order(samples: list[float]) -> None:
    points = points_of(np.arange(len(samples), dtype=np.int64), np.array(samples))
    found = [points.aggregate(name) for name in PERCENTILES]
    assert all(value in samples for value in found)
    assert found == sorted(found, key=lambda value: value or 0.0)
    average = points.aggregate("avg")
    assert average is not None
    assert min(samples) - 1e-6 <= average <= max(samples) * (1 + 1e-9) + 1e-6


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 100)), max_size=200), st.integers(16, 60))
def test_the_ring_holds_the_newest_samples_of_every_series(batches: list[tuple[int, float]], length: int) -> None:
    ring = Ring(retention_seconds=length)
    kept: list[tuple[int, int, float]] = []
    for second, (pod, value) in enumerate(batches):
        key = series_key(kinds.POD_CPU, {kinds.POD_UID: str(pod)})
        ring.append("pods", 1.0, second * 1000, [(key, value)])
        kept.append((second, pod, value))
    for pod in {pod for _, pod, _ in kept}:
        expected = [value for second, one, value in kept[-length:] if one == pod]
        found = ring.query(kinds.POD_CPU, {kinds.POD_UID: str(pod)}, 0, 10**9)
        assert found.values.tolist() == expected


@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=100))
def test_history_is_never_further_off_than_promised(samples: list[float]) -> None:
    given_values = np.array(samples)
    back = restored(rounded(given_values))
    assert np.all(np.abs(back - given_values) <= np.abs(given_values) * 1.3e-4)


def processors(count: int, threads: int, sockets: int) -> list[Processor]:
    cores = max(count // threads, 1)
    return [
        Processor(cpu=cpu_id, core=cpu_id % cores, socket=(cpu_id % cores) * sockets // cores, node=0)
        for cpu_id in range(count)
    ]


@given(st.integers(1, 32), st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.data())
def test_taking_cpus_takes_exactly_so_many_of_the_free_ones(
    count: int, threads: int, sockets: int, data: st.DataObject
) -> None:
    every = processors(count, threads, sockets)
    free = CpuSet.of(data.draw(st.frozensets(st.integers(0, count - 1), min_size=1)))
    wanted = data.draw(st.integers(0, len(free)))
    taken = take(every, free, wanted)
    assert len(taken) == wanted
    assert taken <= free


@given(cpu_ids)
def test_reserved_cpus_are_in_no_pool(reserved: frozenset[int]) -> None:
    every = processors(64, 2, 2)
    found = share_pools(every, [], [], CpuSet(reserved), None)
    for pool in (*found.latency_sensitive, *found.best_effort):
        assert not pool.cpus.ids & reserved


usages = st.lists(st.tuples(st.floats(0, 64), st.floats(0, 2.0**38)), min_size=1, max_size=20)


@settings(max_examples=50)
@given(usages)
def test_the_largest_prediction_covers_every_sample(samples: list[tuple[float, float]]) -> None:
    models = PeakModels()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number, (cores, size) in enumerate(samples):
        models.train(start + timedelta(minutes=number), [PodUsage("a", "koord-prod", cores, size)], None, None)
    peaks = models.predict("a")
    assert peaks is not None
    assert peaks["max"].cpu_millis >= int(max(cores for cores, _ in samples) * 1000)
    assert peaks["max"].memory_bytes >= int(max(size for _, size in samples))
    order = [peaks[name].cpu_millis for name in ("p60", "p90", "p95", "p98", "max")]
    assert order == sorted(order)
