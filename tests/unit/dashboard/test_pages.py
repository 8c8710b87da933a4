"""The read model of each page, from a small cluster that is broken in one place."""

from datetime import timedelta
from importlib.resources import files

import msgspec
import numpy as np
import pytest

from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.metrics import ContainerSignal, PodSignals
from kubetide.charts import to_svg
from kubetide.dashboard.core.changes import changes
from kubetide.dashboard.core.health import health, latency_of, lease_row
from kubetide.dashboard.core.history import History
from kubetide.dashboard.core.looks import results
from kubetide.dashboard.core.marks import gauge, share, spark
from kubetide.dashboard.core.model import Entry
from kubetide.dashboard.core.nodes import evictions, node_rows
from kubetide.dashboard.core.overview import MOST_FINDINGS, Overview, overview
from kubetide.dashboard.core.pictures import histogram_chart, replica_chart
from kubetide.dashboard.core.throttling import NOBODY_ASKED, Throttled, told_by_signals
from kubetide.dashboard.core.throttling import counted as counted_pods
from kubetide.dashboard.core.what_if import Numbers, what_if
from kubetide.dashboard.core.workload import decisions, scalings, sized_workload, workload_page
from kubetide.kube.control.core.ranges import ranges_text
from kubetide.recommend.core.money import Price
from kubetide.recommend.core.workloads import Usage
from kubetide.verdicts.core.judge import rows as judge
from unit.dashboard.test_history import WEB, filled
from unit.verdicts.breaking import change
from unit.verdicts.town import NOW, Town, condition


def overview_of(town: Town, *, price: Price | None = None, throttled: Throttled = NOBODY_ASKED) -> Overview:
    view = town.view()
    findings = judge(view)
    rows = results(view).rows
    return overview(view, rows, node_rows(view), findings, price=price, throttled=throttled)


def counted(page: Overview) -> dict[str, int | None]:
    return {each.label: each.count for each in page.counts}


def test_the_overview_sums_what_is_requested_used_recommended_and_there() -> None:
    page = overview_of(Town(), price=Price(0.03, 0.004))
    cpu, memory = page.totals
    assert (cpu.requested, cpu.allocatable, cpu.recommended) == (1.0, 4.0, 1.0)
    assert cpu.used == pytest.approx(0.486)
    assert memory.recommended == 256 * 2**20
    assert page.savings.monthly == 0.0
    assert counted(page)["OOM kills"] == 0
    assert counted(page)["Throttled pods"] is None
    assert page.counts[-1].why == "nobody was asked"


def test_throttled_pods_are_those_that_the_visitor_sees() -> None:
    def signals(name: str, *shares: float | None) -> PodSignals:
        containers = tuple(
            ContainerSignal(name=str(place), cpu_throttled_ratio=each) for place, each in enumerate(shares)
        )
        return PodSignals(metadata=ObjectMeta(namespace="shop", name=name), containers=containers)

    shares = told_by_signals([signals("web", 0.1, 0.3), signals("api", 0.25), signals("db", None), signals("far", 0.9)])
    assert shares == {ObjectKey("shop", "web"): 0.3, ObjectKey("shop", "api"): 0.25, ObjectKey("shop", "far"): 0.9}
    seen = [ObjectKey("shop", name) for name in ("web", "api", "db")]
    found = counted_pods(shares, seen, "metrics server")
    assert found.pods == 1
    tile = overview_of(Town(), throttled=found).counts[-1]
    assert (tile.count, tile.tone, tile.why) == (1, "warn", "from metrics server")


def test_what_is_over_recommended_is_money() -> None:
    town = Town()
    town.get("VerticalPodAutoscaler")["status"]["recommendation"]["containerRecommendations"][0]["target"] = {
        "memory": "64Mi"
    }
    saved = overview_of(town, price=Price(0.0, 1.0)).savings
    assert saved.memory == 2 * 64 * 2**20
    assert saved.monthly == pytest.approx(730 * 0.125)


def test_an_autoscaler_at_its_maximum_is_counted_and_listed() -> None:
    town = Town()
    limited = condition("ScalingLimited", "True", "TooManyReplicas")
    change("HorizontalPodAutoscaler", spec__maxReplicas=2, status__conditions__2=limited)(town)
    page = overview_of(town)
    assert counted(page)["Autoscalers at their maximum"] == 1
    assert any(each.id == "hpa-at-max" for each in page.problems)


@pytest.mark.parametrize("found", [0, 1, MOST_FINDINGS, MOST_FINDINGS + 5])
def test_more_problems_are_announced_only_where_some_are_listed(found: int) -> None:
    town = Town()
    limited = condition("ScalingLimited", "True", "TooManyReplicas")
    change("HorizontalPodAutoscaler", spec__maxReplicas=2, status__conditions__2=limited)(town)
    view = town.view()
    at_maximum = next(each for each in judge(view) if each.verdict.id == "hpa-at-max")
    page = overview(view, [], [], [at_maximum] * found)
    assert len(page.problems) == min(found, MOST_FINDINGS)
    assert len(page.problems) + page.more_problems == found


def test_the_heading_and_the_list_of_problems_are_renewed_together() -> None:
    """Two regions may come from two looks: one that a reader has selected text in is left as it is."""
    template = files("kubetide.dashboard.web").joinpath("templates", "overview.html").read_text()
    (region,) = [part for part in template.split("<section") if "page.more_problems" in part]
    assert "page.problems" in region
    assert region.count("data-region") == 1
    assert "data-region" in region.split(">", 1)[0]


def test_what_cannot_be_read_is_not_counted_as_nothing() -> None:
    town = Town()
    town.remove("HorizontalPodAutoscaler")
    town.unreadable = {"horizontalpodautoscalers.autoscaling": "forbidden", "pods": "forbidden"}
    page = overview_of(town)
    assert page.hpas is None
    assert counted(page)["Autoscalers at their maximum"] is None
    assert counted(page)["OOM kills"] is None


def test_a_node_shows_its_qos_classes_batch_resources_and_what_its_agent_did() -> None:
    town = Town()
    change("Node", status__allocatable={"cpu": "4", "memory": "8Gi", "kubernetes.io/batch-cpu": "2500"})(town)
    record = {"qos": {"strategies": {"cpu-suppress": {"reason": "4 CPUs", "evicted": ["a"]}}, "failing": {}}}
    status = {"pods": [{"throttled": 0.5}, {"throttled": 0.1}, {"throttled": None}]}
    (row,) = node_rows(town.view(), {"node-1": record}, {"node-1": status})
    assert (row.cpu.batch, row.cpu.requested, row.pods) == (2.5, 1.0, 2)
    assert row.classes == {"LS": 2}
    assert row.throttled == 1
    assert (row.strategies[0].name, row.strategies[0].text, row.strategies[0].evicted) == ("cpu-suppress", "4 CPUs", 1)


def test_equal_decisions_in_a_row_are_one() -> None:
    line = {"at": "t", "current": 2, "desired": 2, "why": "w", "rule": "r", "wrote": False}
    up = {**line, "desired": 4, "wrote": True}
    found = decisions({"history": [line, up, line, line]})
    assert [(each.text, each.times) for each in found] == [
        ("stays at 2", 2),
        ("2 → 4 replicas", 1),
        ("stays at 2", 1),
    ]


def test_the_timeline_has_what_the_controller_still_knows_and_before_that_what_was_seen() -> None:
    at = NOW.timestamp()
    line = {"at": NOW.isoformat(), "current": 4, "desired": 6, "why": "cpu", "rule": "ScaleUpLimit", "wrote": True}
    untimed, stays = {**line, "at": None}, {**line, "at": (NOW + timedelta(minutes=1)).isoformat(), "wrote": False}
    log = [
        Entry(at=NOW - timedelta(hours=1), subject="hpa/web", text="2 → 4 replicas: memory"),
        Entry(at=NOW - timedelta(minutes=30), subject="vpa/web", text="recommends cpu 0.2"),
        Entry(at=NOW + timedelta(seconds=5), subject="hpa/web", text="4 → 6 replicas: the same, seen later"),
    ]
    assert scalings(decisions({"history": [untimed, line, stays]}), log) == {
        at - 3600: "2 → 4 replicas: memory",
        at: "4 → 6 replicas: cpu (ScaleUpLimit)",
    }


def test_the_page_of_a_workload_has_its_containers_pods_and_findings() -> None:
    view = Town().view()
    (row,) = results(view).rows
    page = workload_page(view, row, WEB)
    assert [pod.name for pod in page.pods] == ["web-1a-x", "web-1a-y"]
    assert page.containers[0].requests.cpu_millis == 500
    assert page.containers[0].target.memory_bytes == 128 * 2**20
    assert page.problems[0].severity == "ok"


def test_a_lease_that_was_not_renewed_in_time_leads_no_more() -> None:
    lease = Town().view().leases[0]
    assert lease_row(lease, NOW).tone == "good"
    claims = {"kubetide.io/shard-ranges": ranges_text(range(64))}
    sharing = msgspec.structs.replace(lease, metadata=msgspec.structs.replace(lease.metadata, annotations=claims))
    assert lease_row(sharing, NOW).shard == "64 of 256 ranges"
    numbered = msgspec.structs.replace(lease, metadata=msgspec.structs.replace(lease.metadata, name="hpa-2-of-3"))
    assert lease_row(numbered, NOW).shard == "2/3"
    late = lease_row(lease, NOW + timedelta(minutes=5))
    assert (late.tone, late.renewed) == ("bad", "5 min ago")


def test_health_names_certificates_that_end_soon_or_cannot_be_read() -> None:
    ends = {"fine": NOW + timedelta(days=90), "soon": NOW + timedelta(days=2), "over": NOW, "odd": None}
    page = health(Town().view(), [], certificates=ends)
    assert [(each.name, each.tone) for each in page.certificates] == [
        ("fine", "good"),
        ("soon", "warn"),
        ("over", "bad"),
        ("odd", "warn"),
    ]


def test_health_counts_the_pods_of_each_component() -> None:
    town = Town()
    labels = {"app.kubernetes.io/name": "kubetide", "app.kubernetes.io/component": "hpa"}
    first, second = town.all("Pod")
    first["metadata"]["labels"] = second["metadata"]["labels"] = labels
    second["status"]["conditions"] = [condition("Ready", "False")]
    (row,) = health(town.view(), []).components
    assert (row.name, row.ready, row.pods, row.tone) == ("hpa", 1, 2, "warn")
    assert health(Town().view(), []).components == ()


def test_evictions_are_told_apart_from_what_else_an_agent_wrote() -> None:
    evicted = {"level": 0, "type": "pod", "reason": "evictPodByNodeMemoryUsage", "name": "batch-1"}
    audit = [{"level": 3, "type": "pod", "reason": "cpu-burst"}, evicted, {"level": 0, "type": "node"}]
    assert evictions(audit) == [evicted]


def test_load_that_an_autoscaler_tolerates_is_no_alarm() -> None:
    assert "over" not in gauge(64, 60, None, "load", tolerance=0.1)
    assert "over" in gauge(67, 60, None, "load", tolerance=0.1)
    assert "over" in gauge(61, 60, None, "usage of a request")


def test_latency_is_median_and_p95() -> None:
    found = latency_of([number / 100 for number in range(1, 101)], failed=2, reading=0.5)
    assert (found.median, found.p95, found.failed) == (0.5, 0.96, 2)
    assert latency_of([], failed=0, reading=None).median is None


def test_a_new_count_of_an_autoscaler_is_told_with_its_reason() -> None:
    before, town = Town(), Town()
    able = condition("AbleToScale", reason="SucceededRescale", message="the count was set to 4")
    change("HorizontalPodAutoscaler", status__desiredReplicas=4, status__conditions__0=able)(town)
    old, new = before.view(), town.view()
    (entry,) = changes(old, new, results(old).rows, results(new).rows)
    assert (entry.subject, entry.workload) == ("hpa/web", "shop/web")
    assert entry.text == "2 → 4 replicas: the count was set to 4"
    assert changes(old, old, results(old).rows, results(old).rows) == []


def test_a_recommendation_that_hardly_moved_is_not_told() -> None:
    old, town = Town().view(), Town()
    best = town.get("VerticalPodAutoscaler")["status"]["recommendation"]["containerRecommendations"][0]["target"]
    best["memory"] = "130Mi"
    assert changes(old, town.view(), results(old).rows, results(town.view()).rows) == []
    best["memory"] = "200Mi"
    (entry,) = changes(old, town.view(), results(old).rows, results(town.view()).rows)
    assert entry.text == "recommends memory 128Mi → 200Mi"


# -- what if


def usage(cpu: float, memory: float, *, lines: int = 400) -> Usage:
    cells = np.full((lines, 2), 1.0)
    return Usage(int(NOW.timestamp()), 60, ("a", "b"), cells * cpu, cells * memory)


def test_what_if_sizes_by_the_numbers_given_and_makes_the_patch() -> None:
    workload = sized_workload(Town().view(), WEB)
    answer = what_if(workload, {"main": usage(0.2, 600 * 2**20)}, Numbers(percentile=0.9, margin=0.5))
    more = what_if(workload, {"main": usage(0.2, 600 * 2**20)}, Numbers(percentile=0.9, margin=1.0))
    small, large = answer.rows[0].recommended, more.rows[0].recommended
    assert small is not None
    assert large is not None
    assert small.cpu_request_millis is not None
    assert large.cpu_request_millis is not None
    assert 300 <= small.cpu_request_millis < large.cpu_request_millis
    assert answer.patch is not None
    assert answer.patch["metadata"] == {"name": "web", "namespace": "shop"}
    assert answer.counts is None


def test_what_if_of_a_target_is_replayed_in_the_closed_loop() -> None:
    workload = sized_workload(Town().view(), WEB)  # half a core per pod
    tight = what_if(workload, {"main": usage(0.5, 2**20)}, Numbers(target=50), bounds=(1, 20)).counts
    loose = what_if(workload, {"main": usage(0.5, 2**20)}, Numbers(target=100), bounds=(1, 20)).counts
    assert tight is not None
    assert loose is not None
    assert tight.mean > loose.mean
    assert tight.most == 4  # a core in all, at 50 % of half a core each


def test_what_if_without_usage_recommends_nothing() -> None:
    answer = what_if(sized_workload(Town().view(), WEB), {}, Numbers(target=50))
    assert answer.rows[0].recommended is None
    assert (answer.patch, answer.counts, answer.chart) == (None, None, None)


# -- drawings


def test_drawings_have_a_text_and_escape_it() -> None:
    for drawn in (gauge(1, 2, 3, '"<x>'), share(1, 2, '"<x>'), spark((1.0, 2.0), '"<x>')):
        assert 'aria-label="&quot;&lt;x&gt;"' in drawn


def test_the_histogram_of_a_trace_is_drawn_with_its_percentile() -> None:
    trace = {
        "histogram": [[10.0, 20.0, 0.25], [20.0, 30.0, 0.75]],
        "bounds": {"target": {"percentile": 0.9, "measured": 30, "result": 35}},
    }
    chart = histogram_chart("main", "cpu", trace)
    assert chart is not None
    drawn = to_svg(chart)
    assert "p90" in drawn
    assert "recommended" in drawn
    assert histogram_chart("main", "cpu", {}) is None


def test_the_replica_chart_has_bounds_and_decisions() -> None:
    series = filled(History(), [1, 2, 3]).of(WEB)
    assert series is not None
    labels = [layer.label for layer in replica_chart(series, (1, 5), {NOW.timestamp(): "2 → 4 replicas: <why>"}).layers]
    assert labels == ["replicas", "minimum", "maximum", "decisions"]
    drawn = to_svg(replica_chart(series, (1, 5), {NOW.timestamp(): "2 → 4 replicas: <why>"}))
    assert "2 → 4 replicas: &lt;why&gt;" in drawn
    assert [layer.label for layer in replica_chart(series, None).layers] == ["replicas"]
