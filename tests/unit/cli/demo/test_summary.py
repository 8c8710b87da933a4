"""The end of the story: figures that fit together, what was saved and spent, and what is still wrong."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from kubetide.cli.demo.day import Outcome
from kubetide.cli.demo.summary import comparison, make_summary, percent
from kubetide.dashboard.core.model import Judgement, State, Workload
from kubetide.embedded.sim.ledger import Account
from kubetide.embedded.sim.load.profile import WorkloadKey

START = datetime(2026, 1, 5, 6, tzinfo=UTC)
WITH: dict[WorkloadKey, Account] = {
    ("shop", "web"): Account(
        least_pods=2, most_pods=8, asked_core_hours=20, used_core_hours=9, asked_gib_hours=4, requests=1000, lost=1
    ),
    ("shop", "fat"): Account(
        least_pods=2, most_pods=2, asked_core_hours=5, used_core_hours=3, asked_gib_hours=10, requests=100, oom_kills=2
    ),
    ("batch", "train"): Account(least_pods=0, most_pods=3, asked_core_hours=50, used_core_hours=48),
}
WITHOUT: dict[WorkloadKey, Account] = {
    ("shop", "web"): Account(most_pods=2, asked_core_hours=12, asked_gib_hours=3, requests=1000, lost=200, slow=490),
    ("shop", "fat"): Account(most_pods=2, asked_core_hours=36, asked_gib_hours=48, requests=100, oom_kills=9),
    ("batch", "train"): Account(),
}


def outcome(*workloads: Workload) -> Outcome:
    end = START + timedelta(hours=12)
    return Outcome(
        elapsed=timedelta(hours=12),
        reasons=Counter({"SuccessfulRescale": 7, "Pulled": 90}),
        accounts=WITH,
        state=State(title="shop", start=START, now=end, end=end, pace="240x", workloads=workloads),
        objects="",
    )


def test_the_two_days_are_compared() -> None:
    assert comparison(WITH, WITHOUT) == [
        "saved 31.0 core-hours and 38.0 GiB-hours of requests (fat)",
        "spent 8.0 core-hours and 1.0 GiB-hours of requests (web)",
        "1 requests were lost or slow instead of 690",
        "2 OOM kills instead of 9",
        "48.0 core-hours of batch work done instead of 0.0",
    ]


def test_the_table_has_both_days_side_by_side() -> None:
    lines = make_summary(outcome(), WITHOUT).splitlines()
    assert "12:00:00 simulated: 7 decisions of a horizontal autoscaler." in lines
    [web] = [line.split() for line in lines if line.startswith("shop/web")]
    assert web == ["shop/web", "2-8", "20.0", "9.0", "4.0", "99.9%", "12.0", "31.0%"]
    assert "In all 75.0 core-hours were asked for and 60.0 used." in lines
    assert lines[-1] == "Nothing is wrong at the end."
    assert "without" not in make_summary(outcome(), None)
    assert max(len(line) for line in lines) <= 80


def test_what_is_still_wrong_comes_last_with_its_remedy() -> None:
    verdict = Judgement(tone="bad", text="SLOW: 9 s for a request", remedy="kubectl autoscale")
    fine = Judgement(tone="good", text="fine")
    workloads = [
        Workload(namespace="shop", name=name, ready=1, pods=1, verdict=each)
        for name, each in (("web", verdict), ("fat", fine))
    ]
    lines = make_summary(outcome(*workloads), None).splitlines()
    assert lines[-3:] == [
        "Still wrong at the end:",
        "  shop/web  SLOW: 9 s for a request",
        "    FIX: kubectl autoscale",
    ]


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100.0%"), (0.99999, "99.9%"), (0.9, "90.0%"), (0.0, "0.0%"), (None, "")],
)
def test_only_what_is_whole_is_a_hundred_percent(share: float | None, text: str) -> None:
    assert percent(share) == text
