"""`kubetide recommend` and `plot` as users call them: every output and layout, every error in one line."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from embedded_server import running
from fake_prometheus import TOKEN, FakePrometheus, serving
from kubetide.api.objects.scheme import DEPLOYMENTS, JOBS
from kubetide.cli.main import run_cli
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.testing.builders import make_deployment, make_job

POD = "web-7d9f8c6b54-x2k7z"


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[str]:
    """Serve a Deployment with usage and a Job without; yield a kubeconfig with a second cluster that is away."""
    async with running() as server:
        client = Client(server.transport(), clock=SystemClock())
        web_server = make_deployment("web", replicas=2, cpu="2", memory="4Gi")
        await client.create(DEPLOYMENTS, web_server, namespace="default")
        await client.create(JOBS, make_job("import", cpu="1"), namespace="default")
        config = yaml.safe_load(server.identity.kubeconfig(server.serving.url))
        here = config["contexts"][0]["context"]
        away = {"name": "away", "cluster": {**config["clusters"][0]["cluster"], "server": "https://127.0.0.1:1"}}
        config["clusters"].append(away)
        config["contexts"] = [
            {"name": "here", "context": here},
            {"name": "there", "context": {**here, "cluster": "away"}},
        ]
        config["current-context"] = "here"
        kubeconfig = folder / "config"
        kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.chmod(0o600)
        try:
            yield str(kubeconfig)
        finally:
            await client.close()


async def test_every_output_and_layout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with cluster(tmp_path) as kubeconfig, serving(FakePrometheus({POD: (0.3, 400 * 2**20)})) as url:

        async def call(*words: str, expected: int = 0) -> str:
            source = ("--prometheus", url, "--prometheus-token", TOKEN)
            assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, *words, *source]) == expected
            return capfd.readouterr().out

        shown = (await call("recommend", "-n", "default")).splitlines()
        assert max(map(len, shown)) <= 80
        assert any("default/web" in line and "2→" in line for line in shown)
        assert "no usage in Prometheus, VPA checkpoints; --watch-for" in " ".join(shown)  # the row of the Job says why
        assert "import" not in await call("recommend", "--kind", "deploy", "-n", "default")
        report = await call("recommend", "-o", "json", "--price", "cpu=0.03,gib=0.004")
        row = next(each for each in json.loads(report)["rows"] if each["name"] == "web")
        assert row["savedMoney"] > 0
        (tmp_path / "old.json").write_text(report)
        assert "0 containers changed" in await call("recommend", "--diff", str(tmp_path / "old.json"))
        assert yaml.safe_load(await call("recommend", "-o", "yaml"))["rows"][0]["name"] == "web"
        assert [each["name"] for each in csv.DictReader(io.StringIO(await call("recommend", "-o", "csv")))] == [
            "web",
            "import",
        ]
        assert "| Deployment default/web |" in await call("recommend", "-o", "markdown")
        assert (await call("recommend", "-o", "html")).startswith("<!doctype html>")
        assert json.loads(await call("recommend", "-o", "sarif"))["version"] == "2.1.0"
        (vpa, _) = yaml.safe_load_all(await call("recommend", "-o", "vpa"))
        assert vpa["spec"]["updatePolicy"] == {"updateMode": "Off"}
        await call("recommend", "--fail-over", "30%", expected=1)
        await call("recommend", "--fail-over", "10000%")
        for layout in ("kubectl", "kustomize", "helm-values"):
            out = str(tmp_path / layout)
            written = await call("recommend", "-o", "patches", "--out", out, "--layout", layout)
            assert "deployment-web.yaml" in written
        repository = tmp_path / "repository"
        repository.mkdir()
        manifest = make_deployment("web", replicas=2, cpu="2", memory="4Gi")
        (repository / "web.yaml").write_text("# ours\n" + yaml.safe_dump(manifest))
        located = json.loads(await call("recommend", "--repo", str(repository), "-o", "sarif"))["runs"][0]["results"]
        assert [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in located] == ["web.yaml"]
        assert "+++ b/web.yaml" in await call("recommend", "--repo", str(repository))
        changed = (repository / "web.yaml").read_text()
        assert changed.startswith("# ours\n")
        sizes = yaml.safe_load(changed)["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        assert sizes["cpu"] == f"{row['recommended']['cpuRequestMillis']}m"
        assert "default/web main: CPU" in await call("plot", "default/web")
        assert (await call("plot", "web", "-o", "svg")).startswith("<svg ")
        for words, said in (
            (("default/web", "--container", "proxy"), "there is no container 'proxy'; there are: main"),
            (("default/web/main",), "default/web/main: is not NAMESPACE/NAME: a container is chosen with --container"),
            (("default/other",), "default/other: there is no such workload"),
        ):
            source = ("--prometheus", url, "--prometheus-token", TOKEN)
            assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, "plot", *words, *source]) == 2
            assert said in capfd.readouterr().err
        assert "</html>" in await call("plot", "web", "-o", "html")


async def test_what_cannot_be_asked_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with cluster(tmp_path) as kubeconfig, serving(FakePrometheus({})) as url:

        async def error(*words: str, expected: int = 1) -> str:
            assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, "recommend", *words]) == expected
            text = capfd.readouterr().err
            assert text.count("\n") == 1
            return text

        wrong = await error("--prometheus", url, "--prometheus-token", "nope")
        assert "check --prometheus-token or --prometheus-user: status 401: <html> <b>Unauthorized" in wrong
        empty = await error("--prometheus", url, "--prometheus-token", TOKEN)
        assert "no series container_memory_working_set_bytes with the labels namespace, pod, container" in empty
        assert "no Service of the cluster is Prometheus" in await error("--prometheus", "auto", expected=2)


async def test_one_of_several_clusters_that_is_away_leaves_the_rows_of_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path) as kubeconfig, serving(FakePrometheus({POD: (0.3, 400 * 2**20)})) as url:
        words = ["--context", "here,there", "recommend", "-o", "json", "--prometheus", url, "--prometheus-token", TOKEN]
        assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, *words]) == 1
        shown = capfd.readouterr()
        assert "there: no rows of this cluster: " in shown.err
        assert {row["cluster"] for row in json.loads(shown.out)["rows"]} == {"here"}
        every = ["recommend", "--all-contexts", *words[3:]]
        assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, *every]) == 1
        again = capfd.readouterr()
        assert "there: no rows of this cluster: " in again.err
        assert json.loads(again.out)["rows"] == json.loads(shown.out)["rows"]
        for one_cluster in (["-o", "vpa"], ["--repo", str(tmp_path)]):
            words = ["--kubeconfig", kubeconfig, "recommend", "--all-contexts", *one_cluster]
            assert await asyncio.to_thread(run_cli, words) == 2
            assert "are for one cluster" in capfd.readouterr().err
        misspelt = ["--context", "here,nowhere", "recommend"]
        assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, *misspelt]) == 2
        assert "there is no context 'nowhere'; there are: here, there" in capfd.readouterr().err
