"""Past load of a target from a real Prometheus: whose pods count, each once, and what it teaches."""

import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.objects.meta import ObjectKey
from kubetide.hpa.core.annotations import HeadroomMode
from kubetide.hpa.core.decide import metrics_of
from kubetide.hpa.core.headroom.learner import HeadroomLearner, learner_for
from kubetide.hpa.core.headroom.past_load import PastStep, past_metrics
from kubetide.hpa.headroom.kept import KeptHeadroom
from kubetide.hpa.headroom.past_loads import PastLoads
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.prometheus import PrometheusHttp
from kubetide.vpa.recommender.settings import RecommenderSettings
from prom.test_prometheus_history import END, FixedClock, free_port, prometheus
from unit.hpa.worlds import CPU_50, hpa, pods

SCRAPE, HOURS = 30, 50
BEGIN = END - HOURS * 3600
STOPPED = BEGIN + 36 * 3600
KEY = ObjectKey("shop", "web")


def cores(at: int) -> float:
    """Return the cores that each pod of web uses: a rush of ten minutes in every hour."""
    return 0.25 if 1800 <= at % 3600 < 2400 else 0.05


def samples() -> Iterator[str]:
    """Two pods of web of which one stops, scraped by two Prometheuses, and one of another deployment."""
    yield "# TYPE container_cpu_usage_seconds counter"
    for pod, end, jobs in (
        ("web-6f9c8d5b7-x2x4z", END, "ab"),
        ("web-6f9c8d5b7-zzzzz", STOPPED, "a"),
        ("web-api-6f9c8d5b7-x2x4z", END, "a"),
    ):
        for job in jobs:
            total = 0.0
            for at in range(BEGIN, end + 1, SCRAPE):
                labels = f'job="{job}",namespace="shop",pod="{pod}",container="main"'
                yield f"container_cpu_usage_seconds_total{{{labels}}} {total:.4f} {at}"
                total += cores(at) * SCRAPE
    yield "# EOF\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no Prometheus: install the Debian package prometheus")
    folder = tmp_path_factory.mktemp("past")
    (folder / "past.om").write_text("\n".join(samples()))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=240h"]
    subprocess.run([*command, str(folder / "past.om"), str(folder / "data")], check=True, stdout=subprocess.DEVNULL)
    return folder


class Listening(HeadroomLearner):
    """Keeps what it was told."""

    def __init__(self, learner: HeadroomLearner) -> None:
        super().__init__(learner.mode, learner.terms, timedelta(minutes=5), replicas=2)
        self.told: dict[int, PastStep] = {}

    def recall(self, past: PastStep, tolerance: float) -> None:
        self.told[past.step * 15] = past
        super().recall(past, tolerance)


async def test_the_past_of_a_target_is_that_of_its_own_pods(store: Path) -> None:
    spec = hpa(metrics=[CPU_50], maximum=30).spec
    metrics = past_metrics("shop", spec, metrics_of(spec), pods(2), HpaCompat(), "")
    terms = learner_for(
        HeadroomMode.LEARNED,
        spec,
        timedelta(seconds=15),
        timedelta(minutes=5),
        start=timedelta(seconds=30),
        replicas=2,
        saved={},
    )
    kept, learner = KeptHeadroom(), Listening(terms)
    async with prometheus(store, free_port()) as url:
        settings = RecommenderSettings(prometheus_address=url)
        source = PrometheusHttp(settings, Telemetry(), FixedClock())
        # More points than one answer may have, and more time than there are samples.
        past = PastLoads(source, FixedClock(), Random(1), timedelta(hours=HOURS + 10))
        past.begin(KEY, kept, learner, metrics, 0.1)
        await past.reconcile(KEY)
    assert kept.learner is learner
    assert kept.past is None
    assert learner.origin.startswith("from 2 days, 1:5")
    rush, calm = END - 3600 + 2100, END - 3600 + 900
    # A pod requests 0.1 cores, so 0.25 fill two and a half, and at a target of 50 % the plain rule wants twice that.
    assert learner.told[rush].demand == pytest.approx(2.5, rel=0.01)
    assert learner.told[rush].wanted == pytest.approx(5.0, rel=0.01)
    assert learner.told[calm].demand == pytest.approx(0.5, rel=0.01)
    assert learner.told[rush - 24 * 3600].demand == pytest.approx(5.0, rel=0.01)
    assert learner.told[STOPPED + 360 + 900].demand == pytest.approx(0.5, rel=0.01)
    assert min(learner.told) >= BEGIN
    assert learner.saved()["proven"]
