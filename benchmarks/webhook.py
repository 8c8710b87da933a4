"""The admission webhook under load: reviews per second and latency at 50 concurrent callers, over TLS.

    python benchmarks/webhook.py [--seconds 8] [--concurrency 50] [--vpas 200]

Webhook, API server and callers are processes of their own. Half of the pods belong to a VPA and come back patched, half
belong to none. The baseline answers every review at once without looking, in the same server: what TLS and HTTP cost.
"""

import argparse
import asyncio
import multiprocessing
import random
import resource
import ssl
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp

from kubetide import crds
from kubetide.api.objects.admission import AdmissionReview, review_response
from kubetide.api.values.codec import encode
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_container, make_node, make_pod, make_replica_set, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.admission.webhook import AdmissionController

CLOCK = SystemClock()
LOCALHOST = "127.0.0.1"


def serve_api(pipe: Connection, vpas: int) -> None:
    """Run an API server with VPAs until killed."""

    async def main() -> None:
        api = ApiServer(clock=CLOCK)
        for name in ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"):
            api.insert(crds.load(name))
        api.insert(make_node("node", cpu="64", memory="256Gi"))
        for number in range(vpas):
            name = f"web-{number}"
            api.insert(make_replica_set(name, replicas=2))
            target = {"cpu": "300m", "memory": "256Mi"}
            api.insert(make_vpa(name, target=name, kind="ReplicaSet", recommendation={"main": target}))
        async with serve(api, anonymous=True) as serving:
            pipe.send(serving.url)
            await asyncio.Event().wait()

    asyncio.run(main())


def serve_webhook(pipe: Connection, url: str, idle: bool) -> None:
    """Run the webhook until told to report its memory and stop."""

    async def main() -> None:
        client = Client(
            HttpTransport(Access(server=url, trust=ServerTrust(), credentials=Static())),
            clock=CLOCK,
            rng=random.Random(1),
        )
        settings = AdmissionSettings(
            host=LOCALHOST,
            port=0,
            register_by_url=True,
            webhook_address=LOCALHOST,
            register_delay=timedelta(0),
            tls_cert_file=Path("/nonexistent"),
        )
        controller = AdmissionController(client, CLOCK, settings, Telemetry(), None, random.Random(2))
        if idle:

            async def at_once(review: AdmissionReview) -> dict[str, Any]:
                return review_response(review.request.uid if review.request else "")

            controller.reviewer.review = at_once  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            while not controller.ready():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert controller.server is not None
            assert controller.certificates is not None
            assert controller.certificates.bundle is not None
            cpu = time.process_time()
            pipe.send((controller.server.port, controller.certificates.bundle.trusted))
            while not pipe.poll():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            pipe.send((time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
            task.cancel()
        await client.close()

    asyncio.run(main())


def reviews(vpas: int) -> list[bytes]:
    """Return the bodies to send: pods of VPAs and pods of none, in turn."""
    bodies = []
    for number in range(2 * vpas):
        name = f"web-{number // 2}" if number % 2 else f"other-{number // 2}"
        container = make_container(cpu="100m", memory="128Mi", cpu_limit="200m", memory_limit="256Mi")
        pod = make_pod(f"{name}-x", labels={"app": name}, containers=[container, make_container("side", cpu="10m")])
        if number % 2:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": True}
            pod["metadata"]["ownerReferences"] = [owner]
        request = {
            "uid": str(number),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default",
            "operation": "CREATE",
            "object": pod,
        }
        bodies.append(encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))
    return bodies


async def load(port: int, ca: str, bodies: list[bytes], *, concurrency: int, seconds: float) -> list[float]:
    """Send reviews as fast as answers come; return the latency of each."""
    context = ssl.create_default_context(cadata=ca)
    latencies: list[float] = []
    url = f"https://{LOCALHOST}:{port}/"
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency, ssl=context)) as session:

        async def caller(first: int, end: float) -> None:
            number = first
            while time.perf_counter() < end:
                began = time.perf_counter()
                async with session.post(url, data=bodies[number % len(bodies)], headers=headers) as response:
                    await response.read()
                    assert response.status == 200
                latencies.append(time.perf_counter() - began)
                number += concurrency

        for warm_up in (1.0, seconds):
            latencies.clear()
            end = time.perf_counter() + warm_up
            async with asyncio.TaskGroup() as group:
                for first in range(concurrency):
                    group.create_task(caller(first, end))
    return sorted(latencies)


def measure(url: str, *, idle: bool, vpas: int, concurrency: int, seconds: float) -> tuple[float, float, float, float]:
    """Return reviews per second, p99 in milliseconds, CPU milliseconds per review, and memory of the webhook."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve_webhook, args=(theirs, url, idle), daemon=True)
    process.start()
    port, ca = ours.recv()
    latencies = asyncio.run(load(port, ca, reviews(vpas), concurrency=concurrency, seconds=seconds))
    ours.send("stop")
    cpu, rss = ours.recv()
    process.join(10)
    count = len(latencies)
    total = count * (seconds + 1) / seconds
    return count / seconds, latencies[int(count * 0.99)] * 1000, cpu / total * 1000, rss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--vpas", type=int, default=200)
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve_api, args=(theirs, args.vpas), daemon=True)
    server.start()
    url = ours.recv()
    print(f"webhook over TLS, {args.concurrency} concurrent callers, {args.vpas} VPAs")
    print(f"{'':24}{'reviews/s':>11}{'p99 ms':>9}{'CPU ms/review':>15}{'RSS MB':>8}")
    for name, idle in (("answers at once (baseline)", True), ("reviews pods", False)):
        rate, p99, cpu, rss = measure(
            url, idle=idle, vpas=args.vpas, concurrency=args.concurrency, seconds=args.seconds
        )
        print(f"{name:24}{rate:11.0f}{p99:9.1f}{cpu:15.2f}{rss:8.0f}")
    server.terminate()


if __name__ == "__main__":
    main()
