"""A look that keeps what the last one found shows what a look from scratch would show."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from kubetide.dashboard.core.looks import results
from kubetide.verdicts.core.judge import STANDS
from kubetide.verdicts.core.view import ClusterView
from unit.verdicts.test_verdicts import SITUATIONS
from unit.verdicts.town import Town, deployment, hpa

ELSEWHERE = {"nodes", "quotas", "pod_metrics", "node_metrics", "leases", "webhooks"}
"""What a workload is judged by beside its own objects: seen when its judgement is made again, after half a minute."""
OF_OTHERS = {"hpa-overlapping-selectors", "workload-overlap"}
"""So is what the objects of another workload do to it."""


def followed(before: ClusterView, after: ClusterView) -> ClusterView:
    """Return the later view as a cache gives it: what did not change is the same object."""
    kept: dict[str, Any] = {}
    for name in (field.name for field in fields(after)):
        items = getattr(after, name)
        if isinstance(items, tuple):
            old = list(getattr(before, name))
            kept[name] = tuple(next((each for each in old if each == item), item) for item in items)
    return replace(after, **kept, pod_facts=before.facts_for(kept["pods"]))


@pytest.mark.parametrize("verdict", SITUATIONS)
def test_what_is_kept_of_the_last_look_is_what_a_new_one_finds(verdict: str) -> None:
    town = Town()
    before = town.view()
    SITUATIONS[verdict][0](town)
    after = followed(before, town.view())
    changed = {field.name for field in fields(after) if getattr(before, field.name) != getattr(after, field.name)}
    last = results(before)
    if changed & ELSEWHERE or verdict in OF_OTHERS:
        last = results(replace(before, now=after.now - STANDS))
    kept, fresh = results(after, before=last), results(replace(after, pod_facts={}))
    assert [row.verdict for row in kept.rows] == [row.verdict for row in fresh.rows]
    assert kept.rows == fresh.rows
    assert {finding.line for finding in kept.findings} == {finding.line for finding in fresh.findings}


def test_only_what_changed_is_judged_again() -> None:
    town = Town()
    town.add(deployment("other"), hpa("other", "other"))
    before = town.view()
    last = results(before)
    town.get("HorizontalPodAutoscaler", "other")["spec"]["maxReplicas"] = 9
    after = followed(before, replace(town.view(), now=before.now + timedelta(seconds=5)))
    found = results(after, before=last)
    again = {key[1].name for key, judged in found.judged.items() if judged is not last.judged.get(key)}
    assert again == {"other"}
    assert [row.name for row, old in zip(found.rows, last.rows, strict=True) if row is not old] == ["other"]
