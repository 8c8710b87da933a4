"""Where samples of answers end up."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.usage_grid import Samples, UsageGrid
from kubetide.recommend.core.workloads import Container, Workload, key_of
from kubetide.stats.prometheus_ranges import Matrix, PrometheusAnswer

START, STEP, POINTS = 3000, 300, 6


def labels(pod: str) -> dict[str, str]:
    return {"namespace": "shop", "pod": pod, "container": "main"}


def matrix(*series: tuple[Mapping[str, str], dict[int, float]]) -> Matrix:
    times = [at * 1_000_000 for _, samples in series for at in samples]
    values = [value for _, samples in series for value in samples.values()]
    sizes = np.array([len(samples) for _, samples in series], dtype=np.int64)
    return Matrix([each for each, _ in series], sizes, np.array(times, dtype=np.int64), np.array(values, dtype=float))


GIVEN = st.lists(
    st.tuples(
        st.sampled_from(["web-0", "web-1", "web-2"]),
        st.dictionaries(st.integers(-2, POINTS + 1), st.floats(0, 100), max_size=POINTS + 4),
    ),
    max_size=6,
)


@given(st.lists(GIVEN, max_size=3))
def test_the_largest_sample_of_each_step_is_kept(answers: list[list[tuple[str, dict[int, float]]]]) -> None:
    samples, wanted = Samples(START, STEP, POINTS), dict[str, np.ndarray]()
    for each in answers:
        ordered = [(pod, dict(sorted(found.items()))) for pod, found in each]
        samples.put(matrix(*((labels(pod), {START + k * STEP: v for k, v in found.items()}) for pod, found in ordered)))
        for pod, found in ordered:
            row = wanted.setdefault(pod, np.full(POINTS, np.nan))
            for k, value in found.items():
                if 0 <= k < POINTS:
                    row[k] = np.fmax(row[k], value)
    assert {pod for _, pod, _ in samples.rows} == wanted.keys()
    for (_, pod, _), row in samples.rows.items():
        assert np.array_equal(row, wanted[pod], equal_nan=True)


def test_a_peak_of_several_steps_stands_at_each() -> None:
    grid = UsageGrid.of(START, STEP, 7, wide=3 * STEP)
    last = START + 6 * STEP
    assert (grid.memory.start, grid.memory.points, grid.memory.last) == (START, 3, last)
    grid.cpu.put(matrix((labels("web-0"), {last: 0.5})))
    grid.memory.put(matrix((labels("web-0"), {START: 1.0, last: 3.0}), (labels("other-0"), {last: 9.0})))
    grid.note_ooms(matrix((labels("web-0"), {last: 1.0})))
    grid.note_throttled(matrix((labels("web-0"), {last: 0.25}), (labels("other-0"), {})))
    web = Workload(
        api_version="apps/v1",
        kind="StatefulSet",
        namespace="shop",
        name="web",
        replicas=1,
        containers=(Container("main"),),
    )
    found = grid.usages(PodMatcher([web]))
    assert found.keys() == {key_of(web, "main")}
    usage = found[key_of(web, "main")]
    nan = np.nan
    assert np.array_equal(usage.cpu[:, 0], [nan, nan, nan, nan, nan, nan, 0.5], equal_nan=True)
    assert np.array_equal(usage.memory[:, 0], [1.0, nan, nan, nan, 3.0, 3.0, 3.0], equal_nan=True)
    assert [(kill.at_seconds, kill.limit_bytes) for kill in usage.ooms] == [(last, 3.0)]
    assert usage.throttled == 0.25


def test_a_series_without_its_labels_is_refused() -> None:
    with pytest.raises(PrometheusAnswer, match="no label 'pod'; looked for namespace, pod, container, it has"):
        Samples(START, STEP, POINTS).put(matrix(({"namespace": "shop"}, {START: 1.0})))
