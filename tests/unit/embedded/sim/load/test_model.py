"""Workloads at work: load is shared by ready pods, batch work ends, profiles can change under way."""

import pytest

from kubetide.embedded.sim.load.curves import Constant, Step
from kubetide.embedded.sim.load.model import LoadModel
from kubetide.embedded.sim.load.profile import WORST_LATENCY, Profile
from kubetide.embedded.sim.node.kernel import Kernel

SHOP = ("shop", "web")


class Bench:
    """One large node and a model on it."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.machine = self.kernel.add_machine("node", cpus=16, memory_bytes=2.0**36)
        self.finished: list[int] = []
        self.model = LoadModel(self.kernel, seed=1, week_start=0.0, done=self.finished.append)
        self._count = 0

    def start(self, profile: Profile, *, ready: bool = True, now: float = 0.0) -> int:
        self._count += 1
        row = self.kernel.start(self.machine, f"kubepods/{self._count}")
        pod = f"web-{self._count}"
        self.model.start(row, workload=SHOP, pod=pod, profile=profile, now=now, seed=self._count)
        self.model.set_ready(row, ready)
        return row

    def tick(self, now: float) -> None:
        self.kernel.advance(now)
        self.model.tick(now)
        self.kernel.settle()


def test_requests_are_shared_by_the_ready_pods_only() -> None:
    bench = Bench()
    profile = Profile(curve=Constant(100), cpu_per_request=0.01, cpu_idle=0, start_cpu=0.7)
    one, two = bench.start(profile), bench.start(profile)
    starting = bench.start(profile, ready=False)
    bench.tick(0)
    assert bench.kernel.demand[[one, two]].sum() == pytest.approx(1.0)
    assert bench.kernel.demand[one] == pytest.approx(0.5, rel=0.1)
    assert bench.kernel.demand[starting] == pytest.approx(0.7)
    bench.model.set_ready(starting, True)
    bench.tick(5)
    assert bench.kernel.demand[[one, two, starting]].sum() == pytest.approx(1.0)


def test_load_follows_its_curve() -> None:
    bench = Bench()
    row = bench.start(Profile(curve=Step(((60, 200),), initial=50), cpu_idle=0))
    bench.tick(0)
    assert bench.kernel.demand[row] == pytest.approx(0.5)
    bench.tick(60)
    assert bench.kernel.demand[row] == pytest.approx(2.0)
    assert bench.model.levels() == {SHOP: 200}


def test_memory_grows_with_requests_and_leaks_with_time() -> None:
    bench = Bench()
    row = bench.start(
        Profile(curve=Constant(10), memory_base=1000, memory_per_request=5, leak_per_hour=3600, imbalance=0)
    )
    bench.tick(0)
    assert bench.kernel.anon[row] == pytest.approx(1050)
    bench.tick(100)
    assert bench.kernel.anon[row] == pytest.approx(1150)


def test_memory_that_does_not_depend_on_load_or_time_is_set_when_containers_come_and_go() -> None:
    bench = Bench()
    row = bench.start(Profile(curve=Constant(10), memory_base=1000))
    bench.tick(0)
    bench.kernel.anon[row] = 1
    bench.tick(5)
    assert bench.kernel.anon[row] == 1, "nobody else sets it, so that it is not set again"
    bench.start(Profile(curve=Constant(10), memory_base=3000))
    bench.tick(10)
    assert bench.kernel.anon[row] == 1000


def test_batch_work_is_done_when_its_cpu_time_is_used_up() -> None:
    bench = Bench()
    row = bench.start(Profile(work=30, threads=2))
    bench.tick(0)
    bench.tick(10)
    assert bench.finished == []
    bench.tick(15)
    assert bench.finished == [row]


def test_a_new_load_reaches_pods_that_run_already() -> None:
    bench = Bench()
    bench.model.set_profile(SHOP, Profile(curve=Constant(10), cpu_idle=0))
    row = bench.start(bench.model.profile_of(SHOP))
    bench.tick(0)
    bench.model.set_load(SHOP, Constant(40))
    bench.tick(5)
    assert bench.kernel.demand[row] == pytest.approx(0.4)


def test_pods_with_their_own_profile_share_the_same_load() -> None:
    bench = Bench()
    base = Profile(curve=Constant(100), cpu_idle=0, imbalance=0)
    plain, greedy = (
        bench.start(base),
        bench.start(Profile(curve=base.curve, cpu_idle=0, imbalance=0, cpu_per_request=0.02)),
    )
    bench.tick(0)
    assert bench.kernel.demand[plain] == pytest.approx(0.5)
    assert bench.kernel.demand[greedy] == pytest.approx(1.0)


def test_latency_rises_as_the_quota_comes_near() -> None:
    bench = Bench()
    row = bench.start(Profile(curve=Constant(50), cpu_per_request=0.01, cpu_idle=0))
    bench.kernel.group_of(row).quota_us = 100_000
    bench.kernel.changed(bench.machine)
    bench.tick(0)
    (work,) = bench.model.work_of(SHOP)
    assert work.rate == pytest.approx(50)
    assert work.latency == pytest.approx(0.02)
    bench.model.stop(row)
    assert bench.model.work_of(SHOP) == []


def test_a_saturated_pod_answers_as_late_as_it_gets() -> None:
    bench = Bench()
    row = bench.start(Profile(curve=Constant(500), cpu_per_request=0.01))
    bench.kernel.group_of(row).quota_us = 100_000
    bench.kernel.changed(bench.machine)
    bench.tick(0)
    assert bench.model.work_of(SHOP)[0].latency == WORST_LATENCY
