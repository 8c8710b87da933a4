"""A user who may write the objects of one namespace: what kubetide does for them ends at its border."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast
from urllib.parse import unquote

import pytest

from kubetide.api.values.promql import matcher, selector_matchers
from kubetide.api.values.schedule import LONGEST_WINDOW, MOST_WINDOWS, ScheduleError, parse_windows
from kubetide.api.values.selectors import parse_selector
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import InvalidInput
from kubetide.kube.client.client import Client
from kubetide.kube.metrics import ExternalMetrics
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.recommender.core.adaptive.saved import read_state
from kubetide.vpa.recommender.core.oom import read_floor
from simulated.cluster import pods, ready_pods, run
from simulated.recommending import condition, recommended, recommender
from simulated.updating import install_crds, vpa_parts, watch_disruptions

HOSTILE = [
    "../../../../api/v1/secrets",
    "a/../../b",
    "x?labelSelector=",
    "x#y",
    "x%2f..%2fy",
    "x\r\nAuthorization: Bearer stolen",
    "x;y",
    "ж",
    " ",
]


def test_a_vpa_touches_no_pod_of_another_namespace() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}})
        await cluster.apply(make_deployment("web", "theirs", replicas=3, cpu="100m", memory="128Mi"))
        # The same name, the same labels: only the namespace differs.
        await cluster.apply(make_vpa("web", "default", target="web"))
        cluster.set_usage("theirs", "web", cpu="900m", memory="1Gi")
        seen = watch_disruptions(cluster)
        async with recommender(cluster), vpa_parts(cluster):
            await cluster.run_for(timedelta(minutes=30))
        assert recommended(cluster, "default", "web") == {}
        assert condition(cluster, "default", "web", "ConfigUnsupported")["status"] == "True"
        assert (seen.evictions, seen.resizes) == ([], [])
        assert {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods(cluster, "theirs")} == {
            "100m"
        }
        assert len(ready_pods(cluster, "theirs")) == 3

    run(main, nodes=1)


class Stop(Exception):
    """Enough has been seen."""


class Recording:
    """In place of a client: keeps the path it was asked for, and answers nothing."""

    path = ""

    @property
    def answers(self) -> "Recording":
        """The budget of answers."""
        return self

    @asynccontextmanager
    async def answer(self) -> AsyncIterator[None]:
        """One answer."""
        yield

    async def request(self, method: str, path: str, **_: Any) -> Any:
        """Keep the path."""
        self.path = path
        raise Stop


async def asked_for(metric: str) -> str:
    """Return the path that an external metric is read from."""
    client = Recording()
    with pytest.raises(Stop):
        await ExternalMetrics(cast("Client", client)).values("mine", metric)
    return client.path


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_metric_name_stays_one_segment_of_the_path(name: str) -> None:
    before, _, last = asyncio.run(asked_for(name)).rpartition("/")
    assert before == "/apis/external.metrics.k8s.io/v1beta1/namespaces/mine"
    assert not set("/?#\r\n ") & set(last)
    assert unquote(last) == name


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_would_climb_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be part of a path"):
        asyncio.run(ExternalMetrics(cast("Client", Recording())).values("mine", name))


@pytest.mark.parametrize(
    "value",
    ['x"} or vector(1) or up{a="', "x\\", 'x\\" or up', "x\ny", "a|b", ".*", "$", "{}"],
)
def test_a_label_value_cannot_become_anything_else_in_a_query(value: str) -> None:
    text = matcher("app", (value,))
    assert text.startswith('app="')
    assert text.endswith('"')
    inner = text[len('app="') : -1]
    assert "\n" not in inner
    # Every quote inside is escaped by an odd number of backslashes.
    for place, character in enumerate(inner):
        if character == '"':
            before = inner[:place]
            assert (len(before) - len(before.rstrip("\\"))) % 2 == 1
    assert (len(inner) - len(inner.rstrip("\\"))) % 2 == 0


def test_a_label_name_that_could_not_be_quoted_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is not a label name of Prometheus"):
        selector_matchers(parse_selector("example.com/app=web"))


@pytest.mark.parametrize(
    ("windows", "said"),
    [
        pytest.param("² * * * * 1h", "is not a number", id="a-digit-that-is-no-number"),
        pytest.param(f"{'9' * 5000} * * * * 1h", "is not a number", id="a-number-of-5000-digits"),
        pytest.param("0 2 * * * 2000000h", "at most", id="longer-than-time-itself"),
        pytest.param("0 0 31 2 * 1h;" * 20_000, f"the most is {MOST_WINDOWS}", id="twenty-thousand-that-never-open"),
        pytest.param("0 2 * * * -1h", "longer than 0", id="negative"),
    ],
)
def test_maintenance_windows_are_bounded_in_number_and_length(windows: str, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        parse_windows(windows)


def test_what_fits_the_bounds_of_windows_is_taken() -> None:
    hours = LONGEST_WINDOW.days * 24
    assert len(parse_windows(f"0 2 * * * {hours}h;" * MOST_WINDOWS)) == MOST_WINDOWS


@pytest.mark.parametrize(
    "text",
    ["1 apart ² eJw=", f"1 apart {'9' * 5000} eJw=", "1 apart 1 ####", "", " ", "\x00", "1 one 1 " + "A" * 300_000],
    ids=range(7),
)
def test_a_forged_state_is_refused_as_bad_input(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_state(text)


@pytest.mark.parametrize("text", ["1@²", "1e999999@x", "@", "1@2026-01-01", "-1@2026-01-01T00:00:00+00:00"])
def test_a_forged_floor_counts_as_none(text: str) -> None:
    assert read_floor(text) is None
