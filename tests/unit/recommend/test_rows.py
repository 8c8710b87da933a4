"""Rows: sizes as an independent computation has them, evidence that adds up, and every rule that changes a size."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kubetide.errors import InvalidInput
from kubetide.recommend import Container, LimitPolicy, Options, Row, Sizes, Usage, Workload, rows
from kubetide.recommend.core.estimators import estimate_all, estimator
from kubetide.recommend.core.money import Price, Prices
from kubetide.recommend.core.rows import by_namespace
from kubetide.recommend.core.workloads import Bounds, Estimate, key_of
from kubetide.recommend.outputs.texts import evidence_text
from kubetide.replay.core.policies import OomKill
from kubetide.vpa import Recommender

MIB = 2**20
START = 1_767_225_600
STEP = 300
WEB = Workload(
    api_version="apps/v1",
    kind="Deployment",
    namespace="shop",
    name="web",
    replicas=2,
    containers=(Container("main", Sizes(1000, 1024 * MIB), Sizes(2000, 2048 * MIB)),),
    pods=frozenset({"web-1", "web-2"}),
)


def usage(days: float = 8, *, pods: int = 2, seed: int = 1, ooms: tuple[OomKill, ...] = ()) -> Usage:
    rng = np.random.default_rng(seed)
    shape = (int(days * 86400 // STEP), pods)
    return Usage(
        START,
        STEP,
        tuple(f"web-{number + 1}" for number in range(pods)),
        rng.uniform(0.1, 0.4, shape),
        rng.uniform(200, 400, shape) * MIB,
        ooms,
    )


def one(workload: Workload, given: Any, options: Options | None = None, **more: Any) -> Row:
    found = rows([workload], {key_of(workload, "main"): given}, options, **more)
    assert len(found) == 1
    return found[0]


def amounts(row: Row) -> tuple[int | None, int | None]:
    assert row.recommended is not None
    return row.recommended.cpu_request_millis, row.recommended.memory_request_bytes


def test_the_vpa_estimator_gives_what_the_recommender_gives() -> None:
    from datetime import UTC, datetime, timedelta

    given = usage(3)
    recommender = Recommender()
    begin = datetime.fromtimestamp(START, UTC)
    for column, pod in enumerate(given.pods):
        samples = [
            (
                begin + timedelta(seconds=i * STEP),
                round(float(given.cpu[i, column]) * 1000),
                round(float(given.memory[i, column])),
            )
            for i in range(len(given.cpu))
        ]
        recommender.add_all("main", samples, pod=pod)
    target = recommender.recommend()["main"].target
    cpu, memory = amounts(one(WEB, given))
    assert cpu == target.cpu_millis
    assert memory == -(-target.memory_bytes // MIB) * MIB


def test_krr_is_the_percentile_of_the_busiest_pod_and_the_peak() -> None:
    given = usage(14)
    cpu, memory = amounts(one(WEB, given, Options(estimator="krr")))
    count = len(given.cpu)
    worst = max(sorted(given.cpu[:, column])[int(np.ceil(0.95 * count)) - 1] for column in range(2))
    assert cpu == int(np.ceil(worst * 1000))
    assert memory == int(np.ceil(given.memory.max() * 1.15 / MIB)) * MIB


def test_a_percentile_is_taken_over_all_pods_together() -> None:
    given = usage(2)
    cpu, memory = amounts(one(WEB, given, Options(estimator="percentile=50")))
    together = sorted(given.cpu.ravel())
    assert cpu == int(np.ceil(together[int(np.ceil(0.5 * len(together))) - 1] * 1000))
    assert memory == int(np.ceil(given.memory.max() / MIB)) * MIB


def test_adaptive_learns_a_size_between_usage_and_request() -> None:
    cpu, memory = amounts(one(WEB, usage(8), Options(estimator="adaptive")))
    assert cpu is not None
    assert memory is not None
    assert 100 < cpu < 1000
    assert 200 * MIB < memory < 1024 * MIB


@pytest.mark.parametrize("name", ["median", "percentile=0", "percentile=x", "percentile=101"])
def test_an_unknown_estimator_is_named(name: str) -> None:
    with pytest.raises(InvalidInput, match="--estimator"):
        estimator(name, {})


def test_the_backtest_counts_samples_above_the_request() -> None:
    given = replace(usage(2, pods=1), cpu=np.full((576, 1), 0.2), memory=np.full((576, 1), 300.0 * MIB))
    given.cpu[10:13] = 3.0
    given.memory[300] = 5000.0 * MIB
    row = one(WEB, given, Options(estimator="percentile=90", ceiling=Sizes(None, 400 * MIB)))
    after, before = row.evidence.with_recommended, row.evidence.with_current
    assert after is not None
    assert before is not None
    assert (after.memory_days_above, after.cpu_minutes_above) == (1, 15.0)
    assert before.cpu_minutes_above == 15.0
    assert before.memory_slack == pytest.approx(1 - (575 * 300 + 1024) / (576 * 1024))


def test_day_by_day_judges_what_the_days_before_recommended() -> None:
    given = usage(4, pods=1)
    given.memory[:] = 300.0 * MIB
    given.memory[2 * 288 + 7] = 900.0 * MIB  # the peak of the third day, which nobody could know on the second
    given.cpu[:] = 0.2
    given.cpu[288 * 3 : 288 * 3 + 6] = 1.0
    row = one(WEB, given, Options(estimator="krr"))
    hindsight, forward = row.evidence.with_recommended, row.evidence.day_by_day
    assert hindsight is not None
    assert forward is not None
    assert (hindsight.memory_days_above, forward.memory_days_above) == (0, 1)
    assert forward.cpu_minutes_above == 30.0
    # Days two and three were sized by 300 MiB + 15 %, the fourth by the peak that had been seen.
    sizes = [np.ceil(300 * 1.15), np.ceil(300 * 1.15), np.ceil(900 * 1.15)]
    used = [287 * 300 + 300, 287 * 300 + sizes[1], 288 * 300]
    assert forward.memory_slack == pytest.approx(1 - sum(used) / (288 * sum(sizes)))
    assert "day by day, sized from the days before: memory above it on 1 container-day, CPU" in evidence_text(row)


def test_what_comes_later_does_not_change_an_earlier_day() -> None:
    long, short = usage(6), usage(6)
    short = replace(short, cpu=short.cpu[: 4 * 288], memory=short.memory[: 4 * 288])
    for name in ("vpa", "adaptive", "krr", "percentile=90"):
        make = estimator(name, {})
        ((whole,), (part,)) = (estimate_all([each], make) for each in (long, short))
        assert whole.by_day[:3] == part.by_day
        assert whole.by_day[3] == part.size


def test_a_day_is_too_little_to_judge_day_by_day() -> None:
    assert one(WEB, usage(1)).evidence.day_by_day is None


@pytest.mark.parametrize("name", ["vpa", "adaptive", "krr", "percentile=90"])
def test_days_before_the_first_sample_are_not_judged(name: str) -> None:
    young = usage(6)
    young.cpu[: 3 * 288] = np.nan
    young.memory[: 3 * 288] = np.nan
    late = usage(3)
    late = replace(late, cpu=young.cpu[3 * 288 :], memory=young.memory[3 * 288 :])
    forward, expected = (one(WEB, each, Options(estimator=name)).evidence.day_by_day for each in (young, late))
    assert forward is not None
    assert forward == expected
    young.memory[3 * 288 :] = np.nan
    cpu, memory = amounts(one(WEB, young, Options(estimator=name)))
    assert cpu is not None
    assert memory is None, "nothing is known about memory"


def test_departed_pods_count_and_are_named() -> None:
    row = one(replace(WEB, pods=frozenset({"web-2"})), usage())
    assert row.evidence.departed_pods == 1
    assert "1 departed pod matched by name" in row.notes


@pytest.mark.parametrize(
    ("days", "confidence"), [(0.5, "low"), (3, "medium"), (8, "high")], ids=["hours", "days", "a-week"]
)
def test_confidence_follows_the_history(days: float, confidence: str) -> None:
    row = one(WEB, usage(days))
    assert row.confidence == confidence
    assert "samples" in row.reason


def test_an_oom_kill_is_a_high_risk_and_raises_memory() -> None:
    kill = OomKill(0, START + 86400, 900.0 * MIB)
    calm, killed = one(WEB, usage()), one(WEB, usage(ooms=(kill,)))
    assert (calm.risk, killed.risk) == ("none", "high")
    assert killed.evidence.oom_kills == 1


@pytest.mark.parametrize(
    ("requests", "risk"),
    [
        pytest.param(Sizes(1000, 1024 * MIB), "none", id="too-large"),
        pytest.param(Sizes(100, 1024 * MIB), "medium", id="cpu-too-small"),
        pytest.param(Sizes(None, 1024 * MIB), "medium", id="no-cpu-request"),
        pytest.param(Sizes(1000, 300 * MIB), "high", id="memory-passed-the-request"),
    ],
)
def test_risk_comes_from_what_is_too_small(requests: Sizes, risk: str) -> None:
    workload = replace(WEB, containers=(Container("main", requests),))
    assert one(workload, usage()).risk == risk


def test_rows_are_sorted_by_risk_then_savings() -> None:
    small = replace(WEB, name="small", containers=(Container("main", Sizes(10, 10 * MIB)),))
    large = replace(WEB, name="large", containers=(Container("main", Sizes(8000, 8192 * MIB)),))
    silent = replace(WEB, name="silent")
    given = {key_of(each, "main"): usage() for each in (small, large, WEB)}
    found = rows([silent, WEB, large, small], given, why_missing={key_of(silent, "main"): "nobody measured it"})
    assert [row.name for row in found] == ["small", "large", "web", "silent"]
    assert (found[-1].risk, found[-1].reason, found[-1].recommended) == ("unknown", "nobody measured it", None)


@pytest.mark.parametrize(
    ("policy", "limits"),
    [
        (LimitPolicy.KEEP, (2000, 2048)),
        (LimitPolicy.RATIO, (400, 1000)),
        (LimitPolicy.NONE, (None, None)),
        (LimitPolicy.MEMORY_EQUALS_REQUEST, (2000, 500)),
    ],
)
def test_limits_follow_their_policy(policy: LimitPolicy, limits: tuple[int | None, int | None]) -> None:
    options = Options(limits=policy, floor=Sizes(200, 500 * MIB), ceiling=Sizes(200, 500 * MIB))
    new = one(WEB, usage(), options).recommended
    assert new is not None
    assert (new.cpu_limit_millis, new.memory_limit_bytes) == (
        limits[0],
        None if limits[1] is None else limits[1] * MIB,
    )


def test_a_limit_below_the_request_is_raised_and_guaranteed_stays_guaranteed() -> None:
    tight = replace(WEB, containers=(Container("main", Sizes(100, 100 * MIB), Sizes(100, 100 * MIB)),))
    new = one(tight, usage()).recommended
    assert new is not None
    assert new.memory_limit_bytes == new.memory_request_bytes
    large = replace(WEB, containers=(Container("main", Sizes(4000, 4096 * MIB), Sizes(4000, 4096 * MIB)),))
    kept = one(large, usage(), Options(keep_qos=True)).recommended
    assert kept is not None
    assert (kept.cpu_limit_millis, kept.memory_limit_bytes) == (kept.cpu_request_millis, kept.memory_request_bytes)


def test_headroom_node_and_quota_change_sizes_and_leave_notes() -> None:
    plain, _ = amounts(one(WEB, usage()))
    more, _ = amounts(one(WEB, usage(), Options(headroom=0.5)))
    assert plain is not None
    assert more is not None
    assert more == pytest.approx(plain * 1.5, abs=1)
    held = one(WEB, usage(), bounds={"": Bounds(largest_node=Sizes(100, None))})
    assert amounts(held)[0] == 100
    assert any("largest node" in note for note in held.notes)
    small = replace(WEB, containers=(Container("main", Sizes(100, 1024 * MIB)),))
    quota = Bounds(quota_left={"shop": Sizes(60, None)})
    within = one(small, usage(), bounds={"": quota})
    assert amounts(within)[0] == 130  # 60 millicores for two pods
    assert any("quota" in note for note in within.notes)


def test_a_utilization_target_sizes_for_the_target() -> None:
    given = replace(usage(), cpu=np.full((2304, 2), 0.3))
    cpu, _ = amounts(row := one(replace(WEB, utilization={"cpu": 50}), given))
    assert cpu == 600
    assert any("HPA targets 50 %" in note for note in row.notes)


def test_a_utilization_target_of_one_container_is_no_target_of_the_others() -> None:
    pair = replace(WEB, utilization={"cpu/main": 50}, containers=(Container("main"), Container("proxy")))
    given = replace(usage(), cpu=np.full((2304, 2), 0.3))
    found = rows([pair], {key_of(pair, name): given for name in ("main", "proxy")})
    cpu = {row.container: amounts(row)[0] for row in found}
    assert cpu["main"] == 600
    assert cpu["proxy"] == amounts(one(WEB, given))[0]
    assert not any("HPA" in note for row in found if row.container == "proxy" for note in row.notes)


def test_a_utilization_target_holds_for_a_checkpoint_too() -> None:
    stored = Estimate(cpu_millis=120, memory_bytes=300 * MIB, days=9, samples=9000, source="VPA checkpoint")
    row = one(replace(WEB, utilization={"cpu": 60}), stored)
    assert amounts(row) == (200, 300 * MIB)
    assert any("HPA targets 60 % of cpu: sized for it by the estimate" in note for note in row.notes)


def test_savings_count_replicas_and_money_is_per_month() -> None:
    prices = Prices(default=Price(0.03, 0.004))
    row = one(WEB, usage(), prices=prices)
    cpu, memory = amounts(row)
    assert cpu is not None
    assert memory is not None
    assert row.saved_cpu_millis == 2 * (1000 - cpu)
    expected = 730 * (0.03 * row.saved_cpu_millis / 1000 + 0.004 * row.saved_memory_bytes / 2**30)
    assert row.saved_money == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_what_runs_for_an_hour_a_day_saves_a_24th(kind: str) -> None:
    nightly = replace(WEB, kind=kind, api_version="batch/v1", replicas=1)
    given = usage(8, pods=1)
    for day in range(8):
        given.cpu[day * 288 + 12 : (day + 1) * 288] = np.nan
        given.memory[day * 288 + 12 : (day + 1) * 288] = np.nan
    row = one(nightly, given, prices=Prices(default=Price(0.03, 0.004)))
    cpu, memory = amounts(row)
    assert cpu is not None
    assert memory is not None
    assert row.saved_cpu_millis == round((1000 - cpu) / 24)
    assert row.saved_memory_bytes == round((1024 * MIB - memory) / 24)
    assert row.saved_money == pytest.approx(
        730 * (0.03 * row.saved_cpu_millis / 1000 + 0.004 * row.saved_memory_bytes / 2**30)
    )
    assert "0.042 pods run on average: savings are of these" in row.notes
    stored = Estimate(cpu_millis=120, memory_bytes=300 * MIB, days=9, samples=9000, source="VPA checkpoint")
    assert one(nightly, stored).saved_cpu_millis == 0


def test_a_price_of_a_node_holds_for_what_runs_there() -> None:
    prices = Prices(default=Price(1.0, 1.0), by_node={("", "big"): Price(3.0, 3.0)})
    assert prices.of(replace(WEB, nodes=frozenset({"big", "other"}))) == Price(2.0, 2.0)


def test_a_checkpoint_gives_a_row_without_a_backtest() -> None:
    stored = Estimate(cpu_millis=120, memory_bytes=300 * MIB, days=9, samples=9000, source="VPA checkpoint")
    row = one(WEB, stored)
    assert amounts(row) == (120, 300 * MIB)
    assert (row.confidence, row.evidence.with_recommended) == ("medium", None)


def test_the_pod_minimum_is_shared_by_the_containers_of_a_pod() -> None:
    idle = replace(usage(2, pods=1), cpu=np.full((576, 1), 0.001), memory=np.full((576, 1), 2.0 * MIB))
    pair = replace(WEB, containers=(Container("main"), Container("proxy")))
    found = rows([pair], {key_of(pair, name): idle for name in ("main", "proxy")})
    assert {amounts(row)[1] for row in found} == {125 * MIB}
    assert {amounts(row)[0] for row in found} == {12}  # as the recommender divides 25


def test_a_request_below_the_pod_minimum_alone_is_no_risk() -> None:
    idle = replace(usage(2, pods=1), cpu=np.full((576, 1), 0.001), memory=np.full((576, 1), 30.0 * MIB))
    enough = replace(WEB, containers=(Container("main", Sizes(20, 64 * MIB)),))
    row = one(enough, idle)
    assert amounts(row) == (25, 250 * MIB)
    assert row.risk == "none"
    assert "memory raised from 35Mi: least size of the recommender" in row.notes
    tight = replace(WEB, containers=(Container("main", Sizes(20, 32 * MIB)),))
    assert one(tight, idle).risk == "medium"


def test_savings_are_summed_per_namespace() -> None:
    db = replace(WEB, namespace="data", name="db")
    small = replace(WEB, namespace="tiny", containers=(Container("main", Sizes(10, 10 * MIB)),))
    found = rows([WEB, db, small], {key_of(each, "main"): usage() for each in (WEB, db, small)})
    totals = by_namespace(found)
    assert [(each.namespace, each.containers, each.too_small) for each in totals] == [
        ("tiny", 1, 1),
        ("data", 1, 0),
        ("shop", 1, 0),
    ]
    assert sum(each.saved_cpu_millis for each in totals) == sum(row.saved_cpu_millis for row in found)


def test_best_effort_pods_stay_so_on_request() -> None:
    bare = replace(WEB, containers=(Container("main"),))
    row = one(bare, usage(), Options(keep_qos=True))
    assert amounts(row) == (None, None)
    assert "no requests: QoS class BestEffort is kept" in row.notes
    assert row.risk == "none"
    assert amounts(one(bare, usage()))[0] is not None


def test_the_containers_of_a_pod_fit_the_largest_node_together() -> None:
    three = replace(WEB, containers=tuple(Container(name, Sizes(50, MIB)) for name in ("main", "proxy", "silent")))
    given = {key_of(three, name): usage() for name in ("main", "proxy")}
    found = rows([three], given, bounds={"": Bounds(largest_node=Sizes(350, None))})
    cpu = {row.container: amounts(row)[0] for row in found if row.recommended is not None}
    assert cpu == {"main": 150, "proxy": 150}  # 50 stay with the one of which nothing is known
    assert any("all 3 containers have to fit the largest node" in note for row in found for note in row.notes)


def test_the_workloads_of_a_namespace_share_what_its_quota_leaves() -> None:
    small = replace(WEB, containers=(Container("main", Sizes(100, 1024 * MIB)),))
    other, elsewhere = replace(small, name="other"), replace(small, namespace="quiet")
    given = {key_of(each, "main"): usage() for each in (small, other, elsewhere)}
    found = rows([small, other, elsewhere], given, bounds={"": Bounds(quota_left={"shop": Sizes(80, None)})})
    grown = {row.workload: (amounts(row)[0] or 0) - 100 for row in found}
    assert grown["shop/web"] == grown["shop/other"] == 20  # 80 millicores for two pods of each
    assert grown["quiet/web"] > 100
    held = next(row for row in found if row.workload == "shop/web")
    assert any("divided among 2 containers" in note for note in held.notes)
    assert held.evidence.day_by_day is not None
    assert held.evidence.with_recommended is not None
    assert (held.evidence.day_by_day.cpu_minutes_above or 0) > 0  # the days before are judged with as little
