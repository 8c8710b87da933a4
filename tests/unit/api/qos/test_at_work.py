"""Which release of upstream is at work, by the images that pods run."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.qos.at_work import AGENT, AtWork, at_work, differences, split_image
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Version, release_difference

KNOWN = tuple(Version(1, minor) for minor in range(4, 9))


def pod(name: str, *images: str, phase: str = "Running", **meta: Any) -> Pod:
    containers = [{"name": str(number), "image": image} for number, image in enumerate(images)]
    raw = {"metadata": {"name": name, "namespace": "k", **meta}, "spec": {"containers": containers}}
    return convert({**raw, "status": {"phase": phase}}, Pod)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("example.com:5000/koordinator-sh/koordlet:v1.7.0", ("koordlet", "v1.7.0")),
        ("koordlet", ("koordlet", "")),
        ("example.com/koordlet@sha256:abcd", ("koordlet", "")),
        ("example.com/koordlet:v1.8.0@sha256:abcd", ("koordlet", "v1.8.0")),
        ("example.com:5000/other", ("other", "")),
    ],
)
def test_the_tag_of_an_image(image: str, expected: tuple[str, str]) -> None:
    assert split_image(image) == expected


def test_only_pods_that_run_are_at_work() -> None:
    pods = [
        pod("b", "proxy:v9", "r/koordlet:v1.6.2"),
        pod("a", "r/koordlet:v1.6.2"),
        pod("ended", "r/koordlet:v1.4.0", phase="Succeeded"),
        pod("leaving", "r/koordlet:v1.4.0", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("other", "r/koordlet-tools:v1.4.0"),
    ]
    assert at_work(pods, AGENT) == [AtWork("k/a", "v1.6.2"), AtWork("k/b", "v1.6.2")]


def test_each_release_that_differs_is_one_line() -> None:
    found = [AtWork("k/a", "v1.6.2"), AtWork("k/b", "v1.6.2"), AtWork("k/c", "v1.8.1"), AtWork("k/d", "latest")]
    assert differences(found, AGENT, Version(1, 8), KNOWN) == [
        "koordlet in k/d runs latest, kubetide follows 1.8",
        "koordlet in k/a and 1 more runs 1.6, kubetide follows 1.8",
    ]
    assert differences(found[2:3], AGENT, Version(1, 8), KNOWN) == []


@pytest.mark.parametrize(
    ("text", "differs"), [("v1.8.0-rc1", False), ("1.8", False), ("v1.7.0+build", True), ("", True)]
)
def test_a_suffix_is_no_other_release(text: str, differs: bool) -> None:
    assert bool(release_difference("it", text, Version(1, 8), KNOWN)) is differs


def test_releases_that_behave_alike_do_not_differ() -> None:
    assert release_difference("it", "1.7", Version(1, 8), KNOWN, same=KNOWN[-2:]) == ""
