"""What nodes know of containers changes their samples: peaks, throttling, and memory without page cache."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.metrics import PodMetrics, PodSignals
from kubetide.api.values.codec import convert
from kubetide.vpa.recommender.core.evidence.node_signals import SignalEffects, SignalRules, with_signals
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.usage.feeding import PodFeed, UsageBatch, gather
from kubetide.vpa.recommender.observer import slim

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MIB = 2**20


def learned(rules: SignalRules, *, uid: str = "u", **signal: Any) -> tuple[UsageBatch, SignalEffects]:
    """Return a sample of 200m and 100Mi of a container limited to 1 core, as its node knows it."""
    pod = {
        "metadata": {"namespace": "shop", "name": "web", "uid": "u"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
        "status": {"phase": "Running"},
    }
    usage = {
        "metadata": {"namespace": "shop", "name": "web"},
        "timestamp": NOW.isoformat(),
        "containers": [{"name": "main", "usage": {"cpu": "200m", "memory": "100Mi"}}],
    }
    told = {
        "metadata": {"namespace": "shop", "name": "web", "uid": uid},
        "containers": [{"name": "main", **signal}, {"name": "other", **signal}],
    }
    model = Model()
    PodFeed().sync(model, [slim(convert(pod, Pod))], now=NOW)
    batch = gather(model, [convert(usage, PodMetrics)], now=NOW, init={})
    return with_signals(model, batch, [convert(told, PodSignals)], rules)


ALL = SignalRules(peaks=True, without_page_cache=True, throttled_ratio=1.5)


@pytest.mark.parametrize(
    ("rules", "signal", "expected"),
    [
        pytest.param(ALL, {}, (200, 100), id="a-node-that-says-nothing"),
        pytest.param(ALL, {"cpuPeakNanocores": 600_000_000}, (600, 100), id="peak"),
        pytest.param(ALL, {"cpuPeakNanocores": 100_000_000}, (200, 100), id="a-peak-below-the-mean-of-its-window"),
        pytest.param(ALL, {"cpuPeakNanocores": 960_000_000}, (1440, 100), id="a-peak-at-the-limit-is-a-lower-bound"),
        pytest.param(ALL, {"cpuThrottledRatio": 0.25}, (300, 100), id="throttled-below-its-limit"),
        pytest.param(ALL, {"cpuThrottledRatio": 0.2}, (200, 100), id="hardly-throttled"),
        pytest.param(ALL, {"memoryNeedBytes": 60 * MIB}, (200, 60), id="page-cache-is-no-need"),
        pytest.param(ALL, {"memoryNeedBytes": 160 * MIB}, (200, 100), id="need-of-a-later-moment"),
        pytest.param(
            SignalRules(),
            {"cpuPeakNanocores": 10**9, "cpuThrottledRatio": 1.0, "memoryNeedBytes": 0},
            (200, 100),
            id="switched-off",
        ),
    ],
)
def test_a_sample_is_what_its_node_knows(rules: SignalRules, signal: dict[str, Any], expected: tuple[int, int]) -> None:
    batch, _ = learned(rules, **signal)
    assert (int(batch.cpu[0]), int(batch.memory[0]) // MIB) == expected


def test_signals_of_another_pod_of_the_same_name_are_not_believed() -> None:
    batch, effects = learned(ALL, uid="another", cpuPeakNanocores=10**9)
    assert (int(batch.cpu[0]), int(effects.told.sum())) == (200, 0)


def test_the_effect_is_told_for_people() -> None:
    _, effects = learned(ALL, cpuPeakNanocores=960_000_000, memoryNeedBytes=60 * MIB)
    assert effects.of(effects.slots.tolist()) == {
        "samples": 1,
        "told": 1,
        "cpuMeanMillis": 200,
        "cpuPeakMillis": 960,
        "throttled": 1,
        "memoryBytes": 100 * MIB,
        "memoryNeedBytes": 60 * MIB,
    }
    assert effects.of([12345]) is None
