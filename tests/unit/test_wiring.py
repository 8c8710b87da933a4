"""What components are given follows from their settings."""

from pathlib import Path

import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import InvalidInput, Unavailable
from kubetide.hpa.settings import HpaSettings
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.prometheus import PrometheusHttp
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.wiring import Dependencies, build
from simulated.cluster import run

URL = "https://127.0.0.1:1"


def test_a_certificate_of_prometheus_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    async def main(cluster: SimCluster) -> None:
        client = cluster.client()
        world = Dependencies(client=client, clock=cluster.clock, telemetry=Telemetry(), rng=client.rng)
        with pytest.raises(InvalidInput, match="hpa-prometheus-ca-file"):
            build("hpa", world, HpaSettings(prometheus=URL, prometheus_ca_file=str(tmp_path / "ca.crt")))
        assert len(build("hpa", world, HpaSettings(prometheus=URL))) == 2

    run(main, nodes=1)


async def test_a_token_that_cannot_be_read_counts_as_silence(tmp_path: Path) -> None:
    settings = RecommenderSettings(prometheus_address=URL, prometheus_bearer_token_file=str(tmp_path / "token"))
    with pytest.raises(Unavailable, match="token"):
        await PrometheusHttp(settings, Telemetry(), SystemClock()).post("/api/v1/query", {})
