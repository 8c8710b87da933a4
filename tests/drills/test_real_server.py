"""A real kube-apiserver: its own audit log, judged by the same checker."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from drills.audit import WRITES, read
from drills.drill import Run, drill
from drills.stage import MASTERS
from e2e.controlplane import BinariesMissing, ControlPlane, find_binaries
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files
from kubetide.kube.control.manager import running
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import Meddler

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Request\n"
PATIENCE = 600


@drill(
    "fail-over-real-server",
    shows="the leading autoscaler is cut off from a real kube-apiserver at the moment in which the least count "
    "rises; the "
    "server's own audit log is judged",
    figure="scales beyond the one by its standby",
    bound=0,
    tier="real kube-apiserver and etcd",
)
def test_the_standby_takes_over_on_a_real_server(run: Run) -> float:
    try:
        plane = ControlPlane(find_binaries(), run.folder)
    except BinariesMissing as error:
        pytest.skip(str(error))
    policy, audit = run.folder / "audit-policy.yaml", run.folder / "audit.log"
    policy.write_text(POLICY)
    try:
        plane.start(extra=(f"--audit-policy-file={policy}", f"--audit-log-path={audit}"))
        asyncio.run(_fail_over(plane.kubeconfig))
    finally:
        plane.stop()
    run.logs.append(log := read(audit.read_bytes().splitlines()))
    scales = [event.user for event in log if event.subresource == "scale" and event.verb in WRITES and event.accepted]
    assert scales.count("kubetide-hpa-2") == 1
    return len(scales) - 1


Kubeconfig = Callable[[str, Sequence[str]], Path]


async def _fail_over(kubeconfig: Kubeconfig) -> None:
    clock = SystemClock()
    admin = Client(_transport(kubeconfig, "admin"), clock=clock)
    await admin.create(DEPLOYMENTS, make_deployment("web", replicas=2, cpu="10m"), namespace="default")
    await admin.create(HPAS, make_hpa("web", minimum=2, maximum=9, cpu_percent=50), namespace="default")
    meddlers = []
    async with AsyncExitStack() as stack:
        for number in (1, 2):
            meddler = Meddler(_transport(kubeconfig, f"kubetide-hpa-{number}"))
            client = Client(meddler, clock=clock, rng=Random(number))
            recorder = EventRecorder(client, clock=clock, component="horizontal-pod-autoscaler")
            controller = HpaController(client, clock, HpaSettings(), Telemetry(), recorder, Random(number))
            await stack.enter_async_context(running(controller, recorder))
            meddlers.append((meddler, controller, client))
            async with asyncio.timeout(PATIENCE):
                while not meddlers[0][1].leading:  # noqa: ASYNC110 - leadership has no event
                    await asyncio.sleep(0.2)
        meddlers[0][0].interfere = lambda method, path: ConnectionLost("cut off")
        patch = MergePatch({"spec": {"minReplicas": 4}})
        await admin.patch(HPAS, "web", patch, namespace="default")
        async with asyncio.timeout(PATIENCE):
            while (await admin.get_raw(DEPLOYMENTS, "web", namespace="default"))["spec"]["replicas"] != 4:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
    for _, _, client in meddlers:
        await client.close()
    await admin.close()


def _transport(kubeconfig: Kubeconfig, user: str) -> HttpTransport:
    return HttpTransport(from_files([kubeconfig(user, MASTERS[:1])], clock=SystemClock()))
