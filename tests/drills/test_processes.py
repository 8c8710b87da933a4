"""Processes on a server of their own: one that is frozen and thawed beside its standby, and upstream's recommender."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from drills.audit import WRITES, Event, read
from drills.checker import component
from drills.drill import Run, drill, needs
from drills.existing import module
from drills.test_horizontal import AT_ONCE, external
from e2e.controlplane import find_program
from kubetide.api.objects.scheme import VPAS
from kubetide.api.values.quantity import parse_quantity
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.settings import KubeSettings
from kubetide.testing.builders import make_deployment, make_hpa, make_vpa

Raw = dict[str, Any]
SCENARIO = """
nodes:
- {name: node, count: 1, cpu: "8", memory: 16Gi}
metrics:
  external:
    queue: {curve: spike, base: 2, peak: 5, begin: 0s, duration: 10s, every: 20s}
"""
"""A queue that asks for two and for five replicas in turn, so that there is something to do at any moment."""
PATIENCE = 600


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
        users = [await _user(client, tools, admin, f"kubetide-hpa-{number}", run.folder) for number in (1, 2)]
        command = ("run", "hpa", "--status-port=0", "--sync-period=2s", "--kubeconfig")
        async with tools.process(*command, str(users[0])) as first:
            await _until(lambda: _scales(audit, "kubetide-hpa-1") > 0)
            async with tools.process(*command, str(users[1])):
                await asyncio.sleep(5)
                first.send_signal(signal.SIGSTOP)
                try:
                    began = _scales(audit, "kubetide-hpa-2")
                    await _until(lambda: _scales(audit, "kubetide-hpa-2") > began)
                    await asyncio.sleep(frozen_seconds)
                finally:
                    thawed = SystemClock().now()
                    first.send_signal(signal.SIGCONT)
                # It has gone on as soon as it asks for anything, at the latest for the Lease.
                await _until(lambda: any(event.user.endswith("-1") for event in _log(audit) if event.at > thawed))
                await asyncio.sleep(15)
        await client.close()
    events = _log(audit)
    run.logs.append(events)
    return _without_lease(events, "kubetide-hpa-1", since=thawed)


def _without_lease(events: list[Event], name: str, *, since: datetime) -> int:
    """Return how many scales a replica wrote although the last one to write the Lease was another."""
    holder, found = "", 0
    for event in events:
        if not event.accepted or event.verb not in WRITES or component(event.user) != "hpa":
            continue
        if event.resource == "leases":
            holder = event.user
        elif event.subresource == "scale" and event.at >= since and event.user.endswith(name):
            found += not holder.endswith(name)
    return found


async def _user(client: Client, tools: Any, admin: Path, name: str, folder: Path) -> Path:
    """Make a user that may do anything, with a kubeconfig of its own."""
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


@drill(
    "migration-real-recommender",
    shows="upstream's own recommender, kubetide's and upstream's again, each started beside the one before, which then "
    "stops: who waits for the Lease takes over statuses and checkpoints",
    figure="largest change of a target for constant memory by a hand-over",
    bound=6,
    unit="%",
    tier="processes, sockets, upstream's vpa-recommender 1.7",
)
def test_the_recommender_of_upstream_hands_over_and_takes_back(run: Run) -> float:
    original = find_program("vpa-recommender")
    needs(original is not None, "no vpa-recommender 1.7: put upstream's program into ~/.cache/kubetide/envtest")
    return asyncio.run(_there_and_back(run, str(original)))


async def _there_and_back(run: Run, original: str) -> float:
    tools, upstream = module("http/test_dry_run_processes.py"), module("e2e/test_upstream_recommender.py")
    audit, scenario = run.folder / "audit", run.folder / "scenario.yaml"
    scenario.write_text(upstream.SCENARIO)
    flags = (f"--sim={scenario}", f"--audit={audit}", "--audit-level=Request")
    async with upstream.embedded(run.folder, *flags) as (client, admin):
        for name in upstream.WORKLOADS:
            await client.create(VPAS, make_vpa(name, target=name, mode="Off"), namespace="default")
        user = await _user(client, tools, admin, "kubetide-recommender-1", run.folder)
        given = ("--recommender-interval=2s", "--leader-elect=true", "--address=127.0.0.1:0")
        theirs = (original, *given, f"--kubeconfig={admin}")
        ours = (*upstream.KUBETIDE, "run", "recommender", *given, f"--kubeconfig={user}")
        observer = upstream.Observer(client)

        async def counted() -> int:
            saved = (await observer.checkpoints()).get("steady", {})
            return int(saved.get("totalSamplesCount") or 0)

        async def known(samples: int) -> bool:
            return len(await observer.targets()) == 2 and await counted() >= samples

        longest = 0.0
        processes: list[subprocess.Popen[str]] = []
        async with AsyncExitStack() as stack:
            for turn, command in enumerate((theirs, ours, theirs)):
                log, before = run.folder / f"{turn}.log", await observer.targets()
                running = stack.enter_context(upstream.program(log, *command))
                if turn:
                    await asyncio.sleep(5)
                    processes[-1].terminate()
                processes.append(running)
                await upstream.until(partial(known, await counted() + 6), log)
                after = await observer.targets()
                longest = max(longest, _moved(before, after))
    run.logs.append(_log(audit))
    return longest


def _moved(before: Raw, after: Raw) -> float:
    """Return by how many percent the memory of the workload with constant memory has moved; 0 if it is the first."""
    if "steady" not in before:
        return 0.0
    old, new = (float(parse_quantity(each["steady"]["memory"]).value) for each in (before, after))
    return 100 * abs(new - old) / old


def _log(audit: Path) -> list[Event]:
    """Return what was asked for so far; the last line may still be on its way."""
    return read(audit.read_bytes().split(b"\n")[:-1] if audit.exists() else ())


def _scales(audit: Path, name: str) -> int:
    """Return how many scales of a user were accepted so far."""
    scales = (event for event in _log(audit) if event.subresource == "scale" and event.verb in WRITES)
    return sum(event.accepted and event.user.endswith(name) for event in scales)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.5)
