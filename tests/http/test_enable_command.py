"""`kubetide enable` against the embedded API server: labels, VPAs, exclusions, removal, mistakes in one line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from embedded_server import running
from kubetide import crds
from kubetide.api.objects.scheme import CRDS, DEPLOYMENTS, NAMESPACES, VPAS
from kubetide.cli.main import run_cli
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.testing.builders import make_deployment, make_vpa


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[Client, str]]:
    """Serve two namespaces of one team with workloads; yield a client and the kubeconfig."""
    async with running() as server:
        client = Client(server.transport(), clock=SystemClock())
        await client.create(CRDS, crds.load("verticalpodautoscalers"))
        for name in ("shop", "stock"):
            await client.create(NAMESPACES, {"metadata": {"name": name, "labels": {"team": "shop"}}})
            for workload in ("web", "api"):
                await client.create(DEPLOYMENTS, make_deployment(workload, name, cpu="1"), namespace=name)
        await client.create(VPAS, make_vpa("own", "stock", target="web"), namespace="stock")
        kubeconfig = folder / "config"
        kubeconfig.write_text(server.identity.kubeconfig(server.serving.url))
        kubeconfig.chmod(0o600)
        try:
            yield client, str(kubeconfig)
        finally:
            await client.close()


async def names(client: Client) -> list[str]:
    return sorted(f"{vpa.metadata.namespace}/{vpa.metadata.name}" for vpa in (await client.list(VPAS)).items)


async def test_namespaces_are_enabled_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cluster(tmp_path) as (client, kubeconfig):

        async def enable(*words: str) -> str:
            assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, "enable", *words]) == 0
            return capsys.readouterr().out

        shown = await enable("-l", "team=shop", "--dry-run")
        assert "would create VPA shop/web-deployment" in shown
        assert await names(client) == ["stock/own"]
        shown = await enable("-l", "team=shop")
        assert "stock Deployment web: VPA own aims at it already" in shown
        made = ["shop/api-deployment", "shop/web-deployment", "stock/api-deployment"]
        assert await names(client) == [*made, "stock/own"]
        assert (await client.get(NAMESPACES, "shop")).metadata.labels == {
            "kubernetes.io/metadata.name": "shop",
            "kubetide.io/vpa": "Off",
            "team": "shop",
        }
        policy = tmp_path / "policy.yaml"
        policy.write_text("containerPolicies:\n- containerName: '*'\n  maxAllowed: {cpu: '2'}\n")
        words = ("shop", "--mode", "initial", "--exclude", "deployment/api", "--resource-policy", str(policy))
        assert "would delete VPA shop/api-deployment" in await enable(*words, "--dry-run")
        shown = await enable(*words)
        assert "changed VPA shop/web-deployment" in shown
        assert "deleted VPA shop/api-deployment" in shown
        vpa = await client.get(VPAS, "web-deployment", namespace="shop")
        assert vpa.spec.update_policy is not None
        assert vpa.spec.update_policy.update_mode == "Initial"
        assert vpa.spec.resource_policy is not None
        await enable("shop", "stock", "--remove")
        assert await names(client) == ["stock/own"]
        assert "kubetide.io/vpa" not in ((await client.get(NAMESPACES, "shop")).metadata.labels or {})


@pytest.mark.parametrize(
    "words",
    [
        ["nowhere"],
        [],
        ["shop", "-l", "team=shop"],
        ["-l", "team=none"],
        ["shop", "--exclude", "web"],
        ["shop", "--exclude", "deployment/none"],
        ["shop", "--exclude", "pod/web"],
        ["shop", "--remove", "--exclude", "deployment/web"],
    ],
    ids=lambda words: " ".join(words),
)
async def test_a_mistake_is_one_line(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cluster(tmp_path) as (client, kubeconfig):
        assert await asyncio.to_thread(run_cli, ["--kubeconfig", kubeconfig, "enable", *words]) == 2
        assert "Traceback" not in (error := capsys.readouterr().err)
        assert error.rstrip().count("\n") <= 3  # a mistake in the words comes with the usage
        assert await names(client) == ["stock/own"]
