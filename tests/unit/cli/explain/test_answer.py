"""The order of an explanation, and the history behind it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from kubetide.api.objects.meta import ObjectKey
from kubetide.cli.explain import node, workload
from kubetide.cli.explain.answer import listing, render_answer, with_verdict
from kubetide.cli.explain.history import MOST, render_events, since
from kubetide.verdicts.core.finding import age, found

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEB = ObjectKey("shop", "web")
PINNED = found("hpa-pinned", "hpa", WEB, max=3, double=6)
MISSING = found("hpa-target-missing", "hpa", WEB, target_kind="Deployment", target="web")


def event(minute: int, text: str = "scaled up") -> dict[str, Any]:
    return {"at": f"2026-03-01T11:{minute:02}:00Z", "reason": "Scaled", "text": text}


def test_the_verdict_and_its_remedy_come_first_then_numbers_then_history() -> None:
    trace = {"unexplained": "nobody knows it", "events": [event(1)]}
    lines = click.unstyle(render_answer("kubetide.cli.explain.node", trace, [MISSING, PINNED])).splitlines()
    assert lines == [
        "NOT SCALING: there is no Deployment web in shop",
        "FIX: kubectl delete hpa web -n shop",
        "ALSO PINNED: minReplicas and maxReplicas are both 3, so nothing can scale",
        """FIX: kubectl patch hpa web -n shop --type=merge -p '{"spec":{"maxReplicas":6}}'""",
        "",
        "No numbers: nobody knows it",
        "",
        "Events (newest first)",
        "  2026-03-01 11:01:00Z       Scaled: scaled up",
    ]


def test_programs_get_verdict_and_remedy_as_members() -> None:
    answer = with_verdict({"proposal": 3}, [MISSING, PINNED])
    assert answer["verdict"] == MISSING.line
    assert answer["remedy"] == MISSING.remedy
    assert answer["severity"] == "error"
    assert [row["id"] for row in answer["findings"]] == ["hpa-target-missing", "hpa-pinned"]
    assert answer["proposal"] == 3


def test_a_list_names_the_object_of_every_verdict() -> None:
    first, second, third, _ = click.unstyle(listing([MISSING, PINNED])).splitlines()
    assert first.startswith("hpa shop/web  NOT SCALING: ")
    assert second.strip().startswith("FIX: kubectl delete hpa")
    assert third.startswith("hpa shop/web  PINNED: ")


def test_events_that_say_the_same_in_a_row_are_told_once() -> None:
    rows = [event(1), event(2), event(3, "scaled down"), event(4)]
    assert render_events(rows).splitlines() == [
        "Events (newest first)",
        "  2026-03-01 11:04:00Z       Scaled: scaled up",
        "  2026-03-01 11:03:00Z       Scaled: scaled down",
        "  2026-03-01 11:02:00Z   2x  Scaled: scaled up",
    ]


def test_a_long_history_is_cut_and_says_so() -> None:
    rows = [event(minute, f"size {minute}") for minute in range(MOST + 5)]
    lines = render_events(rows).splitlines()
    assert len(lines) == MOST + 2
    assert lines[-1] == "  … 5 older"


def test_since_keeps_the_young_and_what_has_no_time() -> None:
    rows = [event(5), event(45), {"at": "?", "text": "odd"}]
    assert since(rows, timedelta(minutes=30), now=NOW) == rows[1:]
    assert since(rows, None, now=NOW) == rows


def test_ages_have_one_unit() -> None:
    spans = (timedelta(seconds=5), timedelta(minutes=14), timedelta(hours=5), timedelta(days=3), timedelta(seconds=-9))
    assert [age(NOW - span, NOW) for span in spans] == ["5 s", "14 min", "5 h", "3 d", "0 s"]


def test_facts_of_a_node_are_told_in_words_with_units() -> None:
    decision = {
        "at": "2026-03-01T12:00:00+00:00",
        "writes": 7,
        "leftMilli": 4629,
        "hostApplicationsUsedCores": 0.5,
        "someNewThing": "x",
        "features": {"memoryBytes": 476450463},
        "notWritten": [],
    }
    trace = {"qos": {"strategies": {"cpu-suppress": decision}, "failing": {}, "executor": {"written": 7}}}
    assert node.render(trace).splitlines() == [
        "cpu-suppress: 7 kernel values asked for",
        "  kernel values asked for      7",
        "  left for best effort         4629m",
        "  used by host applications    0.5 cores",
        "  some new thing               x",
        "  features                     memory bytes: 454Mi",
        "kernel values: 7 written",
    ]
    skipped = {"qos": {"strategies": {"resctrl": {"skipped": "no cache allocation"}}}}
    assert node.render(skipped).startswith("resctrl: nothing to do: no cache allocation")


def test_room_for_pods_that_request_nothing_is_told_as_such() -> None:
    room = {"needs": "nothing", "copies": 9, "shortage": ""}
    trace = {"kind": "Deployment", "namespace": "shop", "name": "web", "replicas": 1, "pods": [], "room": room}
    text = workload.render({**trace, "hpas": [], "vpas": [], "pdbs": []})
    assert "  Room        for 9 more pods on the nodes, which request nothing" in text.splitlines()
