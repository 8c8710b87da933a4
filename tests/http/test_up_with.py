"""`kubetide up --sim --with`: controllers inside the simulation, in its time, with webhooks in process and one port."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubetide.api.values.quantity import quantity_float
from kubetide.cli.main import run_cli

PATIENCE_SECONDS = 120.0
EVERYTHING = "hpa,recommender,updater,admission,slo,node,colocation"
SCENARIO = """
name: with controllers
seed: 3
nodes: [{name: node, count: 2, cpu: "8", memory: 16Gi}]
workloads:
- name: web
  replicas: 1
  requests: {cpu: 200m, memory: 128Mi}
  load: {curve: constant, level: 60}
- name: worker
  replicas: 2
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 4Gi}
  load: {curve: constant, level: 30}
  memory: {base: 300Mi}
objects:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: slo-controller-config, namespace: koordinator-system}
  data: {colocation-config: '{"enable": true, "metricReportIntervalSeconds": 60, "updateTimeThresholdSeconds": 60}'}
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: web, namespace: default}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    maxReplicas: 9
    metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
- apiVersion: autoscaling.k8s.io/v1
  kind: VerticalPodAutoscaler
  metadata: {name: worker, namespace: default}
  spec:
    targetRef: {apiVersion: apps/v1, kind: Deployment, name: worker}
    updatePolicy: {updateMode: Recreate}
"""


class Up:
    """A running `kubetide up`."""

    def __init__(self, config: Path) -> None:
        self.config = config
        raw = yaml.safe_load(config.read_text())
        cluster = raw["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._trust = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
        self._token = raw["users"][0]["user"]["token"]
        (extension,) = cluster["extensions"]
        self.explain_at = next(iter(extension["extension"].values()))

    def get(self, path: str) -> Any:
        request = urllib.request.Request(self._server + path, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, context=self._trust, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def wait_for(self, path: str, condition: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if condition(found := self.get(path)):
                return found
            time.sleep(0.2)
        raise AssertionError(f"{path} is still {found}")


@contextmanager
def up(directory: Path, *arguments: str) -> Iterator[Up]:
    """Run it until the block ends."""
    (directory / "day.yaml").write_text(SCENARIO)
    command = ["up", "--sim", "day.yaml", "--port", "0", "--status-port", "0", *arguments]
    process = subprocess.Popen(
        [sys.executable, "-m", "kubetide", *command],
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
            if line.startswith("ready: "):
                break
        else:
            raise AssertionError("".join(read))
        yield Up(directory / "kubetide.kubeconfig")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_controllers_work_in_the_time_of_the_simulation_and_explain_themselves(tmp_path: Path) -> None:
    hpa = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
    vpa = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers/worker"
    with up(tmp_path, "--with", EVERYTHING, "--speed", "300") as cluster:
        cluster.wait_for(hpa, lambda obj: obj.get("status", {}).get("desiredReplicas", 0) > 2)

        # Evicted by the updater and made anew through the webhook, which nothing can reach but this process.
        def is_patched(pods: Any) -> bool:
            noted = [
                pod["metadata"].get("annotations", {}) for pod in pods["items"] if "worker" in pod["metadata"]["name"]
            ]
            return any("vpaUpdates" in annotations for annotations in noted)

        cluster.wait_for("/api/v1/namespaces/default/pods", is_patched)

        [container] = cluster.get(vpa)["status"]["recommendation"]["containerRecommendations"]
        assert quantity_float(container["target"]["memory"]) < 2**30
        assert quantity_float(container["target"]["cpu"]) < 2

        node = cluster.wait_for(
            "/api/v1/nodes/node-1", lambda obj: "kubernetes.io/batch-cpu" in obj["status"]["allocatable"]
        )
        assert quantity_float(node["status"]["allocatable"]["kubernetes.io/batch-cpu"]) > 1000

        told = explained(cluster, "hpa", "default/web")
        assert not told.get("recomputed")
        decided = datetime.fromisoformat(told["at"])
        assert decided > datetime.now(UTC) + timedelta(seconds=30), "the time of the simulation, which is ahead"
        assert not explained(cluster, "vpa", "default/worker").get("recomputed")
        assert explained(cluster, "node", "node-1")["node"] == "node-1"


def explained(cluster: Up, kind: str, name: str) -> Any:
    """Ask as a user does, who has nothing but the kubeconfig."""
    done = subprocess.run(
        [sys.executable, "-m", "kubetide", "explain", kind, name, "-o", "json"],
        env={**os.environ, "KUBECONFIG": str(cluster.config)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert "RECOMPUTED" not in done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--with", "hpa,scheduler"], r"--with: 'scheduler' is none of hpa, recommender, .*node, or all",
                     id="unknown"),
        pytest.param(["--with", ","], r"--with: name some of hpa", id="none"),
        pytest.param(["--bare", "--with", "hpa"], "--bare simulates nothing", id="bare"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["up", *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert re.search(complaint, line)
