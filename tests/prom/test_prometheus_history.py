"""History from a real Prometheus server on loopback, filled with generated samples."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from socket import socket

import aiohttp
import numpy as np
import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import parse_selector
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.stats.prometheus_ranges import MAX_POINTS
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.core.checkpoint import checkpoints
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, recommend
from kubetide.vpa.recommender.prometheus import PrometheusHistory, PrometheusHttp
from kubetide.vpa.recommender.settings import RecommenderSettings

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
END = int(NOW.timestamp())
HOUR, DAY = 3600, 86_400
SCRAPE = 300
LABELS = {"app": "web"}
# The hash of the password `test`.
BCRYPT_TEST = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"


class FixedClock(SystemClock):
    """Real seconds, but always the same date: the samples end there."""

    def now(self) -> datetime:
        return NOW


@dataclass(frozen=True, slots=True)
class Usage:
    """One container's past: millicores per hour and bytes per hour, oldest first."""

    pod: str
    container: str
    millis: list[float]
    memory: list[int]


def generated(days: int) -> list[Usage]:
    rng = Random(11)
    return [
        Usage(
            f"web-{pod}",
            container,
            # Half millicores, so that the last bits of a rate cannot change the whole ones.
            [rng.randrange(50, 900) + 0.5 for _ in range(days * 24 + 1)],
            [rng.randrange(100, 900) * 2**20 for _ in range(days * 24 + 1)],
        )
        for pod in range(3)
        for container in ("main", "sidecar")
    ]


def open_metrics(usages: list[Usage], days: int) -> Iterator[str]:
    first = END - days * DAY - HOUR
    for metric, kind in (
        ("container_cpu_usage_seconds", "counter"),
        ("container_memory_working_set_bytes", "gauge"),
        ("kube_pod_labels", "gauge"),
    ):
        yield f"# TYPE {metric} {kind}"
        for usage in usages:
            labels = f'job="kubernetes-cadvisor",namespace="default",pod_name="{usage.pod}",name="{usage.container}"'
            total = 0.0
            for i in range((days * DAY + HOUR) // SCRAPE + 1):
                at, hour = first + i * SCRAPE, max(0, -(-i * SCRAPE // HOUR) - 1)
                if metric == "container_cpu_usage_seconds":
                    yield f"{metric}_total{{{labels}}} {total!r} {at}"
                    total += usage.millis[min((i * SCRAPE) // HOUR, len(usage.millis) - 1)] / 1000 * SCRAPE
                elif metric == "container_memory_working_set_bytes":
                    yield f"{metric}{{{labels}}} {usage.memory[min(hour, len(usage.memory) - 1)]} {at}"
                elif usage.container == "main" and i % 12 == 0:
                    names = f'kubernetes_namespace="default",kubernetes_pod_name="{usage.pod}",pod_label_app="web"'
                    yield f"{metric}{{{names}}} 1 {at}"
    yield "# EOF\n"


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight days of blocks."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no Prometheus: install the Debian package prometheus")
    return filled(tmp_path_factory.mktemp("prometheus"))


def filled(directory: Path) -> Path:
    """Write eight days of samples as Prometheus stores them."""
    (directory / "past.om").write_text("\n".join(open_metrics(generated(8), 8)))
    subprocess.run(
        [
            "promtool",
            *("tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=240h", "-q"),
            *(str(directory / "past.om"), str(directory / "data")),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return directory


@asynccontextmanager
async def prometheus(
    store: Path, port: int, *, web: dict[str, object] | None = None, scraped: Sequence[str] = ()
) -> AsyncIterator[str]:
    job = {"job_name": "kubetide", "honor_labels": True, "static_configs": [{"targets": list(scraped)}]}
    config = {"global": {"scrape_interval": "1s" if scraped else "1m"}, "scrape_configs": [job] if scraped else []}
    (store / "prometheus.yml").write_text(json.dumps(config))
    (store / "web.yml").write_text(json.dumps(web or {}))
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={store / 'prometheus.yml'}",
        f"--storage.tsdb.path={store / 'data'}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.config.file={store / 'web.yml'}",
        "--log.level=error",
        cwd=store,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    scheme = "https" if web and "tls_server_config" in web else "http"
    url = f"{scheme}://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(30), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"{url}/-/ready", ssl=False) as answer:
                        if answer.status in (200, 401):
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
        yield url
    finally:
        process.terminate()
        await process.wait()


def settings_for(url: str, **changes: object) -> RecommenderSettings:
    base: dict[str, object] = {
        "storage": "prometheus",
        "prometheus_address": url,
        "metric_for_pod_labels": "kube_pod_labels",
        **changes,
    }
    return RecommenderSettings(**base)  # type: ignore[arg-type]  # a table of settings by name


def history(settings: RecommenderSettings) -> PrometheusHistory:
    clock = FixedClock()
    return PrometheusHistory(PrometheusHttp(settings, Telemetry(), clock), settings, clock=clock, rng=Random(0))


def with_vpa(model: Model) -> VpaState:
    state = VpaState(ObjectKey("default", "web"), parse_selector("app=web"), created=NOW)
    return model.set_vpa(state, keep_history=False)


def fed_live(usages: list[Usage], days: int) -> Model:
    """Return the model that saw the same samples as they came."""
    model = Model()
    rows = []
    for usage in usages:
        key = ObjectKey("default", usage.pod)
        model.set_pod(key, LABELS, "Running", now=NOW)
        rows.append(model.set_container(key, usage.container, now=NOW))
    at = np.array(rows)
    for hour in range(days * 24 + 1):
        time = np.full(len(rows), (END - days * DAY + hour * HOUR) * 1_000_000)
        model.containers.add_cpu(at, time, np.array([int(usage.millis[hour]) for usage in usages]))
        model.containers.add_memory(at, time, np.array([usage.memory[hour] for usage in usages]))
    return model


async def test_history_gives_the_model_that_live_samples_would_have_given(store: Path) -> None:
    async with prometheus(store, free_port()) as url:
        model = Model()
        samples = await history(settings_for(url)).load(model)
    live = fed_live(generated(8), 8)
    assert samples == 6 * 2 * (8 * 24 + 1)
    one, other = with_vpa(model), with_vpa(live)
    found = recommend(model, [one], Options())[one.key]
    assert found == recommend(live, [other], Options())[other.key]
    assert [entry.container for entry in found] == ["main", "sidecar"]
    mine, theirs = (checkpoints(m, [v], now=NOW)["default/web"] for m, v in ((model, one), (live, other)))
    for a, b in zip(mine, theirs, strict=True):
        assert (a.first, a.last, a.count, a.windows) == (b.first, b.last, b.count, b.windows)
        assert a.cpu.weights == b.cpu.weights
        assert a.memory.weights == b.memory.weights


async def test_a_fine_resolution_is_asked_in_slices_that_prometheus_accepts(store: Path) -> None:
    async with prometheus(store, free_port()) as url:
        settings = settings_for(url, history_resolution="30s", history_cpu_metric="absent_metric")
        points = 8 * DAY // 30 + 1
        assert points > MAX_POINTS
        form = {"query": "kube_pod_labels", "start": str(END - 8 * DAY), "end": str(END), "step": "30"}
        with pytest.raises(KubetideError, match="11,000"):
            await PrometheusHttp(settings, Telemetry(), FixedClock()).post("/api/v1/query_range", form)
        model = Model()
        samples = await history(settings).load(model)
        assert samples == 6 * points


async def test_an_outage_delays_history_and_loses_nothing(store: Path) -> None:
    port = free_port()
    model = Model()
    loading = asyncio.get_running_loop().create_task(history(settings_for(f"http://127.0.0.1:{port}")).load(model))
    await asyncio.sleep(0.2)
    assert not loading.done()
    async with prometheus(store, port):
        async with asyncio.timeout(30):
            assert await loading == 6 * 2 * (8 * 24 + 1)


async def test_what_prometheus_refuses_for_good_is_said_at_once(store: Path) -> None:
    async with prometheus(store, free_port()) as url:
        with pytest.raises(KubetideError, match="parse error"):
            await history(settings_for(url, history_cpu_metric="not a metric {")).load(Model())
        with pytest.raises(KubetideError, match="no label 'ns'"):
            await history(settings_for(url, container_namespace_label="ns")).load(Model())


async def test_a_password_and_tls_are_honoured(store: Path) -> None:
    ca = make_ca("test", now=NOW)
    pair = issue(ca, "prometheus", now=NOW, addresses=("127.0.0.1",))
    (store / "server.crt").write_text(pair.certificate)
    (store / "server.key").write_text(pair.key)
    web: dict[str, object] = {
        "tls_server_config": {"cert_file": "server.crt", "key_file": "server.key"},
        "basic_auth_users": {"reader": BCRYPT_TEST},
    }
    async with prometheus(store, free_port(), web=web) as url:
        good = settings_for(url, username="reader", password="test", prometheus_insecure=True)
        assert await history(good).load(Model()) > 0
        wrong = settings_for(url, username="reader", password="nope", prometheus_insecure=True)
        with pytest.raises(KubetideError, match="401"):
            await history(wrong).load(Model())
        # Without being told to accept any certificate, one of an unknown authority is no answer.
        strict = settings_for(url, username="reader", password="test", history_deadline=timedelta(microseconds=1))
        with pytest.raises(KubetideError, match="does not answer"):
            await history(strict).load(Model())
