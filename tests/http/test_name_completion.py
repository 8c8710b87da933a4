"""The shell completes names of objects, from the cluster of the current context, and is silent where it cannot."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from embedded_server import running
from kubetide.api.objects.scheme import HPAS, NODES
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client

PATIENCE = 60


async def completed(shell: str, kubeconfig: str, *words: str) -> list[str]:
    """Ask as the script of a shell asks; return the values that are offered."""
    typed = ["kubetide", *words]
    position = words[-1] if shell == "fish" else str(len(typed) - 1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubetide"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "_KUBETIDE_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": " ".join(typed),
            "COMP_CWORD": position,
            "KUBECONFIG": kubeconfig,
        },
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert err == b"", "a completion never complains"
    lines = [line for line in out.decode().splitlines() if line]
    if shell == "zsh":
        return lines[1::3]
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


async def test_names_come_from_the_cluster(tmp_path: Path) -> None:
    async with running() as server:
        client = Client(server.transport(), clock=SystemClock())
        await client.request("POST", "/api/v1/namespaces", body=b'{"metadata": {"name": "shop"}}')
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec = {"scaleTargetRef": target, "maxReplicas": 3}
        for namespace, name in (("default", "web"), ("default", "worker"), ("shop", "wine"), ("shop", "cart")):
            await client.create(HPAS, {"metadata": {"name": name}, "spec": spec}, namespace=namespace)
        await client.create(NODES, {"metadata": {"name": "node-1"}})
        await client.close()
        path = tmp_path / "config"
        path.write_text(server.identity.kubeconfig(server.serving.url))
        path.chmod(0o600)
        config = str(path)
        for shell in ("bash", "zsh", "fish"):
            assert await completed(shell, config, "explain", "hpa", "w") == ["web", "worker"]
        assert await completed("bash", config, "explain", "hpa", "shop/") == ["shop/cart", "shop/wine"]
        assert await completed("bash", config, "explain", "hpa", "s") == ["shop/cart", "shop/wine"]
        assert await completed("bash", config, "-n", "shop", "explain", "hpa", "w") == ["wine"]
        assert await completed("bash", config, "explain", "-n", "shop", "hpa", "w") == ["wine"]
        assert await completed("bash", config, "explain", "node", "n") == ["node-1"]
        assert await completed("bash", config, "node", "status", "--node", "n") == ["node-1"]
        assert await completed("bash", config, "explain", "-n", "sh") == ["shop"]
        assert await completed("bash", config, "explain", "vpa", "w") == [], "no such kind in this cluster"


@pytest.mark.parametrize("content", ["not: [a kubeconfig", "{}", None])
async def test_without_a_cluster_nothing_is_offered(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    assert await completed("bash", str(path), "explain", "hpa", "w") == []


async def test_a_cluster_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """The server takes connections and says nothing; the shell gets its prompt back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = tmp_path / "config"
        path.write_text(
            f'clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{server.getsockname()[1]}"}}}}]\nusers: []\n'
            "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
        )
        path.chmod(0o600)
        assert await completed("bash", str(path), "explain", "hpa", "w") == []
        server.settimeout(1)
        server.accept()[0].close()  # it was asked
