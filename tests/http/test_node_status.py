"""`kubetide node status` on the agents of simulated nodes: `kubetide up --sim --agents` and the demo."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

SCENARIO = """
name: two nodes
nodes:
  - {name: node, count: 2, cpu: "4", memory: 8Gi}
workloads:
  - name: web
    kind: DaemonSet
    requests: {cpu: 250m, memory: 256Mi}
    limits: {cpu: 500m, memory: 512Mi}
    cpu: 200m
  - name: crunch
    kind: DaemonSet
    labels: {koordinator.sh/qosClass: BE}
    requests: {}
    cpu: 100m
"""


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[str]:
    """Run kubetide until it says where its agents answer, and stop it afterwards; give the address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kubetide", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        read = []
        for line in process.stdout:
            read.append(line)
            if found := re.search(r"kubetide node status --address (\S+)", line):
                yield found[1]
                break
        else:
            raise AssertionError("".join(read))
        process.send_signal(signal.SIGTERM)
        _, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def ready(address: str) -> None:
    """Wait until the agents have seen what their pods use."""

    async def wait() -> None:
        async with asyncio.timeout(90), aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"http://{address}/explain/status/self") as answer:
                    status = await answer.json()
                pods = [pod for node in status["nodes"] for pod in node["pods"]]
                if pods and all(pod["cpuCores"] is not None for pod in pods if pod["phase"] == "Running"):
                    return
                await asyncio.sleep(0.1)

    asyncio.run(wait())


def shown(address: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kubetide", "node", "status", "--address", address, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pods_of_simulated_nodes_are_shown_by_qos_class(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    command = ("up", "--sim", "scenario.yaml", "--port", "0", "--speed", "60", "--agents", "--agents-port", "0")
    with running(tmp_path, *command) as address:
        ready(address)
        text = shown(address)
        assert "node-1" in text
        assert "node-2" in text
        lines = [line.split() for line in text.splitlines() if "default/" in line]
        assert [line[0] for line in lines] == ["LS", "BE", "LS", "BE"], "by class, node after node"
        web = next(line for line in lines if "/web-" in line[1])
        assert web[2].endswith("/0.50"), "usage and limit"

        one = json.loads(shown(address, "--node", "node-2", "-o", "json"))
        assert one["node"] == "node-2"
        pods: dict[str, Any] = {pod["name"].split("-")[0]: pod for pod in one["pods"]}
        assert 0.1 < pods["web"]["cpuCores"] < 0.3
        assert pods["web"]["memoryLimitBytes"] == 512 * 2**20
        assert pods["crunch"]["qos"] == "BE"

        watch = subprocess.Popen(
            [sys.executable, "-m", "kubetide", "node", "status", "--address", address, "--watch", "--interval", "0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "120", "FORCE_COLOR": "1", "TERM": "xterm"},
        )
        try:
            assert watch.stdout is not None
            titles = (line for line in watch.stdout if "node-1" in line)
            assert len([next(titles) for _ in range(3)]) == 3, "shown again and again"
            watch.send_signal(signal.SIGINT)
            watch.communicate(timeout=30)
        finally:
            watch.kill()
            watch.wait()


def test_the_demo_answers_for_its_nodes_and_controllers(tmp_path: Path) -> None:
    command = ("demo", "--speed", "240", "--plain", "--http", "--port", "0", "--status-port", "0")
    with running(tmp_path, *command) as address:
        ready(address)
        assert {"node-1", "node-2", "node-3"} <= set(re.findall(r"node-\d", shown(address)))
        with urllib.request.urlopen(f"http://{address}/explain/node/node-1", timeout=30) as answer:
            assert json.load(answer)["node"] == "node-1"
        config = yaml.safe_load((tmp_path / "kubetide.kubeconfig").read_text())
        (extension,) = config["clusters"][0]["cluster"]["extensions"]
        assert extension == {"name": "kubetide.io/explain", "extension": {"address": address}}
        done = subprocess.run(
            [sys.executable, "-m", "kubetide", "node", "audit", "--address", address, "--limit", "300", "-o", "json"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert {event["node"] for event in events} == {"node-1", "node-2", "node-3"}, done.stderr
        assert events == sorted(events, key=lambda event: str(event["createdAt"]), reverse=True), "newest first"


def test_an_address_without_an_agent_is_said_plainly() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kubetide", "node", "status", "--address", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "nothing answers at http://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
