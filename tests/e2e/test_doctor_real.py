"""The doctor and its remedies on a real kube-apiserver: what it reads, how it asks, what a patch of it does there."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from typing import Any

import pytest

from e2e.controlplane import ControlPlane

SECONDS = 300
DEPLOYMENT = {
    "replicas": 1,
    "selector": {"matchLabels": {"app": "web"}},
    "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web"}]},
    },
}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def shell(plane: ControlPlane, line: str, *, given: str = "", codes: tuple[int, ...] = (0,)) -> str:
    """Run a line with the control plane's kubeconfig; `kubetide` is this checkout's."""
    command = line.replace("kubetide ", f"{sys.executable} -m kubetide ", 1) if line.startswith("kubetide ") else line
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig())}
    done = subprocess.run(
        ["sh", "-c", command],
        input=given,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode in codes, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_remedies_are_accepted_by_a_real_api_server(control_plane: ControlPlane) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: install the kubernetes-client package")
    namespace = f"doctor-{uuid.uuid4().hex[:6]}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "wbe"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 2, "metrics": [CPU]}
    items: list[dict[str, Any]] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": DEPLOYMENT},
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": spec},
    ]
    shell(control_plane, f"kubectl create namespace {namespace}")
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    shell(control_plane, f"kubectl apply -n {namespace} -f -", given=body)
    ids = []
    for _ in range(6):
        rows = json.loads(shell(control_plane, f"kubetide doctor -n {namespace} -o json", codes=(0, 1, 2)))
        mine = [row for row in rows if (row["kind"], row["namespace"]) == ("hpa", namespace)]
        problems = [row for row in mine if row["severity"] in ("error", "warning")]
        repaired = next((row for row in problems if row["remedy"].startswith(("kubectl patch", "kubectl set"))), None)
        if repaired is None:
            break
        ids.append(repaired["id"])
        shell(control_plane, repaired["remedy"])
    assert {"hpa-target-misspelt", "hpa-pinned", "hpa-no-request"} <= set(ids)
    log = json.loads(shell(control_plane, "kubetide doctor -o sarif", codes=(0, 1, 2)))
    assert log["version"] == "2.1.0"
    assert not [row for row in rows if row["id"] == "unreadable"], "an administrator may read everything"
