"""The dashboard with a real Prometheus: what it shows of the time before it looked, and of whom."""

import json
import re
import shutil
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from dashboard_world import OWN, account, cluster, dashboard, visitor
from kubetide.clock import SystemClock
from kubetide.recommend.gathering import Sources
from kubetide.recommend.prometheus_usage import Question
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.prometheus import PrometheusHttp
from kubetide.vpa.recommender.settings import RecommenderSettings
from prom.test_prometheus_history import free_port, prometheus

MIB = 2**20
SCRAPE, DAYS = 60, 2
DEPARTED, PRESENT, HIDDEN = ("shop", "web-7d9f8c6b54-x2k7z"), ("shop", "web-1a-x"), ("secret", "vault-0")
CORES = {DEPARTED: 0.25, PRESENT: 0.5, HIDDEN: 8.0}
THROTTLED = {DEPARTED: 0.9, PRESENT: 0.4, HIDDEN: 0.9}


def written(folder: Path, end: int) -> None:
    """Fill a store: every container uses the same all the time, and is scraped twice."""
    times = range(end - DAYS * 86400, end + 1, SCRAPE)
    pods = [(f'namespace="{namespace}",pod="{pod}",container="main"', key) for key in CORES for namespace, pod in [key]]
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    for who, key in pods:
        for job in "ab":
            total = (f"{(at - times[0]) * CORES[key]:.3f} {at}" for at in times)
            lines += [f'container_cpu_usage_seconds_total{{{who},job="{job}"}} {each}' for each in total]
    for metric, shares in (
        ("container_cpu_cfs_periods", dict.fromkeys(CORES, 1.0)),
        ("container_cpu_cfs_throttled_periods", THROTTLED),
    ):
        lines.append(f"# TYPE {metric} counter")
        for who, key in pods:
            lines += [f"{metric}_total{{{who}}} {(at - times[0]) * 10 * shares[key]:.3f} {at}" for at in times]
    for metric, labels, amount in (
        ("container_memory_working_set_bytes", "", 100 * MIB),
        ("kube_pod_container_resource_requests", ',resource="memory"', 128 * MIB),
    ):
        lines.append(f"# TYPE {metric} gauge")
        for who, _ in pods:
            lines += [f"{metric}{{{who}{labels}}} {amount} {at}" for at in times]
    (folder / "past.om").write_text("\n".join([*lines, "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=100h"]
    subprocess.run([*command, str(folder / "past.om"), str(folder / "data")], check=True, stdout=subprocess.DEVNULL)


def asking(url: str) -> Sources:
    settings = msgspec.structs.replace(RecommenderSettings(), prometheus_address=url)
    client = PrometheusHttp(settings, Telemetry(), SystemClock())
    return Sources(prometheus=client, question=Question(history=timedelta(days=DAYS)))


async def read(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url, headers={"Accept": "application/json"}) as answer:
        assert answer.status == 200, await answer.text()
        return json.loads(await answer.text())


async def test_pages_begin_with_what_prometheus_knows(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no Prometheus: install the Debian package prometheus")
    now = int(time.time())
    written(tmp_path, now + 900)
    async with (
        prometheus(tmp_path, free_port()) as address,
        cluster() as server,
        dashboard(server, tmp_path, sources=asking(address)) as url,
        visitor() as session,
    ):
        base = f"{url}/c/kubetide"
        page = await read(session, f"{base}/")
        history = page["history"]
        # Two pods of the namespace that there is a pod in; the third is in one of which the visitor sees nothing.
        known = [value for value in history["cpu_used"] if value is not None]
        assert len(known) > 100
        assert known[5:-1] == pytest.approx([0.75] * len(known[5:-1]), rel=0.01)
        assert max(history["memory_used"][:100]) == 200 * MIB
        assert max(history["memory_asked"][:100]) == 256 * MIB
        assert now - 2 * 86400 - 3600 < history["times"][0] < now - 1.9 * 86400
        assert history["times"] == sorted(set(history["times"]))
        hour = (await read(session, f"{base}/?range=1h"))["history"]
        assert hour["times"][-1] - hour["times"][0] <= 3600
        assert len(hour["times"]) > 50
        throttled = next(each for each in page["overview"]["counts"] if each["label"] == "Throttled pods")
        assert (throttled["count"], throttled["why"]) == (1, "from Prometheus")
        async with session.get(f"{base}/") as answer:
            text = await answer.text()
        assert re.search(r"<desc>[^<]*used: [^<]* to 750m", text)
        async with session.get(f"{base}/workloads/shop/Deployment/web") as answer:
            text = await answer.text()
        assert "Prometheus does not answer" not in text
        assert re.search(r"<desc>[^<]* to 250m", text)
        what_if = await read(session, f"{base}/workloads/shop/Deployment/web/what-if")
        assert what_if["rows"][0]["evidence"]["source"] == "prometheus"
        assert what_if["rows"][0]["evidence"]["departedPods"] == 1


async def test_a_prometheus_that_is_away_leaves_the_pages(tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    async with (
        cluster() as server,
        dashboard(server, tmp_path, by_token=True, sources=asking(away)) as url,
        visitor() as session,
    ):
        rules = [{"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": ["list"]}]
        token = await account(server, "shopper", rules=rules, namespace="shop")
        await session.post(f"{url}/login", data={"token": token, "namespace": "shop"}, headers=OWN)
        page = await read(session, f"{url}/c/in-cluster/")
        throttled = next(each for each in page["overview"]["counts"] if each["label"] == "Throttled pods")
        assert throttled["count"] is None
        assert "Prometheus does not answer" in throttled["why"]
        async with session.get(f"{url}/c/in-cluster/") as answer:
            assert "what the dashboard saw itself is shown" in await answer.text()
