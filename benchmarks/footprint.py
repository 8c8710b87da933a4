"""What each component of an installation takes: CPU and memory as processes, by the size of the cluster.

    python -m benchmarks.footprint [--workloads 0 500 2000] [--seconds 90]

A cluster in a process of its own: workloads of ten pods (8 KB each, as real ones), each with an HPA and a VPA, a node
for every twenty pods with a report of its usage, and usage that is new every fifteen seconds; over TLS. All components
run at once as `kubetide run` does in their pods, with their defaults. The kernel counts CPU after the first loops, and
resident memory at most. Printed for each size, then as a rule: a base and so much per 1,000 pods, by least squares.
"""

import argparse
import asyncio
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from benchmarks.beside import free_port, process, spent, wait_for, write_kubeconfig
from benchmarks.hpa_round import Usage

from kubetide import crds
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
}


def fill(api: ApiServer, workloads: int) -> None:
    """Put workloads, their pods and autoscalers, nodes and their reports into the store."""
    for crd in crds.load_all():
        api.insert(crd)
    for name in ("koordinator-system", *(f"team-{number}" for number in range(NAMESPACES))):
        labels = {"kubetide.io/vpa": "Off"}
        api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    settings = {"colocation-config": '{"enable": true, "degradeTimeMinutes": 600}'}
    where = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    api.insert({"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": settings})
    usage, rng = Usage(api.clock.now), Random(1)
    reports: dict[str, list[Raw]] = {}
    for number in range(workloads):
        _workload(api, number, usage, rng, reports)
    _nodes(api, reports)
    usage.changing = Random(2)
    api.metrics_provider = usage


def _workload(api: ApiServer, number: int, usage: Usage, rng: Random, reports: dict[str, list[Raw]]) -> None:
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
    api.insert(make_vpa(app, namespace, target=app, mode="Recreate"))
    for index in range(EACH):
        count = number * EACH + index
        made, node = large_pod(count), f"node-{count // PODS_PER_NODE}"
        made["metadata"] |= {"name": f"{app}-{index}", "namespace": namespace, "labels": {"app": app}}
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": own["name"], "uid": own["uid"], "controller": True}
        ]
        made["spec"]["nodeName"] = node
        (container,) = made["spec"]["containers"]
        container["name"] = made["status"]["containerStatuses"][0]["name"] = "main"
        container["resources"] = {"requests": {"cpu": "100m", "memory": "128Mi"}}
        api.insert({"apiVersion": "v1", "kind": "Pod", **made})
        usage.add(namespace, app, f"{app}-{index}", rng)
        used = {"cpu": f"{rng.randrange(20, 200)}m", "memory": str(rng.randrange(2**26, 2**28))}
        reports.setdefault(node, []).append(
            {"namespace": namespace, "name": f"{app}-{index}", "podUsage": {"resources": used}}
        )


def _nodes(api: ApiServer, reports: dict[str, list[Raw]]) -> None:
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    for name, pods in reports.items():
        status = {"capacity": resources, "allocatable": resources}
        api.insert({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        measured = {
            "updateTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "nodeMetric": {"systemUsage": {"resources": {"cpu": "1", "memory": "4Gi"}}},
            "podsMetric": pods,
        }
        kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
        api.insert({**kind, "metadata": {"name": name}, "status": measured})


def be_the_server(workloads: int) -> None:
    """Serve the objects until killed; the first line of output is the address."""

    async def main() -> None:
        clock = SystemClock()
        api = ApiServer(clock=clock)
        fill(api, workloads)
        tls = make_identity(None, now=clock.now()).tls("127.0.0.1", now=clock.now())
        async with serve(api, anonymous=True, tls=tls) as serving:
            print(serving.url, flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


def measure(workloads: int, options: argparse.Namespace, folder: Path) -> dict[str, tuple[float, float]]:
    """Return the CPU in thousandths of a core and the peak of resident MiB of every component."""
    with ExitStack() as stack:
        this = (sys.executable, "-m", __spec__.name, "--serve", "--workloads", str(workloads))
        server = stack.enter_context(process(*this))
        assert server.stdout is not None
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.stdout.readline().strip())
        running: dict[str, int] = {}
        for name, flags in COMPONENTS.items():
            port = free_port()
            listen = [f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{port}"]
            if name == "slo":
                listen += [f"--metrics-addr=127.0.0.1:{port}", f"--health-probe-addr=127.0.0.1:{free_port()}"]
            if name in ("admission", "colocation"):
                listen.append(f"--port={free_port()}")
            command = (sys.executable, "-m", "kubetide", "run", name, *listen, *flags)
            running[name] = stack.enter_context(process(*command, log=folder / f"{name}.log")).pid
            wait_for(lambda port=port: _metrics(port), bool)  # type: ignore[misc]
        port = free_port()
        shown = (sys.executable, "-m", "kubetide", f"--kubeconfig={kubeconfig}", "dashboard", f"--port={port}")
        running["dashboard"] = stack.enter_context(process(*shown, log=folder / "dashboard.log")).pid
        # Loops begin after a minute at the latest; what they do first (statuses, checkpoints) is not measured.
        time.sleep(options.warm_up)
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/c/here/workloads", timeout=120) as page,
        ):
            page.read()
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
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        be_the_server(options.workloads[0])
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
