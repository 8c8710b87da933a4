"""Autoscalers at rest that are looked at together: each is found as `ask` finds it alone."""

from datetime import timedelta

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.objects.metrics import ContainerUsage, PodMetrics
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.hpa.core.observation import Observation, ScaleView
from kubetide.hpa.core.pods import PodList
from kubetide.hpa.core.quick.filing import NamespaceSamples
from kubetide.hpa.core.quick.rest import Asked, Rest, ask
from kubetide.hpa.core.quick.rows import ask_alone, row_of, used_by
from kubetide.hpa.core.quick.together import ask_together
from kubetide.hpa.core.replicas import Tolerance, Usage
from kubetide.hpa.core.samples import MetricFailure, resource_reading
from kubetide.testing.builders import make_hpa
from unit.hpa.worlds import NOW, pod

SHARES = (0.0, 0.05, 0.1, 0.25)
HPA = convert(make_hpa("web", "shop", cpu_percent=50), HorizontalPodAutoscaler)

amounts = st.one_of(
    st.integers(40, 60).map("{}m".format),
    st.integers(0, 2**62).map(str),
    st.sampled_from(["0", "1", "50000001n", "-1m", "1e15", "NaN", "8Ei", "45500u"]),
)
containers = st.lists(
    st.builds(
        ContainerUsage,
        name=st.sampled_from(["main", "side"]),
        usage=st.dictionaries(st.sampled_from(["cpu", "cpu", "memory"]), amounts, max_size=2),
    ),
    max_size=2,
)
plain = st.integers(44, 56).map(lambda used: [ContainerUsage(name="main", usage={"cpu": f"{used}m"})])
shown_values = st.none() | st.builds(
    Usage, st.just(0.0), st.integers(0, 60) | st.just(2**60), st.none() | st.integers(0, 120)
)


@st.composite
def at_rest(draw: st.DrawFn, number: int) -> tuple[Rest, list[PodMetrics]]:
    """Return an autoscaler at rest and samples of its pods, most of them plain."""
    app = f"app-{number}"
    names = [f"{app}-{index}" for index in range(draw(st.integers(1, 4)))]
    share = draw(st.booleans())
    rest = Rest(
        seen=Observation(hpa=HPA, scale=ScaleView(3, 3, f"app={app}"), pods=PodList(pod(name) for name in names)),
        resource="cpu",
        tolerance=Tolerance(down=draw(st.sampled_from(SHARES)), up=draw(st.sampled_from(SHARES))),
        requests=dict.fromkeys(names, draw(st.sampled_from([0, 1, 100, 333, 2**61])) if share else 0),
        utilization=draw(st.sampled_from([1, 45, 50, 100, 2**40])) if share else None,
        average=0 if share else draw(st.sampled_from([0, 47, 50, 2**61])),
        shown=draw(shown_values),
        current=3,
        side=0,
        above="",
        rules=None,
        reasons=("", ""),
    )
    others = draw(st.sampled_from([[], [], [], [f"{app}-gone"], [f"{app}-0"]]))
    listed = names if draw(st.integers(0, 9)) else names[:-1]
    samples = [
        PodMetrics(
            metadata=ObjectMeta(name=name, namespace="shop", labels={"app": app}),
            timestamp=NOW,
            window=draw(st.sampled_from(["15s", "15s", "15s", "soon"])),
            containers=tuple(draw(plain | containers)),
        )
        for name in (*listed, *others)
    ]
    return rest, samples


autoscalers = st.integers(1, 6).flatmap(lambda count: st.tuples(*[at_rest(number) for number in range(count)]))


@settings(max_examples=300, deadline=None)
@given(autoscalers)
def test_together_they_are_found_as_each_is_found_alone(
    drawn: tuple[tuple[Rest, list[PodMetrics]], ...],
) -> None:
    items = [sample for _, samples in drawn for sample in samples]
    filed = NamespaceSamples(items)
    selectors = [parse_selector(f"app=app-{number}") for number in range(len(drawn))]
    rows = [row_of(rest, selector, filed) for (rest, _), selector in zip(drawn, selectors, strict=True)]
    found = ask_together(rows, [used_by(row, filed, at_most=None) for row in rows])
    for (rest, samples), row, together in zip(drawn, rows, found, strict=True):
        exact = _alone(rest, samples)
        by_its_sum = ask_alone(row, used_by(row, filed, at_most=None))
        assert by_its_sum in (exact, None)
        # The values themselves are for a status that is written, which nobody is together.
        alone = replace(exact, usage=None) if exact is not None else None
        event(f"alone {alone}, together {together}")
        # Together there may be no answer where alone there is one, but never another one.
        assert together in (alone, None)
        if _is_ordinary(rest, samples):
            assert together == alone
            assert by_its_sum == exact


def _alone(rest: Rest, samples: list[PodMetrics]) -> Asked | None:
    try:
        reading = resource_reading(samples, rest.resource)
    except MetricFailure:
        return None
    if reading.refused or reading.samples.keys() != rest.requests.keys():
        return None
    return ask(rest, reading.samples)


def _is_ordinary(rest: Rest, samples: list[PodMetrics]) -> bool:
    """Return whether samples and targets are such as clusters have."""
    usual = all(
        one.window == "15s"
        and one.containers is not None
        and [str((each.usage or {}).get("cpu")).endswith("m") for each in one.containers] == [True]
        and "-1m" not in str(one.containers)
        for one in samples
    )
    names = [one.metadata.name for one in samples]
    target = rest.average if rest.utilization is None else rest.utilization
    within = 0 < target < 2**50 and max(rest.requests.values()) < 2**50
    return usual and within and len(set(names)) == len(names) and (rest.shown is None or rest.shown.average < 2**50)


def test_a_row_is_kept_as_long_as_the_same_samples_are_listed() -> None:
    selector = parse_selector("app=web")
    pods = PodList(pod(name) for name in ("web-0", "web-1"))
    rest = Rest(
        seen=Observation(hpa=HPA, scale=ScaleView(2, 2, "app=web"), pods=pods),
        resource="cpu",
        tolerance=Tolerance(),
        requests=dict.fromkeys(("web-0", "web-1"), 100),
        utilization=50,
        average=0,
        shown=None,
        current=2,
        side=0,
        above="",
        rules=None,
        reasons=("", ""),
    )
    first = NamespaceSamples([_sample("web-1", 50), _sample("web-0", 50)])
    row = row_of(rest, selector, first)
    second = NamespaceSamples([_sample("web-1", 70), _sample("web-0", 60)], first.filing)
    assert row_of(rest, selector, second, row) is row
    assert used_by(row, second, at_most=None) == 130
    assert used_by(row, second, at_most=69) == -1
    third = NamespaceSamples([_sample("web-0", 70), _sample("web-1", 60)], second.filing)
    again = row_of(rest, selector, third, row)
    assert again is not row
    assert used_by(again, third, at_most=None) == 130


def _sample(name: str, millis: int) -> PodMetrics:
    usage = (ContainerUsage(name="main", usage={"cpu": f"{millis}m"}),)
    meta = ObjectMeta(name=name, namespace="shop", labels={"app": "web"})
    return PodMetrics(metadata=meta, timestamp=NOW, window=str(timedelta(0).seconds) + "s", containers=usage)
