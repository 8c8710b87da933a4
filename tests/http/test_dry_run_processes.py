"""Dry runs as processes, with a token that may only read: the server's own audit log has not one write of theirs."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubetide.api.objects.scheme import HPAS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.install.objects import dry_run_manifests
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.errors import AlreadyExists
from kubetide.kube.client.settings import KubeSettings
from kubetide.testing.builders import make_deployment, make_hpa

PATIENCE = 180
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
}


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubetide", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "POD_NAME": ""},
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            await started.communicate()


async def line_of(started: asyncio.subprocess.Process) -> str:
    assert started.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = await started.stdout.readline()
    assert line, f"it ended with {started.returncode}"
    return line.decode()


async def create(client: Client, body: dict[str, Any]) -> None:
    try:
        await client.request("POST", COLLECTIONS[body["kind"]], body=msgspec.json.encode(body))
    except AlreadyExists:
        return


async def onlooker(client: Client, admin: Path, component: str, folder: Path) -> Path:
    """Make what the manifests of a dry run describe, and a kubeconfig with a token of its service account."""
    for each in dry_run_manifests((component,), namespace="kube-system", image="x"):
        if each["kind"] not in ("Deployment", "DaemonSet"):
            await create(client, each)
    account = f"kubetide-{component}-dry-run"
    path = f"{COLLECTIONS['ServiceAccount']}/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = msgspec.json.decode((await client.request("POST", path, body=msgspec.json.encode(request))).body)
    return token_kubeconfig(admin, answer["status"]["token"], folder / f"{component}.kubeconfig")


def token_kubeconfig(admin: Path, token: str, made: Path) -> Path:
    """Write a kubeconfig that differs from the administrator's in who it is."""
    config = yaml.safe_load(admin.read_text())
    config["users"][0]["user"] = {"token": token}
    made.write_text(yaml.safe_dump(config))
    made.chmod(0o600)
    return made


@pytest.mark.parametrize("flag", ["--dry-run", "--compare"])
async def test_not_one_write_reaches_the_server(flag: str, tmp_path: Path) -> None:
    admin, audit = tmp_path / "admin.kubeconfig", tmp_path / "audit"
    async with process("up", "--port", "0", "--kubeconfig", str(admin), "--audit", str(audit)) as server:
        await line_of(server)
        client, _ = connect(KubeSettings(kubeconfig=admin), clock=SystemClock())
        await create(client, make_deployment("web", replicas=1, cpu="100m", memory="64Mi"))
        await create(client, make_hpa("web", minimum=3, maximum=5, cpu_percent=50))
        status = MergePatch({"status": {"desiredReplicas": 1, "currentReplicas": 1}})
        await client.patch(HPAS, "web", status, namespace="default", subresource="status")
        kubeconfig = await onlooker(client, admin, "hpa", tmp_path)
        given = ("run", "hpa", flag, "-o", "json", "--status-port=0", "--sync-period=1s", "--kubeconfig")
        async with process(*given, str(kubeconfig)) as looking:
            told = json.loads(await line_of(looking))
        if flag == "--dry-run":
            assert told["action"] == "scale"
            assert told["changes"] == [{"field": "replicas", "from": 1, "to": 3}]
        else:
            assert told["object"] == "HorizontalPodAutoscaler default/web"
            assert told["kubetide"] == "wants 3"
        leases = await client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
        assert b"kubetide-hpa" not in leases.body, "no Lease is taken"
        await client.close()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    theirs = [line for line in lines if "dry-run" in line["user"]["username"]]
    assert theirs, "it did ask"
    assert [line for line in theirs if line["verb"] not in ("get", "list", "watch")] == []
