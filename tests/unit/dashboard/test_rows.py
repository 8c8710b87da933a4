"""Rows of a cluster: one per workload, and nothing that was not read counts as zero."""

from collections.abc import Callable
from typing import Any

import pytest

from kubetide.dashboard.core.listing import Query, matches, window
from kubetide.dashboard.core.looks import results
from kubetide.dashboard.core.model import Judgement, Tone, Workload
from unit.verdicts.breaking import change
from unit.verdicts.town import Town, condition, deployment


def row_of(town: Town, name: str = "web") -> Workload:
    view = town.view()
    return next(row for row in results(view).rows if row.name == name)


def test_a_row_has_replicas_bounds_load_usage_requests_and_what_is_recommended_for_all_pods() -> None:
    row = row_of(Town())
    assert (row.ready, row.pods, row.bounds) == (2, 2, (1, 5))
    assert (row.usage, row.load) == ("cpu 54/60 %", (54.0, 60.0))
    assert row.cpu.used == pytest.approx(0.486)
    assert (row.cpu.asked, row.cpu.recommended) == (1.0, None)
    assert (row.memory.used, row.memory.asked) == (200 * 2**20, 256 * 2**20)
    assert row.memory.recommended == 256 * 2**20
    assert (row.hpa, row.vpa, row.kind) == ("web", "web", "Deployment")
    assert row.verdict.tone == "good"


def no_metrics(town: Town) -> None:
    town.remove("PodMetrics")


@pytest.mark.parametrize(
    ("breaking", "tone", "text"),
    [
        pytest.param(
            change(
                "HorizontalPodAutoscaler",
                spec__maxReplicas=2,
                status__conditions__2=condition("ScalingLimited", "True", "TooManyReplicas"),
            ),
            "warn",
            "max",
            id="at-its-maximum",
        ),
        pytest.param(
            change("Pod", status__conditions__0=condition("Ready", "False")), "warn", "", id="pods-that-are-not-ready"
        ),
    ],
)
def test_the_worst_finding_about_a_workload_or_its_autoscalers_is_its_verdict(
    breaking: Callable[[Town], Any], tone: Tone, text: str
) -> None:
    town = Town()
    breaking(town)
    verdict = row_of(town).verdict
    assert verdict.tone in (tone, "bad")
    assert text.lower() in verdict.text.lower()


def test_usage_that_was_not_measured_is_unknown_and_not_zero() -> None:
    town = Town()
    no_metrics(town)
    row = row_of(town)
    assert row.cpu.used is None
    assert row.memory.used is None


def test_a_workload_of_which_pods_cannot_be_read_is_never_fine() -> None:
    town = Town()
    town.remove("Pod")
    town.remove("PodMetrics")
    town.unreadable = {"pods": "forbidden"}
    verdict = row_of(town).verdict
    assert verdict.tone == "warn"
    assert "pods" in verdict.text


def test_an_oom_kill_counts_for_an_hour() -> None:
    town = Town()
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-03-01T11:30:00Z"}}
    town.get("Pod")["status"]["containerStatuses"][0]["lastState"] = ended
    assert row_of(town).oom_kills == 1
    ended["terminated"]["finishedAt"] = "2026-03-01T10:30:00Z"
    assert row_of(town).oom_kills == 0


def test_a_workload_without_autoscaler_has_neither_bounds_nor_load() -> None:
    town = Town()
    town.add(deployment("plain"))
    row = row_of(town, "plain")
    assert (row.bounds, row.load, row.hpa, row.vpa) == (None, None, "", "")


# -- search, order, window


def made(name: str, tone: Tone = "good", namespace: str = "shop", **more: Any) -> Workload:
    return Workload(
        namespace=namespace, name=name, ready=1, pods=1, verdict=Judgement(tone=tone, text=f"{tone} text"), **more
    )


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        pytest.param("", True, id="nothing-matches-all"),
        pytest.param("WEB", True, id="case-does-not-matter"),
        pytest.param("shop/we", True, id="namespace-and-name"),
        pytest.param("web gone", False, id="every-word-must-match"),
        pytest.param("ns:shop", True, id="namespace"),
        pytest.param("ns:sho", False, id="a-namespace-is-matched-whole"),
        pytest.param("kind:deployment", True, id="kind"),
        pytest.param("is:problem", False, id="no-problem"),
        pytest.param("is:hpa", False, id="no-hpa"),
        pytest.param("is:nonsense", False, id="unknown-property"),
    ],
)
def test_a_search_is_words_that_all_must_match(search: str, expected: bool) -> None:
    assert matches(made("web"), search) is expected


def test_the_worst_come_first_and_equal_ones_by_name() -> None:
    rows = [made("b"), made("c", "bad"), made("a"), made("d", "warn")]
    assert [row.name for row in window(rows, Query()).rows] == ["c", "d", "a", "b"]


def test_a_window_says_how_long_the_whole_is() -> None:
    found = window([made(f"w{number:02}") for number in range(30)], Query(sort="name", start=10, count=5))
    assert [row.name for row in found.rows] == ["w10", "w11", "w12", "w13", "w14"]
    assert (found.start, found.matched, found.total, dict(found.tones)) == (10, 30, 30, {"good": 30})


def test_a_window_behind_the_end_is_empty_and_one_without_measure_is_bounded() -> None:
    rows = [made(f"w{number}") for number in range(600)]
    assert window(rows, Query(start=9999)).rows == ()
    assert len(window(rows, Query(count=10**6)).rows) == 500
