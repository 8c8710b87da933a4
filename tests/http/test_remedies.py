"""Remedies, pasted as they are told: `kubectl` runs them on a simulated cluster, and the verdict turns OK."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KUBECTL = shutil.which("kubectl")
PATIENCE = 120.0
"""Seconds for a remedy to work; the cluster is sixty times faster than the clock on the wall."""

POD = """
      template:
        metadata: {{labels: {{app: {name}}}}}
        spec: {{containers: [{{name: main, image: x, resources: {{{requests}}}}}]}}
"""
DEPLOYMENT = (
    """
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: {name}, namespace: shop}}
    spec:
      replicas: {replicas}
      selector: {{matchLabels: {{app: {name}}}}}"""
    + POD
)
HPA = """
  - apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {{name: {name}, namespace: shop}}
    spec:
      scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {target}}}
      minReplicas: {least}
      maxReplicas: {most}
      metrics:
      - {{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}
"""
VPA = """
  - apiVersion: autoscaling.k8s.io/v1
    kind: VerticalPodAutoscaler
    metadata: {name: both, namespace: shop}
    spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: both}}
"""
PDB = """
  - apiVersion: policy/v1
    kind: PodDisruptionBudget
    metadata: {name: guarded, namespace: shop}
    spec: {minAvailable: 2, selector: {matchLabels: {app: guarded}}}
"""
SIZED = "requests: {cpu: 100m, memory: 64Mi}"
SCENARIO = "".join(
    (
        "name: remedies\nduration: 100h\nnodes:\n  - {name: node, count: 2, cpu: 8, memory: 16Gi}\n",
        "objects:\n  - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}",
        *(DEPLOYMENT.format(name=name, replicas=2, requests=SIZED) for name in ("guarded", "both", "typed", "pinned")),
        DEPLOYMENT.format(name="bare", replicas=2, requests=""),
        HPA.format(name="bare", target="bare", least=1, most=4),
        HPA.format(name="typed", target="tyepd", least=1, most=4),
        HPA.format(name="pinned", target="pinned", least=2, most=2),
        HPA.format(name="both", target="both", least=2, most=4),
        VPA,
        PDB,
    )
)


class Shell:
    """A terminal with KUBECONFIG set."""

    def __init__(self, folder: Path) -> None:
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        kubetide = bin_folder / "kubetide"
        kubetide.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubetide "$@"\n')
        kubetide.chmod(0o755)
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "KUBECONFIG": str(folder / "kubetide.kubeconfig"),
        }

    def run(self, line: str) -> str:
        """Run a line as it is, and return what it prints."""
        done = subprocess.run(
            ["sh", "-c", line], env=self._environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> "subprocess.Popen[str]":
        """Start a line and leave it running."""
        return subprocess.Popen(["sh", "-c", f"exec {line}"], env=self._environment, stdout=subprocess.PIPE, text=True)

    def verdict(self, subject: str) -> dict[str, Any]:
        """Return what `kubetide explain` says."""
        answer: dict[str, Any] = json.loads(self.run(f"kubetide explain {subject} -o json"))
        return answer

    def until(self, subject: str, start: str) -> dict[str, Any]:
        """Return the explanation once its verdict begins so."""
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.verdict(subject)
            if answer["verdict"].startswith(start):
                return answer
            assert time.monotonic() < end, f"{subject}: {answer['verdict']} instead of {start}"
            time.sleep(0.5)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    if KUBECTL is None:
        pytest.skip("kubectl is not on the PATH: install the kubernetes-client package")
    folder = tmp_path_factory.mktemp("remedies")
    (folder / "scenario.yaml").write_text(SCENARIO)
    flags = ["--http", "--port", "0", "--status-port", "0", "--speed", "60", "--plain", "--scenario", "scenario.yaml"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kubetide", "demo", *flags], cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            end = time.monotonic() + PATIENCE
            while "node status --address" not in (folder / "log").read_text():
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.1)
            yield Shell(folder)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("subject", "trouble", "healed"),
    [
        pytest.param("hpa shop/bare", "NOT SCALING: container main requests no cpu", "OK: ", id="hpa-no-request"),
        pytest.param("hpa shop/typed", "NOT SCALING: there is no Deployment tyepd", "OK: ", id="hpa-target-misspelt"),
        pytest.param("hpa shop/pinned", "PINNED: ", "OK: ", id="hpa-pinned"),
        pytest.param("vpa shop/both", "CONFLICT: HPA both measures by the cpu", "OK: ", id="vpa-hpa-conflict"),
        pytest.param("deploy shop/guarded", "BLOCKING: minAvailable 2 of 2 pods", "OK: ", id="pdb-blocks"),
    ],
)
def test_a_remedy_that_is_pasted_turns_the_verdict(shell: Shell, subject: str, trouble: str, healed: str) -> None:
    answer = shell.until(subject, trouble)
    shell.run(answer["remedy"])
    after = shell.until(subject, healed)
    assert after["remedy"] == ""


def test_what_is_wrong_is_listed_and_a_healed_object_is_not(shell: Shell) -> None:
    shell.run("kubectl create deployment idle -n shop --image=x --replicas=2")
    shell.run("kubectl create poddisruptionbudget idle -n shop --selector=app=idle --min-available=100%")
    answer = shell.until("deploy shop/idle", "BLOCKING: minAvailable 100% of 2 pods")
    rows = json.loads(shell.run("kubetide explain -A -o json"))
    assert "pdb-blocks" in {row["id"] for row in rows if row["name"] == "idle"}
    shell.run(answer["remedy"])
    shell.until("deploy shop/idle", "OK: ")
    rows = json.loads(shell.run("kubetide explain -n shop -o json"))
    assert not [row for row in rows if row["name"] == "idle"]


def read_until(process: "subprocess.Popen[str]", start: str) -> None:
    """Read lines until one begins so; a process that ends before has no more."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return
    raise AssertionError(f"it ended before it said {start}")


def test_a_watched_object_is_explained_again_when_it_changes(shell: Shell) -> None:
    shell.run("kubectl create deployment watched -n shop --image=x --replicas=1")
    shell.until("deploy shop/watched", "OK: 1 of 1 pods")
    watching = shell.start("kubetide explain deploy shop/watched --watch --since 1h")
    try:
        read_until(watching, "OK: 1 of 1 pods")
        shell.run("kubectl scale deployment watched -n shop --replicas=0")
        read_until(watching, "OFF: it is set to 0 replicas")
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.stdout is not None
        watching.stdout.close()
        assert watching.wait(timeout=PATIENCE) == 130
