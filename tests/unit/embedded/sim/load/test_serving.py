"""What pods make of their load, on columns: the same as pod by pod."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.sim.load.profile import WORST_LATENCY, latency
from kubetide.embedded.sim.load.serving import NOTHING, ReadyTask, Served, Serving
from kubetide.embedded.sim.node.kernel import Kernel

amounts = st.sampled_from([0.0, 1e-12, 0.1, 0.5, 0.5 + 5e-10, 0.999, 1.0, 2.0])
tasks = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0.5, 2.0), amounts, amounts, amounts, st.floats(0.0, 0.1)), max_size=12
)


@given(tasks, st.floats(0, 1000))
def test_columns_agree_with_each_pod_to_the_bit(found: list[Any], load: float) -> None:
    kernel = Kernel()
    while kernel.size < len(found):
        kernel.enlarge()
    ready: dict[tuple[str, str], list[ReadyTask]] = {}
    expected: dict[tuple[str, str], list[tuple[float, float]]] = {("shop", "none"): []}
    for row, (name, weight, demand, granted, cap, seconds) in enumerate(found):
        kernel.demand[row], kernel.granted[row], kernel.cap[row] = demand, granted, cap
        ready.setdefault(("shop", name), []).append(ReadyTask(row, weight, seconds))
        room = granted if granted < demand - 1e-9 else cap
        expected.setdefault(("shop", name), []).append(
            (weight, latency(service_seconds=seconds, demand=demand, granted=room))
        )
    served = Serving(ready).at(dict.fromkeys(expected, load), kernel)
    for workload, pods in expected.items():
        total = sum(weight for weight, _ in pods)
        assert served[workload].rates == tuple(load * weight / total for weight, _ in pods)
        assert served[workload].latencies == tuple(each for _, each in pods)
        assert all(math.isfinite(each) for each in served[workload].latencies)


def test_what_is_slow_and_how_slow_it_is_on_average() -> None:
    some = Served(30.0, (10.0, 20.0), (0.5, WORST_LATENCY))
    assert (some.pods, some.slower_than(1.0), some.slower_than(0.5)) == (2, 20.0, 30.0)
    assert some.latency == pytest.approx(15.25)
    assert (NOTHING.pods, NOTHING.latency, NOTHING.slower_than(0.0)) == (0, 0.0, 0.0)
