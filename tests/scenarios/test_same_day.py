"""Watching changes nothing: the same day, byte for byte, at any speed, with any number of watchers, with any view."""

import base64
import http.client
import io
import json
import ssl
import threading
import time
from contextlib import closing
from datetime import timedelta
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from rich.console import Console

from kubetide.cli.demo.showing import Ports, Showing
from kubetide.cli.demo.summary import make_summary
from kubetide.cli.demo.view import LiveView, PlainView, View
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.ledger import Account
from kubetide.embedded.sim.load.profile import WorkloadKey
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.simulate.controllers import ALL

Lived = tuple[str, str, dict[WorkloadKey, Account]]
LENGTH = timedelta(minutes=6)
PATIENCE_SECONDS = 60.0
WATCHED = ("/api/v1/pods", "/api/v1/events", "/apis/autoscaling/v2/horizontalpodautoscalers")
READ = ("/apis/metrics.k8s.io/v1beta1/pods", "/api/v1/nodes", "/apis/apps/v1/deployments")


def live(speed: float | None, *, view: View | None = None, config: Path | None = None) -> Lived:
    """Live through a while with every controller; return the summary, the digest of all objects and all figures."""
    scenario = scenarios.load("webshop")
    showing = Showing(
        scenario,
        view or PlainView(io.StringIO()),
        length=LENGTH,
        names=ALL,
        speed=speed,
        ports=None if config is None else Ports(api=0, status=0),
        kubeconfig=config or Path("unused"),
    )
    outcome = run_virtual(showing.run(), start=scenario.start, speed=speed)
    return make_summary(outcome, None), outcome.objects, outcome.accounts


@cache
def unwatched() -> Lived:
    return live(None)


class Watcher(threading.Thread):
    """Somebody with a client of his own: watches one resource, or reads others over and over."""

    def __init__(self, config: Path, path: str, *, watches: bool) -> None:
        super().__init__(daemon=True)
        self._config = config
        self._path = path
        self._watches = watches
        self.heard = 0

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._config.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        config = yaml.safe_load(self._config.read_text())
        url = urlsplit(config["clusters"][0]["cluster"]["server"])
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        trust = ssl.create_default_context(cadata=authority)
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        try:
            while True:
                host, port = str(url.hostname), url.port
                query = "?watch=true&resourceVersion=0" if self._watches else ""
                with closing(http.client.HTTPSConnection(host, port, context=trust, timeout=PATIENCE_SECONDS)) as there:
                    there.request("GET", self._path + query, headers=headers)
                    with there.getresponse() as answer:
                        while line := answer.readline():
                            json.loads(line)
                            self.heard += 1
        except (OSError, http.client.HTTPException, ValueError):
            return  # the showing is over


@pytest.mark.parametrize("speed", [1e6, 400, 90], ids=lambda speed: f"speed-{speed:g}")
def test_the_pace_does_not_change_the_day(speed: float) -> None:
    assert live(speed) == unwatched()


@pytest.mark.parametrize("watchers", [0, 3])
def test_watchers_over_http_do_not_change_the_day(watchers: int, tmp_path: Path) -> None:
    config = tmp_path / "config"
    threads = [Watcher(config, path, watches=True) for path in WATCHED[:watchers]]
    threads += [Watcher(config, path, watches=False) for path in READ[:watchers]]
    for thread in threads:
        thread.start()
    assert live(120, config=config) == unwatched()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert thread.heard, thread._path


def test_the_live_view_does_not_change_the_day() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    assert live(200, view=LiveView(console)) == unwatched()


def test_another_seed_makes_another_day() -> None:
    scenario = scenarios.load("webshop")
    showing = Showing(scenario, PlainView(io.StringIO()), length=LENGTH, names=ALL, seed=99)
    assert run_virtual(showing.run(), start=scenario.start).objects != unwatched()[1]
