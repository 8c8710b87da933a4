"""What each component of an installation takes: CPU and memory as processes, by the size of the cluster.

    python -m benchmarks.footprint [--workloads 0 500 2000] [--seconds 90] [--components slo metrics]

A cluster in a process of its own: workloads of ten pods (8 KB each, as real ones), each with an HPA and a VPA, a node
for every twenty pods, and usage that is new every fifteen seconds; over TLS. Every node has an agent that reports each
minute and a kubelet that the metrics server scrapes, and `--creations` pods a second are shown to both webhooks. All
components run at once as `kubetide run` does in their pods, with their defaults. The kernel counts CPU after the first
loops, and resident memory at most. With shorter periods (`--report-seconds 2 --resolution 1`) a few nodes make the work
of many. Printed for each size, then as a rule: a base and so much per 1,000 pods, by least
squares.
"""

import argparse
import asyncio
import multiprocessing
import ssl
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web
from benchmarks.beside import free_port, process, samples, spent, wait_for, write_kubeconfig
from benchmarks.hpa_round import Usage

from kubetide import crds
from kubetide.api.values.codec import encode
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.testing.builders import make_deployment, make_hpa, make_vpa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from simulated.large_objects import pod as large_pod

Raw = dict[str, Any]
EACH, PODS_PER_NODE, NAMESPACES = 10, 20, 50
COMPONENTS: dict[str, tuple[str, ...]] = {
    "hpa": ("--take-over",),
    "recommender": (),
    "updater": (),
    "admission": ("--register-webhook=false",),
    "policy": (),
    "slo": (),
    "colocation": ("--register-webhook=false",),
    "metrics": ("--register-apiservices=false", "--kubelet-use-node-status-port", "--kubelet-insecure-tls"),
}
WEBHOOKS = {"admission": "/", "colocation": "/mutate-pod"}
NODES = "kubetide_metrics_nodes"
Reports = dict[str, list[Raw]]
"""Usage of the pods of every node."""


def fill(api: ApiServer, workloads: int, kubelet_port: int) -> Reports:
    """Put workloads, their pods and autoscalers, nodes and their reports into the store; return the reports."""
    for crd in crds.load_all():
        api.insert(crd)
    labels = {"kubetide.io/vpa": "Off"}
    for name in ("koordinator-system", *(f"team-{number}" for number in range(NAMESPACES))):
        api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    settings = {"colocation-config": '{"enable": true, "degradeTimeMinutes": 600}'}
    where = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    api.insert({"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": settings})
    spec = {"namespaceSelector": {"matchLabels": labels}, "labels": {"tier": "batch"}, "qosClass": "BE"}
    kind = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    api.insert({**kind, "metadata": {"name": "batch"}, "spec": spec})
    usage, rng = Usage(api.clock.now), Random(1)
    reports: dict[str, list[Raw]] = {}
    for number in range(workloads):
        _workload(api, number, usage, rng, reports)
    for place, name in enumerate(reports):
        resources = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {
            "capacity": resources,
            "allocatable": resources,
            # Loopback has an address for every kubelet.
            "addresses": [{"type": "InternalIP", "address": f"127.1.{place // 250}.{place % 250 + 1}"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        }
        api.insert({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        report(api, name, reports[name])
    usage.changing = Random(2)
    api.metrics_provider = usage
    return reports


def _workload(api: ApiServer, number: int, usage: Usage, rng: Random, reports: Reports) -> None:
    namespace, app = f"team-{number % NAMESPACES}", f"app-{number}"
    deployment = make_deployment(app, namespace, replicas=EACH, cpu="100m", memory="128Mi")
    deployment["status"] = {"replicas": EACH}
    uid = f"11111111-0000-0000-0000-{number:012}"
    deployment["metadata"]["uid"] = uid
    api.insert(deployment)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app, "uid": uid, "controller": True}
    own = {"name": f"{app}-rs", "namespace": namespace, "uid": f"22222222-0000-0000-0000-{number:012}"}
    spec = {**deployment["spec"], "replicas": EACH}
    meta = {**own, "ownerReferences": [owner], "labels": {"app": app}}
    api.insert(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec, "status": {"replicas": EACH}}
    )
    api.insert(make_hpa(app, namespace, target=app, maximum=2 * EACH, cpu_percent=50))
    target = {"main": {"cpu": "100m", "memory": "128Mi"}}
    api.insert(make_vpa(app, namespace, target=app, mode="Recreate", recommendation=target))
    for index in range(EACH):
        node = f"node-{(number * EACH + index) // PODS_PER_NODE}"
        made = _pod(number, index)
        made["spec"]["nodeName"] = node
        api.insert({"apiVersion": "v1", "kind": "Pod", **made})
        usage.add(namespace, app, f"{app}-{index}", rng)
        used = {"cpu": f"{rng.randrange(20, 200)}m", "memory": str(rng.randrange(2**26, 2**28))}
        reports.setdefault(node, []).append(
            {"namespace": namespace, "name": f"{app}-{index}", "podUsage": {"resources": used}}
        )


def _pod(number: int, index: int) -> Raw:
    """Return one pod of a workload."""
    made, app = large_pod(number * EACH + index), f"app-{number}"
    made["metadata"] |= {"name": f"{app}-{index}", "namespace": f"team-{number % NAMESPACES}", "labels": {"app": app}}
    owner = {"name": f"{app}-rs", "uid": f"22222222-0000-0000-0000-{number:012}", "controller": True}
    made["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", **owner}]
    (container,) = made["spec"]["containers"]
    container["name"] = made["status"]["containerStatuses"][0]["name"] = "main"
    container["resources"] = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    return made


def _review(number: int) -> bytes:
    """Return the question of the API server about a new pod of a workload."""
    pod = _pod(number, 0)
    request = {
        "uid": str(number),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": pod["metadata"]["namespace"],
        "operation": "CREATE",
        "object": {"apiVersion": "v1", "kind": "Pod", **pod},
    }
    return encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def report(api: ApiServer, node: str, pods: list[Raw]) -> None:
    """Write what an agent reports of its node."""
    measured = {
        "updateTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "3", "memory": "12Gi"}},
            "systemUsage": {"resources": {"cpu": "1", "memory": "4Gi"}},
        },
        "podsMetric": pods,
    }
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    api.insert({**kind, "metadata": {"name": node}, "status": measured})


async def be_the_agents(api: ApiServer, reports: Reports, period: float) -> None:
    """Report every node once in a period, one after the other, with usage that has moved a little."""
    rng = Random(3)
    while True:
        for node, pods in reports.items():
            for pod in pods:
                pod["podUsage"]["resources"]["cpu"] = f"{rng.randrange(20, 200)}m"
            report(api, node, pods)
            await asyncio.sleep(period / len(reports))


async def be_the_kubelets(reports: Reports, port: int, tls: ssl.SSLContext) -> None:
    """Serve /metrics/resource of every node on an address of its own."""
    nodes, began = list(reports), time.time()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        _, _, third, fourth = (int(part) for part in request.transport.get_extra_info("sockname")[0].split("."))
        now = time.time()
        lines = [f"node_cpu_usage_seconds_total {3 * (now - began)} {now * 1000:.0f}"]
        lines.append(f"node_memory_working_set_bytes {12 * 2**30} {now * 1000:.0f}")
        for pod in reports[nodes[third * 250 + fourth - 1]]:
            labels = f'{{container="main",namespace="{pod["namespace"]}",pod="{pod["name"]}"}}'
            lines.append(f"container_cpu_usage_seconds_total{labels} {0.05 * (now - began)} {now * 1000:.0f}")
            lines.append(f"container_memory_working_set_bytes{labels} {80 * 2**20} {now * 1000:.0f}")
        return web.Response(text="\n".join(lines) + "\n")

    app = web.Application()
    app.router.add_get("/metrics/resource", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port, ssl_context=tls).start()


def create_pods(webhooks: list[str], workloads: int, each_second: float) -> None:
    """Show a pod to the webhooks, so many times a second, as the API server would."""
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE

    async def main() -> None:
        bodies = [_review(number) for number in range(min(workloads, 200))]
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=unverified)) as session:
            began, number = time.monotonic(), 0
            while True:
                for url in webhooks:
                    async with session.post(url, data=bodies[number % len(bodies)], headers=headers) as response:
                        answer = await response.text()
                        # Every pod is of a workload with a VPA, and of a namespace with a profile.
                        assert '"patch"' in answer, answer
                number += 1
                await asyncio.sleep(max(0.0, began + number / each_second - time.monotonic()))

    asyncio.run(main())


def be_the_cluster(workloads: int, report_seconds: float) -> None:
    """Serve the objects, and be agents and kubelets, until killed; the first line of output is the address."""

    async def main() -> None:
        clock = SystemClock()
        api = ApiServer(clock=clock)
        port = free_port()
        reports = fill(api, workloads, port)
        tls = make_identity(None, now=clock.now()).tls("127.0.0.1", now=clock.now())
        async with serve(api, anonymous=True, tls=tls) as serving:
            print(serving.url, flush=True)
            if reports:
                await be_the_kubelets(reports, port, tls)
                await be_the_agents(api, reports, report_seconds)
            await asyncio.Event().wait()

    asyncio.run(main())


def measure(workloads: int, options: argparse.Namespace, folder: Path) -> dict[str, tuple[float, float]]:
    """Return the CPU in thousandths of a core and the peak of resident MiB of every component."""
    with ExitStack() as stack:
        this = (sys.executable, "-m", __spec__.name, "--serve", "--workloads", str(workloads))
        period = ("--report-seconds", str(options.report_seconds))
        server = stack.enter_context(process(*this, *period))
        assert server.stdout is not None
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.stdout.readline().strip())
        running: dict[str, int] = {}
        webhooks: list[str] = []
        pages: dict[str, str] = {}
        for name, flags in COMPONENTS.items():
            if options.components and name not in options.components:
                continue
            port, served = free_port(), free_port()
            listen = [f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{port}"]
            if name == "slo":
                listen += [f"--metrics-addr=127.0.0.1:{port}", f"--health-probe-addr=127.0.0.1:{served}"]
            if name == "metrics":
                listen += [
                    "--bind-address=127.0.0.1",
                    f"--secure-port={served}",
                    f"--metric-resolution={options.resolution}s",
                ]
            if name in WEBHOOKS:
                listen.append(f"--port={served}")
                webhooks.append(f"https://127.0.0.1:{served}{WEBHOOKS[name]}")
            command = (sys.executable, "-m", "kubetide", "run", name, *listen, *flags)
            running[name] = stack.enter_context(process(*command, log=folder / f"{name}.log")).pid
            wait_for(lambda port=port: _metrics(port), bool)  # type: ignore[misc]
            pages[name] = f"http://127.0.0.1:{port}/metrics"
        port = free_port()
        if not options.components or "dashboard" in options.components:
            shown = (sys.executable, "-m", "kubetide", f"--kubeconfig={kubeconfig}", "dashboard", f"--port={port}")
            running["dashboard"] = stack.enter_context(process(*shown, log=folder / "dashboard.log")).pid
        if webhooks and workloads and options.creations:
            creator = multiprocessing.Process(
                target=create_pods, args=(webhooks, workloads, options.creations), daemon=True
            )
            creator.start()
            stack.callback(creator.kill)
        # Loops begin after a minute at the latest; what they do first (statuses, checkpoints) is not measured.
        time.sleep(options.warm_up)
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/c/here/workloads", timeout=120) as page,
        ):
            page.read()
        if webhooks and workloads and options.creations and not creator.is_alive():
            raise SystemExit("a webhook did not answer as it should")
        if "metrics" in pages:
            known = {each.labels["state"]: each.value for each in samples(pages["metrics"]) if each.name == NODES}
            # On a busy machine a few are always late.
            if known.get("kubelet", 0) < 0.8 * workloads * EACH / PODS_PER_NODE:
                raise SystemExit(f"kubelets were not scraped: {known}")
        before, began = {name: _spent(name, pid, folder)[0] for name, pid in running.items()}, time.monotonic()
        time.sleep(options.seconds)
        took = time.monotonic() - began
        after = {name: _spent(name, pid, folder) for name, pid in running.items()}
        return {name: (1000 * (cpu - before[name]) / took, peak) for name, (cpu, peak) in after.items()}


def _spent(name: str, pid: int, folder: Path) -> tuple[float, float]:
    try:
        return spent(pid)
    except (KeyError, OSError):
        raise SystemExit(f"{name} has ended: {(folder / f'{name}.log').read_text()[-2000:]}") from None


def _metrics(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        return bool(page.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, nargs="+", default=[0, 500, 2000])
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--warm-up", type=float, default=120.0)
    parser.add_argument("--creations", type=float, default=10.0, help="pods a second that webhooks are shown")
    parser.add_argument("--report-seconds", type=float, default=60.0, help="how often an agent reports")
    parser.add_argument("--resolution", type=int, default=15, help="how often kubelets are scraped, in seconds")
    parser.add_argument("--components", nargs="*", default=[], help="these alone")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        be_the_cluster(options.workloads[0], options.report_seconds)
        return
    found: dict[int, dict[str, tuple[float, float]]] = {}
    print("pods | component | CPU | resident at most", flush=True)
    for workloads in options.workloads:
        with tempfile.TemporaryDirectory() as folder:
            found[workloads] = measure(workloads, options, Path(folder))
        for name, (millis, peak) in found[workloads].items():
            print(f"{workloads * EACH} | {name} | {millis:.0f}m | {peak:.0f} MiB", flush=True)
    if len(found) > 1:
        thousands = [workloads * EACH / 1000 for workloads in found]
        print("component | CPU | resident")
        for name in found[options.workloads[0]]:
            fits = [np.polyfit(thousands, [sizes[name][kind] for sizes in found.values()], 1) for kind in (0, 1)]
            (cpu, cpu_base), (memory, memory_base) = fits
            print(
                f"{name} | {cpu_base:.0f}m + {cpu:.1f}m per 1,000 pods | "
                f"{memory_base:.0f} MiB + {memory:.1f} MiB per 1,000 pods"
            )


if __name__ == "__main__":
    main()
