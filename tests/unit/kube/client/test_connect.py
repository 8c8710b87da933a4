"""From settings to a client, and the collector that is kept from the decoder."""

import gc
from pathlib import Path

import pytest
import yaml

from kubetide.clock import SystemClock
from kubetide.kube.client.connect import connect
from kubetide.kube.client.decoding import GC_THRESHOLDS, tune_gc
from kubetide.kube.client.settings import KubeSettings


def kubeconfig(folder: Path) -> Path:
    path = folder / "config"
    body = {
        "clusters": [{"name": "c", "cluster": {"server": "https://example.com"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "namespace": "shop"}}],
    }
    path.write_text(yaml.safe_dump(body))
    return path


async def test_settings_name_the_cluster_and_the_context(tmp_path: Path) -> None:
    settings = KubeSettings(kubeconfig=kubeconfig(tmp_path), context="one", qps=5, burst=10)
    client, access = connect(settings, clock=SystemClock())
    assert (access.server, access.namespace, access.context) == ("https://example.com", "shop", "one")
    await client.close()


def test_one_answer_cannot_take_all_memory() -> None:
    assert KubeSettings().body_limit == 256 * 1024 * 1024


def test_the_collector_becomes_rare_and_passes_over_what_the_imports_made(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *values: calls.append(f"threshold {values}"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    tune_gc()
    assert calls == [f"threshold {GC_THRESHOLDS}", "freeze"]
