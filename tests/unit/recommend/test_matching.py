"""Departed pods are given to the workload that made them, by name."""

import pytest

from kubetide.recommend import Container, Workload
from kubetide.recommend.core.matching import PodMatcher


def workload(kind: str, name: str, *pods: str) -> Workload:
    return Workload(
        api_version="v1",
        kind=kind,
        namespace="shop",
        name=name,
        replicas=1,
        containers=(Container("main"),),
        pods=frozenset(pods),
    )


MATCHER = PodMatcher(
    [
        workload("Deployment", "web", "odd-name"),
        workload("Deployment", "web-front"),
        workload("StatefulSet", "db"),
        workload("DaemonSet", "logs"),
        workload("CronJob", "report"),
        workload("Rollout", "canary"),
    ]
)


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        ("odd-name", "web"),
        ("web-5d4f8c7b9d-x2k7z", "web"),
        ("web-front-5d4f8c7b9d-x2k7z", "web-front"),
        ("db-0", "db"),
        ("logs-x2k7z", "logs"),
        ("report-29381040-x2k7z", "report"),
        ("canary-5d4f8c7b9d-x2k7z", "canary"),
        ("web-admin-aeiou", None),
        ("db-main", None),
        ("unknown-5d4f8c7b9d-x2k7z", None),
    ],
)
def test_a_name_says_whose_pod_it_was(pod: str, owner: str | None) -> None:
    found = MATCHER.match("shop", pod)
    assert (found.name if found is not None else None) == owner


def test_another_namespace_is_another_workload() -> None:
    assert MATCHER.match("other", "db-0") is None
