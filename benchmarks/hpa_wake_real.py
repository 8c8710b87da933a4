"""From load step to scale on a real API server: `python -m benchmarks.hpa_wake_real [--autoscalers 100] [--at-once]`.

    --way watched     agents stream windows of 5 s to `kubetide run metrics`; `kubetide run hpa --hpa-watch-usage`
    --way polled      samples of `--scrape` seconds, as a metrics-server hands them on; `kubetide run hpa` as it comes
    --way upstream    the same samples; the autoscaler of kube-controller-manager with its defaults

etcd, kube-apiserver, the autoscaler and the metrics server are processes of their own on this machine; so are the
agents, one process for all of them, with a stream each over TLS. Deployments have one pod each, which nobody runs and
nobody adds to: what counts is the write of `/scale`, as a watch of the Deployments sees it. One percent of the
autoscalers steps each second, or with `--at-once` all at the same moment. Times are from the step, and from the end of
the first window above the band. `upstream` may send as many requests as it likes (`--kube-api-qps`): with its default
of 20 a second its own limiter would be all that is measured.

To make thousands of objects takes minutes: `--filled FOLDER` keeps etcd with them there, for the next run.

The binaries are looked for as by the tests (`tests/e2e/controlplane.py`).
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import re
import shutil
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e.aggregated import free_port, serving
from e2e.controlplane import ControlPlane, connected, find_binaries
from e2e.metrics_server import MetricsServer
from e2e.programs import KUBETIDE, program
from kubetide.api.objects.sample_frames import (
    STREAM_AUDIENCE,
    STREAM_PATH,
    STREAM_PROTOCOL,
    Frame,
    PodName,
    PodSample,
    UsageSample,
    encode_frame,
)
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, NODES, PODS
from kubetide.api.values.codec import decode_raw, encode
from kubetide.api.values.patch import MergePatch
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.testing.builders import make_deployment, make_hpa

CALM, BUSY, ABOVE = 0.1, 0.19, 0.111
"""Cores before and after a step, and the edge of the band: targets are half of 200m, with a tolerance of a tenth.

Usage counts in whole percents of the requests (and in millicores, rounded up), so that 55 % are the last within."""
TOLERATED = 0.11
"""Beyond this and up to the edge, usage is past the tolerance by less than a percent, and nobody may act on it."""
AGENT_WINDOW = 5.0
PODS_PER_NODE = 20
LABEL = re.compile(r'(\w+)="([^"]*)"')
LONG_AGO = "2020-01-01T00:00:00Z"
PATIENCE = 150.0
"""Seconds that autoscalers get after the last step."""


Sent = tuple[dict[int, float], set[int]]
"""What agents know at the end: `above` and `nearly` of their load."""


@dataclass
class Load:
    """Which pod uses how much when: `calm` cores until it steps, `busy` from then on."""

    pods: int
    seed: int = 1
    began: float = float("inf")
    """When the first ones step, by the clock of this machine; not known at first."""
    each_second: int = 1
    above: dict[int, float] = field(default_factory=dict)
    """When the first window of a pod above the band ended."""
    nearly: set[int] = field(default_factory=set)
    """Pods that had a window before it that was past the tolerance by less than a percent."""

    def __post_init__(self) -> None:
        order = random.Random(self.seed).sample(range(self.pods), self.pods)
        self._place = {pod: place for place, pod in enumerate(order)}

    def steps_at(self, pod: int) -> float:
        """Return when a pod steps."""
        return self.began + self._place[pod] // self.each_second

    def mean(self, pod: int, end: float, window: float) -> float:
        """Return what a pod used over a window, and note the first one above the band."""
        busy = min(max(end - self.steps_at(pod), 0.0), window) / window if self.began < float("inf") else 0.0
        # A little noise, so that a sample is never the same as the last one.
        cores = (CALM + (BUSY - CALM) * busy) * (1 + 0.004 * ((pod + int(end)) % 7 - 3))
        if cores > ABOVE:
            self.above.setdefault(pod, end)
        elif cores > TOLERATED:
            self.nearly.add(pod)
        return cores

    @property
    def last(self) -> float:
        """When the last one steps."""
        return self.began + (self.pods - 1) // self.each_second


def name_of(pod: int) -> str:
    """Return the name of a workload and its pod."""
    return f"web-{pod}"


# ---- agents


def be_the_agents(pipe: Connection, port: int, tokens: list[str], uids: list[str]) -> None:
    """Stream a window every five seconds for each node; told through the pipe when to step, and when to end."""
    load = Load(len(uids))

    async def agent(session: aiohttp.ClientSession, node: int, offset: float) -> None:
        own = list(range(node * PODS_PER_NODE, min((node + 1) * PODS_PER_NODE, len(uids))))
        headers = {"Authorization": f"Bearer {tokens[node]}"}
        url = f"https://127.0.0.1:{port}{STREAM_PATH}"
        while True:
            with suppress(aiohttp.ClientError, ConnectionError):
                async with session.ws_connect(url, headers=headers, protocols=(STREAM_PROTOCOL,)) as stream:
                    named = tuple(
                        PodName(slot, uids[pod], "default", name_of(pod), ("main",)) for slot, pod in enumerate(own)
                    )
                    for sequence in range(10**9):
                        now = time.time()
                        await asyncio.sleep(AGENT_WINDOW - (now - offset) % AGENT_WINDOW)
                        end = time.time()
                        samples = tuple(
                            PodSample(slot, (UsageSample(int(load.mean(pod, end, AGENT_WINDOW) * 1e9), 2**24),))
                            for slot, pod in enumerate(own)
                        )
                        frame = Frame(
                            version=1,
                            sequence=sequence,
                            at=end,
                            sent=time.time(),
                            window=AGENT_WINDOW,
                            node=UsageSample(10**9, 2**30),
                            named=named if sequence == 0 else (),
                            pods=samples,
                        )
                        await stream.send_bytes(encode_frame(frame))
            await asyncio.sleep(1)

    async def main() -> None:
        blind = ssl.create_default_context()
        blind.check_hostname = False
        blind.verify_mode = ssl.CERT_NONE
        connector = aiohttp.TCPConnector(ssl=blind, limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            phases = random.Random(2)
            tasks = [
                group.create_task(agent(session, node, phases.uniform(0, AGENT_WINDOW))) for node in range(len(tokens))
            ]
            load.began, load.each_second = await asyncio.to_thread(pipe.recv)
            await asyncio.to_thread(pipe.recv)
            pipe.send((load.above, load.nearly))
            for task in tasks:
                task.cancel()

    with suppress(asyncio.CancelledError):
        asyncio.run(main())


@asynccontextmanager
async def agents(
    plane: ControlPlane, folder: Path, client: Client, uids: list[str]
) -> AsyncIterator[tuple[Callable[[Load], None], Callable[[], Awaitable[Sent]], dict[str, int]]]:
    """Run the metrics server and the agents; gives who tells them when to step, and who asks what they sent."""
    nodes = -(-len(uids) // PODS_PER_NODE)
    with serving(plane, folder, port := free_port(), resolution="30s") as (log, process):
        tokens = await many(_token(client, f"n-{node}") for node in range(nodes))
        ours, theirs = multiprocessing.Pipe()
        sender = multiprocessing.get_context("spawn").Process(
            target=be_the_agents, args=(theirs, port, tokens, uids), daemon=True
        )
        sender.start()
        await until(lambda: usage_of(client, len(uids)), log)

        async def end() -> Sent:
            ours.send("end")
            found: Sent = await asyncio.to_thread(ours.recv)
            return found

        try:
            yield lambda load: ours.send((load.began, load.each_second)), end, {"metrics server": process.pid}
        finally:
            sender.terminate()
            sender.join()


async def _token(client: Client, node: str) -> str:
    """Return a token of an agent that is bound to its node."""
    bound = {"apiVersion": "v1", "kind": "Node", "name": node}
    uid = (await client.get_raw(NODES, node))["metadata"]["uid"]
    spec = {"audiences": [STREAM_AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": {**bound, "uid": uid}}
    body = encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    path = "/api/v1/namespaces/kube-system/serviceaccounts/kubetide-node/token"
    token: str = decode_raw((await client.request("POST", path, body=body)).body)["status"]["token"]
    return token


# ---- a pipeline like that of a metrics-server


class Scraped(MetricsServer):
    """Serves the usage of the last whole `window` of seconds, the same for everybody until the next."""

    def __init__(self, load: Load, window: float) -> None:
        super().__init__()
        self._load = load
        self._window = window
        self._phase = time.time()
        self._scraped = -1.0
        self._items: list[bytes] = []

    async def _handle(self, request: web.Request) -> web.Response:
        if not request.path.endswith("/pods"):
            return await super()._handle(request)
        end = self._phase + (time.time() - self._phase) // self._window * self._window
        if end != self._scraped:
            self._scraped, self._items = end, [self._item(pod, end) for pod in range(self._load.pods)]
        selector = request.query.get("labelSelector", "")
        chosen = [self._items[int(selector.rpartition("-")[2])]] if selector else self._items
        head = b'{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":['
        return web.Response(body=head + b",".join(chosen) + b"]}", content_type="application/json")

    def _item(self, pod: int, end: float) -> bytes:
        name = name_of(pod)
        cores = self._load.mean(pod, end, self._window)
        return msgspec.json.encode(
            {
                "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end)),
                "window": f"{self._window:g}s",
                "containers": [{"name": "main", "usage": {"cpu": f"{int(cores * 1e9)}n", "memory": "16Mi"}}],
            }
        )


# ---- the cluster


async def many(work: Iterable[Awaitable[Any]], at_once: int = 16) -> list[Any]:
    """Do all of it, so many at once."""
    free = asyncio.Semaphore(at_once)

    async def one(what: Awaitable[Any]) -> Any:
        async with free:
            return await what

    return await asyncio.gather(*(one(what) for what in work))


async def fill(client: Client, count: int) -> list[str]:
    """Make nodes, and a Deployment, a pod and an autoscaler for each number; return the uids of the pods."""

    async def one(number: int) -> str:
        name = name_of(number)
        await client.create(DEPLOYMENTS, make_deployment(name, replicas=1, cpu="200m"), namespace="default")
        resources = {"requests": {"cpu": "200m"}}
        spec = {
            "nodeName": f"n-{number // PODS_PER_NODE}",
            "containers": [{"name": "main", "image": "x", "resources": resources}],
        }
        meta = {"name": name, "labels": {"app": name}}
        made = await client.create(PODS, {"metadata": meta, "spec": spec}, namespace="default")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}
        status = {"status": {"phase": "Running", "startTime": LONG_AGO, "conditions": [ready]}}
        await client.patch(PODS, name, MergePatch(status), namespace="default", subresource="status")
        hpa = make_hpa(name, target=name, minimum=1, maximum=3, cpu_percent=50)
        await client.create(HPAS, hpa, namespace="default")
        return made.metadata.uid

    nodes = -(-count // PODS_PER_NODE)
    await many(client.create(NODES, {"metadata": {"name": f"n-{node}"}}) for node in range(nodes))
    return await many(one(number) for number in range(count))


def end_of(log: Path) -> str:
    """Return the last lines of a log."""
    return log.read_text(errors="replace")[-3000:]


async def until(wanted: Callable[[], Awaitable[bool]], log: Path, seconds: float = 240.0) -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(seconds):
            while not await wanted():  # noqa: ASYNC110 - other processes have no event of ours
                await asyncio.sleep(1)
    except TimeoutError:
        sys.exit(f"it did not come to it; the last of the log:\n{end_of(log)}")


async def usage_of(client: Client, count: int) -> bool:
    """Return whether the metrics API knows all pods."""
    with suppress(KubetideError):
        answer = await client.request("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")
        return len(decode_raw(answer.body)["items"]) == count
    return False


async def measured(client: Client) -> bool:
    """Return whether every autoscaler has seen its metric."""
    listed = await client.list(HPAS, namespace="default")
    return all(hpa.status.current_metrics for hpa in listed.items)


async def follow(client: Client, scaled: dict[str, float]) -> None:
    """Note when a Deployment is first seen with more than one replica, until cancelled."""
    version = (await client.list(DEPLOYMENTS, namespace="default")).resource_version
    while True:
        with suppress(KubetideError):
            async for event in client.watch(DEPLOYMENTS, namespace="default", resource_version=version):
                version = event.object.metadata.resource_version or version
                if (event.object.spec.replicas or 0) > 1:
                    scaled.setdefault(event.key.name, time.time())


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shown(times: Iterable[float]) -> str:
    """Return the median, the 99th percentile and the last in words."""
    ordered = sorted(times)
    if not ordered:
        return "none"
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"p50 {ordered[len(ordered) // 2]:.1f} s, p99 {p99:.1f} s, last {ordered[-1]:.1f} s"


async def requests_of(client: Client) -> Counter[str]:
    """Return how many requests kube-apiserver has answered, by verb and resource."""
    found = Counter[str]()
    for line in (await client.request("GET", "/metrics")).body.decode().splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(LABEL.findall(line))
            what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            found[f"{labels['verb']} {what}"] += int(float(line.rpartition(" ")[2]))
    return found


async def measure(plane: ControlPlane, folder: Path, uids: list[str], chosen: argparse.Namespace) -> None:
    """Let all autoscalers step, and print how long it took."""
    count, way = chosen.autoscalers, chosen.way
    load = Load(count, each_second=count if chosen.at_once else max(1, count // 100))
    flags = (f"--concurrent-horizontal-pod-autoscaler-syncs={chosen.workers}",) if chosen.workers else ()
    async with connected(plane, "admin") as client:
        if way == "watched":
            async with agents(plane, folder, client, uids) as (tell, end, pids):
                await contest(plane, folder, client, load, way, flags, tell=tell, pids=pids, end=end)
        else:
            async with Scraped(load, chosen.scrape).serving(client):
                await until(lambda: usage_of(client, count), folder / "kube-apiserver.log")
                await contest(plane, folder, client, load, way, flags)


async def contest(
    plane: ControlPlane,
    folder: Path,
    client: Client,
    load: Load,
    way: str,
    flags: tuple[str, ...],
    *,
    tell: Callable[[Load], None] | None = None,
    end: Callable[[], Awaitable[Sent]] | None = None,
    pids: dict[str, int] | None = None,
) -> None:
    """Start the autoscaler, step, and print."""
    log, pids, scaled = folder / "autoscaler.log", dict(pids or {}), dict[str, float]()
    config = plane.kubeconfig()
    ours = (*KUBETIDE, "run", "hpa", f"--kubeconfig={config}", "--leader-elect=false", "--listen=127.0.0.1:0")
    with ExitStack() as stack:
        if way == "upstream":
            qps = ("--kube-api-qps=2000", "--kube-api-burst=4000")
            only = "--controllers=horizontal-pod-autoscaler-controller"
            plane.start_controller_manager(extra=(only, *qps, *flags))
            pids["autoscaler"] = plane._processes["kube-controller-manager"].pid
            log = folder / "plane" / "kube-controller-manager.log"
        else:
            flags = (*flags, "--take-over", *(("--hpa-watch-usage",) if way == "watched" else ()))
            pids["autoscaler"] = stack.enter_context(program(log, *ours, *flags)).pid
        pids.update({name: plane._processes[name].pid for name in ("kube-apiserver", "etcd")})
        await until(lambda: measured(client), log)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow(client, scaled))
            await asyncio.sleep(20)
            assert not scaled, "nothing has stepped yet"
            used, asked = {name: cpu_of(pid) for name, pid in pids.items()}, await requests_of(client)
            load.began = time.time() + 3
            if tell is not None:
                tell(load)
            give_up = load.last + PATIENCE
            while len(scaled) < load.pods and time.time() < give_up:  # noqa: ASYNC110 - a watch fills it
                await asyncio.sleep(0.5)
            took, busy = time.time() - load.began, os.getloadavg()
            following.cancel()
        spent = ", ".join(f"{name} {cpu_of(pid) - used[name]:.1f} s" for name, pid in pids.items())
        asked = await requests_of(client) - asked
    above, nearly = (load.above, load.nearly) if end is None else await end()
    places = {name_of(pod): pod for pod in range(load.pods)}
    steps = [at - load.steps_at(places[name]) for name, at in scaled.items()]
    samples = [at - above[places[name]] for name, at in scaled.items() if places[name] in above]
    how = "all at once" if load.each_second == load.pods else f"{load.each_second} a second"
    print(f"{load.pods} autoscalers, {way}, {how}: step to /scale {shown(steps)}")
    print(f"  first sample to /scale {shown(samples)}; {len(scaled)} scaled, {load.pods - len(scaled)} did not")
    print(f"  {len(nearly)} had a sample before it that was past the tolerance by less than a percent")
    print(f"  CPU in these {took:.0f} s: {spent}")
    print(f"  load of the machine {busy[0]:.1f} (of five minutes: {busy[1]:.1f}) on {os.cpu_count()} cores")
    shares = (f"{name} {number}" for name, number in asked.most_common() if number > took)
    print(f"  requests to kube-apiserver: {', '.join(shares)}", flush=True)


def filled(plane: ControlPlane, count: int, kept: Path | None) -> list[str]:
    """Start a control plane with everything in it, from `kept` if it is there; return the uids of the pods."""
    etcd = plane.folder / "etcd"
    if kept is not None and kept.exists():
        shutil.copytree(kept, etcd, dirs_exist_ok=True)
        plane.start()
        return asyncio.run(uids_of(plane, count))
    plane.start()
    began = time.monotonic()
    uids = asyncio.run(made(plane, count))
    print(f"{count} autoscalers made in {time.monotonic() - began:.0f} s", flush=True)
    if kept is not None:
        plane.stop()
        shutil.copytree(etcd, kept)
        plane.start()
    return uids


async def made(plane: ControlPlane, count: int) -> list[str]:
    """Make everything; return the uids of the pods."""
    async with connected(plane, "admin") as client:
        return await fill(client, count)


async def uids_of(plane: ControlPlane, count: int) -> list[str]:
    """Return the uids of the pods that are there."""
    async with connected(plane, "admin") as client:
        found = {pod.metadata.name: pod.metadata.uid for pod in (await client.list(PODS, namespace="default")).items}
    return [found[name_of(pod)] for pod in range(count)]


def main() -> None:
    """Measure one way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autoscalers", type=int, default=100)
    parser.add_argument("--way", choices=("watched", "polled", "upstream"), default="watched")
    parser.add_argument("--at-once", action="store_true", help="all step at the same moment")
    parser.add_argument("--workers", type=int, default=0, help="autoscalers evaluated at once; 0 for the default")
    parser.add_argument("--scrape", type=float, default=15.0, help="seconds of a sample where none is streamed")
    parser.add_argument("--filled", type=Path, help="where etcd is kept with all objects, by their number")
    chosen = parser.parse_args()
    kept = None if chosen.filled is None else chosen.filled / str(chosen.autoscalers)
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(find_binaries(), Path(folder) / "plane")
        try:
            uids = filled(plane, chosen.autoscalers, kept)
            asyncio.run(measure(plane, Path(folder), uids, chosen))
        finally:
            plane.stop()


if __name__ == "__main__":
    main()
