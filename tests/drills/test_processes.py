"""Processes: one that is frozen and thawed, beside its standby, on a server of its own."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from drills.audit import read
from drills.checker import component
from drills.drill import Run, drill
from drills.existing import module
from drills.test_horizontal import AT_ONCE, external
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.settings import KubeSettings
from kubetide.testing.builders import make_deployment, make_hpa

SCENARIO = """
nodes:
- {name: node, count: 1, cpu: "8", memory: 16Gi}
metrics:
  external:
    queue: {curve: spike, base: 2, peak: 5, begin: 0s, duration: 10s, every: 20s}
"""
"""A queue that asks for two and for five replicas in turn, so that there is something to do at any moment."""
PATIENCE = 180


@drill(
    "frozen-process",
    shows="the leading autoscaler is stopped (SIGSTOP) for two minutes while its standby takes over, and goes on "
    "(SIGCONT)",
    figure="writes of the frozen one after it went on, without the Lease",
    bound=0,
    unit="writes",
    tier="processes, sockets",
    short="25 seconds, more than a Lease lasts",
)
def test_a_process_that_was_frozen_acts_no_more(run: Run) -> float:
    return asyncio.run(_main(run, 120 if run.whole else 25))


async def _main(run: Run, frozen_seconds: float) -> float:
    tools = module("http/test_dry_run_processes.py")
    admin, audit, scenario = run.folder / "admin.kubeconfig", run.folder / "audit", run.folder / "scenario.yaml"
    scenario.write_text(SCENARIO)
    given = ("up", "--port", "0", "--kubeconfig", str(admin), "--sim", str(scenario))
    async with tools.process(*given, "--audit", str(audit), "--audit-level", "Request") as server:
        await tools.line_of(server)
        client, _ = connect(KubeSettings(kubeconfig=admin), clock=SystemClock())
        await tools.create(client, make_deployment("web", replicas=2, cpu="10m", memory="16Mi"))
        await tools.create(client, make_hpa("web", maximum=9, metrics=[external("queue")], behavior=AT_ONCE))
        users = [await _user(client, tools, admin, number, run.folder) for number in (1, 2)]
        command = ("run", "hpa", "--status-port=0", "--sync-period=2s", "--kubeconfig")
        async with tools.process(*command, str(users[0])) as first:
            await _until(lambda: bool(_scales(audit, "kubetide-hpa-1")))
            async with tools.process(*command, str(users[1])):
                await asyncio.sleep(5)
                first.send_signal(signal.SIGSTOP)
                try:
                    began = len(_scales(audit, "kubetide-hpa-2"))
                    await _until(lambda: len(_scales(audit, "kubetide-hpa-2")) > began)
                    await asyncio.sleep(frozen_seconds)
                finally:
                    first.send_signal(signal.SIGCONT)
                before = len(_scales(audit, "kubetide-hpa-1"))
                await asyncio.sleep(15)
                after = len(_scales(audit, "kubetide-hpa-1"))
        await client.close()
    events = read(audit.read_bytes().splitlines())
    assert any(component(event.user) == "hpa" for event in events)
    run.logs.append(events)
    return after - before


async def _user(client: Client, tools: Any, admin: Path, number: int, folder: Path) -> Path:
    """Make a user that may do anything, with a kubeconfig of its own."""
    name = f"kubetide-hpa-{number}"
    create = tools.create
    meta = {"name": name, "namespace": "kube-system"}
    await create(client, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    subject = {"kind": "ServiceAccount", **meta}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    await create(
        client,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [subject],
        },
    )
    path = f"/api/v1/namespaces/kube-system/serviceaccounts/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = msgspec.json.decode((await client.request("POST", path, body=msgspec.json.encode(request))).body)
    made: Path = tools.token_kubeconfig(admin, answer["status"]["token"], folder / f"{name}.kubeconfig")
    return made


def _scales(audit: Path, name: str) -> list[str]:
    """Return the accepted scales of a user so far; the last line may still be on its way."""
    lines = audit.read_bytes().split(b"\n")[:-1] if audit.exists() else []
    found = (json.loads(line) for line in lines if b'"scale"' in line and name.encode() in line)
    return [
        line["requestURI"]
        for line in found
        if line["verb"] in ("update", "patch") and line["responseStatus"]["code"] == 200
    ]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.5)
