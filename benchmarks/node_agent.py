"""The whole node agent as a process on real cgroups: what a node pays for it.

    sudo python -m benchmarks.node_agent [--pods 250] [--seconds 60] [--runs 5] [--before ../before] [--original PATH]

Makes a fake kubepods tree under `kubetide-bench-*` (two containers a pod, half the pods latency-sensitive with a CPU
limit, half best effort with batch resources) and removes it again. An embedded API server in a process of its own
holds the pods, the Node and a NodeSLO with suppression, burst and memory QoS; the agent runs with its hooks and all
strategies, once from this checkout and once from `--before`, in turn. Taken from the kernel's counters of its process
once it has settled: CPU (1000 m is a core) and resident memory. With `--original` upstream's agent takes its turn too:
it finds the same cgroups through a directory of links, and its pods at a stand-in for the kubelet.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.beside import free_port, process, spent, write_kubeconfig
from benchmarks.qos_round import CONTAINERS, raw_pod

from kernel.tree import Tree, why_not
from kubetide import crds
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer

HERE = Path(__file__).resolve().parents[1]
NODE = "bench"
GATES = "BECPUSuppress=true,CPUBurst=true,CgroupReconcile=true,BECPUEvict=true,BEMemoryEvict=true"
SLO = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"},
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceQOSStrategy": {
        "lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}, "cpuQOS": {"enable": True}},
        "beClass": {"memoryQOS": {"enable": True}, "cpuQOS": {"enable": True}},
    },
}


def objects(count: int) -> Iterator[dict[str, Any]]:
    """Yield the node and what is on it."""
    amounts = {"cpu": "64", "memory": "256Gi", "kubernetes.io/batch-cpu": "60000"}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }
    yield {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": NODE}, "spec": SLO}
    yield from (pod(number) for number in range(count))


def pod(number: int) -> dict[str, Any]:
    """Return a pod as the API server holds it."""
    raw = raw_pod(number)
    raw |= {"apiVersion": "v1", "kind": "Pod"}
    raw["spec"]["nodeName"] = NODE
    for container in raw["spec"]["containers"]:
        container["image"] = "bench"
    for status in raw["status"]["containerStatuses"]:
        status |= {"image": "bench", "imageID": "bench", "ready": True, "restartCount": 0}
    return raw


@asynccontextmanager
async def stand_in(pods: list[dict[str, Any]], port: int) -> AsyncIterator[None]:
    """Answer on a port which pods there are, as a kubelet does, while the block lasts."""
    body = {"kind": "PodList", "apiVersion": "v1", "items": pods}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body)

    application = web.Application()
    application.add_routes([web.get("/pods/", answer), web.get("/pods", answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


def be_the_server(count: int, kubelet: int) -> None:
    """Serve the objects until killed; the first line of output is the address."""

    async def main() -> None:
        api = ApiServer(clock=SystemClock())
        made = [api.insert(raw) for raw in (*map(dict, crds.load_all()), *objects(count))]
        pods = [raw for raw in made if raw["kind"] == "Pod"]
        async with serve(api, anonymous=True) as serving, stand_in(pods, kubelet):
            print(serving.url, flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


def make_cgroups(tree: Tree, url: str) -> None:
    """Make a cgroup for every pod of the server and its containers."""
    tree.tiers()
    with urllib.request.urlopen(f"{url}/api/v1/pods", timeout=30) as answer:
        pods = json.load(answer)["items"]
    for raw in pods:
        ids = [status["containerID"].partition("://")[2] for status in raw["status"]["containerStatuses"]]
        directory = tree.pod(raw["metadata"]["uid"], raw["status"]["qosClass"], *ids)
        if raw["status"]["qosClass"] != "BestEffort":
            for one in ids:
                tree.limit_cpu(f"{directory}/{one}", 50_000)


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def ours(checkout: Path, tree: Tree, kubeconfig: Path, folder: Path) -> list[str]:
    """Return the command of an agent of a checkout."""
    os.environ["PYTHONPATH"] = str(checkout / "src")
    return [
        *(sys.executable, "-m", "kubetide", f"--kubeconfig={kubeconfig}", "node"),
        f"--node-name={NODE}",
        f"--cgroup-prefix={tree.prefix}",
        "--cgroup-driver=cgroupfs",
        f"--addr=127.0.0.1:{free_port()}",
        f"--audit-log-dir={folder}/audit",
        f"--metric-history-path={folder}/history",
        "--pod-source=apiserver",
        "--enable-nri-runtime-hook=false",
        f"--feature-gates={GATES}",
    ]


def upstreams(program: Path, tree: Tree, kubeconfig: Path, folder: Path, kubelet: int) -> list[str]:
    """Return the command of upstream's agent; everything that it may write to lies in a folder or in the tree."""
    os.environ["NODE_NAME"] = NODE
    links = folder / "cgroup"
    links.mkdir()
    for place in tree.places(tree.prefix):
        (links / place.parent.name).symlink_to(place)
    return [
        *(str(program), f"-kubeconfig={kubeconfig}", f"-addr=127.0.0.1:{free_port()}"),
        f"-cgroup-root-dir={links}/",
        *("-sys-root-dir=/sys/", "-sys-fs-root-dir=/sys/fs/", "-proc-root-dir=/proc/"),
        *("-kubelet-insecure-tls", f"-kubelet-read-only-port={kubelet}", "-disable-query-kubelet-config"),
        *(f"-audit-log-dir={folder}/audit", f"-tsdb-path={folder}/metrics"),
        *(f"-runtime-hooks-addr={folder}/hooks.sock", f"-runtime-hooks-config-path={folder}"),
        "-enable-nri-runtime-hook=false",
        f"-feature-gates={GATES}",
    ]


def run(command: list[str], folder: Path, settle: float, seconds: float) -> dict[str, float]:
    """Return what an agent costs once it has settled."""
    with process(*command, log=folder / "log") as agent:
        print(f"process {agent.pid}", file=sys.stderr, flush=True)  # for a profiler
        time.sleep(settle)
        before, since = spent(agent.pid)[0], time.monotonic()
        time.sleep(seconds)
        cpu, peak = spent(agent.pid)
        took = time.monotonic() - since
        open_files = len(os.listdir(f"/proc/{agent.pid}/fd"))
        used = 1000 * (cpu - before) / took
        return {"m": used, "MiB": resident_mib(agent.pid), "peak": peak, "files": open_files}


def main() -> None:
    """Run the agent of each checkout in turn and print what it costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=250)
    parser.add_argument("--settle", type=float, default=20.0, help="seconds from the start that are not counted")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", type=Path, help="a checkout of the revision to compare with")
    parser.add_argument("--original", type=Path, help="upstream's agent, koordlet")
    parser.add_argument("--serve", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        be_the_server(*options.serve)
        return
    if reason := why_not():
        sys.exit(f"cannot run here: {reason}")
    kubelet = free_port()
    contestants = ["before"] * bool(options.before) + ["now"] + ["upstream"] * bool(options.original)
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    tree = Tree(f"kubetide-bench-{os.getpid()}")
    with tempfile.TemporaryDirectory() as whole:
        kubeconfig = Path(whole) / "kubeconfig"
        serving = ("-m", "benchmarks.node_agent", "--serve", str(options.pods), str(kubelet))
        with process(sys.executable, *serving) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            write_kubeconfig(kubeconfig, url)
            try:
                make_cgroups(tree, url)
                for number in range(options.runs):
                    for name in contestants:
                        folder = Path(whole) / f"{name}-{number}"
                        folder.mkdir()
                        if name == "upstream":
                            command = upstreams(options.original.resolve(), tree, kubeconfig, folder, kubelet)
                        else:
                            checkout = options.before.resolve() if name == "before" else HERE
                            command = ours(checkout, tree, kubeconfig, folder)
                        cost = run(command, folder, options.settle, options.seconds)
                        taken[name].append(cost)
                        shown = "  ".join(f"{key} {value:.1f}" for key, value in cost.items())
                        print(f"{number} {name:8} {shown}", flush=True)
            finally:
                tree.close()
    for name, costs in taken.items():
        middle = {key: statistics.median(cost[key] for cost in costs) for key in costs[0]}
        print(
            f"{name:8} {options.pods} pods, {options.pods * len(CONTAINERS)} containers: {middle['m']:.0f} m of CPU, "
            f"{middle['MiB']:.0f} MiB (at most {middle['peak']:.0f}), {middle['files']:.0f} open files"
        )


if __name__ == "__main__":
    main()
