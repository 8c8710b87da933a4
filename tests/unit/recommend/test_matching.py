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


LONG = ("a" * 47, "a" * 47 + "-bb", "b" * 58, "e" * 63)
HASH = "5d4f8c7b9d"


def generated(base: str, suffix: str = "x2k7z") -> str:
    """Return the name that an API server makes for `generateName`: 63 characters at most."""
    return f"{base[:58]}{suffix}"


MATCHER = PodMatcher(
    [
        workload("Deployment", "web", "odd-name"),
        workload("Deployment", "web-front"),
        workload("StatefulSet", "db"),
        workload("DaemonSet", "logs"),
        workload("CronJob", "report"),
        workload("Rollout", "canary"),
        workload("Job", "import"),
        *(workload("Deployment", name) for name in LONG),
        workload("CronJob", "c" * 52),
        workload("DaemonSet", "d" * 60),
        workload("StatefulSet", "s" * 60),
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
        ("import-x2k7z", "import"),
        ("import-3-x2k7z", "import"),
        *((generated(f"{name}-{HASH}-"), name) for name in LONG),
        (generated(f"{LONG[0]}-{HASH}-", "aeiou"), None),
        (generated(f"{LONG[0]}-other-{HASH}-"), None),
        (generated("c" * 52 + "-29381040-"), "c" * 52),
        (generated("d" * 60 + "-"), "d" * 60),
        ("s" * 58 + "x2k7z", None),
    ],
)
def test_a_name_says_whose_pod_it_was(pod: str, owner: str | None) -> None:
    found = MATCHER.match("shop", pod)
    assert (found.name if found is not None else None) == owner


def test_another_namespace_is_another_workload() -> None:
    assert MATCHER.match("other", "db-0") is None
