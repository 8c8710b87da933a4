"""What the dashboard costs with 5,000 workloads and 20 viewers: bytes, CPU of the server, time to the first chart.

Three kinds of figures, a line each: bytes transferred (to one viewer who stays for a minute, and to a browser that
opens the overview), time to the first paint and the first chart in Chromium, and CPU of the server with one viewer,
with all of them, and for each one more.

The API server is a double that answers lists from memory and sends changes of autoscalers to whoever watches, so that
the figures are those of the dashboard alone; usage is another every 15 s. Each viewer does what a browser does: it
holds the event stream open and asks for its page again after every look.

    python benchmarks/dashboard.py [--workloads 5000] [--viewers 20] [--seconds 60] [--changes 20]
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

PODS_EACH = 2
HEADERS = {"Accept": "text/html", "Accept-Encoding": "gzip, deflate"}


HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
USAGE = "/apis/metrics.k8s.io/v1beta1/pods"
USAGE_SECONDS = 15.0
LISTED = 1_000_000
"""The version at which everything is listed."""

Items = dict[str, list[dict[str, Any]]]


def objects(workloads: int) -> Items:
    """Return all objects, by the path of their list."""
    deployments, pods, metrics, hpas = [], [], [], []
    for number in range(workloads):
        name, namespace = f"service-{number:05}", f"team-{number % 50:02}"
        meta = {"name": name, "namespace": namespace, "uid": f"u{number}", "resourceVersion": str(number + 1)}
        sizes = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
        containers = [{"name": "main", "resources": sizes}]
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
        spec = {"replicas": PODS_EACH, "selector": {"matchLabels": {"app": name}}, "template": template}
        deployments.append({"metadata": meta, "spec": spec, "status": {"readyReplicas": PODS_EACH}})
        target = {"type": "Utilization", "averageUtilization": 60}
        hpas.append(
            {
                "metadata": meta,
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                    "maxReplicas": 10,
                    "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
                },
                "status": {"currentReplicas": 2, "desiredReplicas": 2},
            }
        )
        for copy in range(PODS_EACH):
            pod = {
                "name": f"{name}-abc-{copy}",
                "namespace": namespace,
                "labels": {"app": name},
                "resourceVersion": str(number + 1),
            }
            owner = {"kind": "ReplicaSet", "name": f"{name}-abc", "controller": True, "uid": "r"}
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            body = {"nodeName": f"node-{number % 200:03}", "containers": containers}
            pods.append({"metadata": {**pod, "ownerReferences": [owner]}, "spec": body, "status": status})
            usage = {"cpu": f"{100 + number % 300}m", "memory": f"{100 + number % 100}Mi"}
            metrics.append({"metadata": pod, "containers": [{"name": "main", "usage": usage}]})
    has = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": has, "capacity": has}
    nodes = [{"metadata": {"name": f"node-{number:03}"}, "spec": {}, "status": ready} for number in range(200)]
    return {
        "/apis/apps/v1/deployments": deployments,
        HPAS: hpas,
        "/api/v1/pods": pods,
        "/api/v1/nodes": nodes,
        USAGE: metrics,
    }


def listed(items: list[dict[str, Any]]) -> bytes:
    """Return objects as a list."""
    return msgspec.json.encode({"metadata": {"resourceVersion": str(LISTED)}, "items": items})


def double(found: Items, changes: int) -> web.Application:
    """Return an API server that lists, and lets others watch; so many autoscalers change every second."""
    answers = {path: listed(items) for path, items in found.items()}
    later = [
        {**each, "containers": [{"name": "main", "usage": {"cpu": "250m", "memory": "140Mi"}}]} for each in found[USAGE]
    ]
    usage = (answers[USAGE], listed(later))

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await stream(request)
        body = answers.get(request.path, listed([]))
        if request.path == USAGE:
            body = usage[int(time.monotonic() / USAGE_SECONDS) % 2]
        return web.Response(body=body, content_type="application/json")

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        version, items = LISTED, found[HPAS] if request.path == HPAS else []
        while True:
            await asyncio.sleep(1)
            for _ in range(changes if items else 0):
                version += 1
                changed = items[version % len(items)]
                changed = {
                    **changed,
                    "metadata": {**changed["metadata"], "resourceVersion": str(version)},
                    "status": {"currentReplicas": 2 + version % 3, "desiredReplicas": 2 + version % 3},
                }
                with suppress(ConnectionResetError):  # whoever watched is gone, and aiohttp ends this handler
                    await response.write(msgspec.json.encode({"type": "MODIFIED", "object": changed}) + b"\n")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Return the memory of a process, in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def times(url: str, until: float) -> list[float]:
    """Return how long looks take."""
    found: dict[str, float] = {}
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < until:
            async with session.get(f"{url}/health?format=json") as answer:
                page = await answer.json()
            found[page["at"]] = page["health"]["latency"]["reading"]
            await asyncio.sleep(1)
    return list(found.values())


async def view(url: str, counted: dict[str, float], until: float) -> None:
    """Look as a browser does."""
    tag, forever = "", aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(headers=HEADERS, auto_decompress=False) as session,
        session.get(f"{url}/live", timeout=forever) as stream,
    ):
        async for line in stream.content:
            if time.monotonic() > until:
                return
            counted["events"] += len(line)
            if not line.startswith(b"event: look"):
                continue
            began = time.monotonic()
            asked = {"If-None-Match": tag} if tag else {}
            async with session.get(f"{url}/workloads?start=0&count=60", headers=asked) as answer:
                body = await answer.read()
                tag = answer.headers.get("ETag", tag)
            counted["answers"] += 1
            counted["bytes"] += len(body)
            counted["unchanged"] += answer.status == 304
            counted["slowest"] = max(counted["slowest"], time.monotonic() - began)


async def what_if(url: str) -> float:
    """Return how long other numbers for one workload take."""
    page = f"{url}/workloads/team-07/Deployment/service-00007/what-if?percentile=0.95&margin=0.2&target=70"
    async with aiohttp.ClientSession() as session:
        began = time.monotonic()
        async with session.get(page, headers={"Accept": "application/json"}) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        return time.monotonic() - began


async def _has_charts(url: str) -> bool:
    async with aiohttp.ClientSession(headers={"Accept": "text/html"}) as session, session.get(f"{url}/") as answer:
        return "tide-chart" in await answer.text()


def opened(url: str) -> list[tuple[str, str]]:
    """Return how long a browser takes from nothing to a chart, and what it loads."""
    program = shutil.which("chromium")
    if program is None:
        return [("first chart", "no browser")]
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        began = time.monotonic()
        page.goto(f"{url}/", wait_until="commit")
        page.wait_for_selector("#charts svg")
        took = time.monotonic() - began
        sizes: list[Any] = page.evaluate(
            "[performance.getEntriesByType('navigation')[0].transferSize, "
            "...performance.getEntriesByType('resource').map(r => r.transferSize)]"
        )
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
        browser.close()
    return [
        ("first paint", f"{paint:.0f} ms"),
        ("first chart", f"{took * 1000:.0f} ms"),
        ("bytes to open", f"{sum(sizes) / 1024:.1f} KiB in {len(sizes)} requests, until nothing is left to load"),
    ]


async def watched(
    url: str, viewers: int, seconds: float, pid: int
) -> tuple[dict[str, float], float, float, list[float]]:
    """Let some look for a while; return what they were sent, CPU seconds of the server, seconds, and times of looks."""
    counted: dict[str, float] = dict.fromkeys(("answers", "bytes", "events", "unchanged", "slowest"), 0.0)
    before, began = cpu_seconds(pid), time.monotonic()
    async with asyncio.TaskGroup() as group:
        looks = group.create_task(times(url, began + seconds))
        for _ in range(viewers):
            group.create_task(view(url, counted, began + seconds))
    return counted, cpu_seconds(pid) - before, time.monotonic() - began, sorted(looks.result())


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", type=int, default=5000)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--changes", type=int, default=20)
    given = parser.parse_args()
    runner = web.AppRunner(double(objects(given.workloads), given.changes), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config"
        config.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
            "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubetide", "--kubeconfig", str(config), "dashboard", "--port", "0"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().partition(" ")[2].strip().rstrip("/") + "/c/c"
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{url}/health?format=json") as answer:
                reading = (await answer.json())["health"]["latency"]["reading"]
            await asyncio.sleep(1)
            _, alone, short, _ = await watched(url, 1, given.seconds / 2, process.pid)
            counted, used, took, spent = await watched(url, given.viewers, given.seconds, process.pid)
            while not await _has_charts(url):  # noqa: ASYNC110 - two looks at the cluster
                await asyncio.sleep(1)
            answers = sorted([await what_if(url) for _ in range(5)])
            browser = await asyncio.to_thread(opened, url)
            print(f"workloads {given.workloads}, viewers {given.viewers}, {took:.0f} s")
            print(f"first look          {reading:.2f} s")
            print(f"later looks         {len(spent)}: median {spent[len(spent) // 2]:.2f} s, longest {spent[-1]:.2f} s")
            share, one = 100 * used / took, 100 * alone / short
            more = (share - one) / max(1, given.viewers - 1)
            print(f"CPU of the server   {share:.1f} % of a core with {given.viewers} viewers, {one:.1f} % with one, "
                  f"{more:.2f} % for each more")  # fmt: skip
            print(f"memory              {resident(process.pid):.0f} MiB")
            print(f"answers             {counted['answers']:.0f}, {counted['unchanged']:.0f} unchanged, "
                  f"{counted['bytes'] / max(1, counted['answers']) / 1024:.1f} KiB each, "
                  f"slowest {counted['slowest']:.2f} s")  # fmt: skip
            each = (counted["bytes"] + counted["events"]) / given.viewers / took * 60 / 1024
            print(f"bytes to a viewer   {each:.1f} KiB a minute")
            print(f"what if             median {answers[2] * 1000:.0f} ms, slowest {answers[-1] * 1000:.0f} ms")
            for name, figure in browser:
                print(f"{name:20}{figure}")
        finally:
            process.terminate()
            await process.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
