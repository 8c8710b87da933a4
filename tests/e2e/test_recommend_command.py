"""`kubetide recommend` on a real kube-apiserver, by a visitor who may only read."""

import asyncio
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.test_recommend import ROLLOUT_CRD
from e2e.controlplane import ControlPlane
from e2e.test_doctor_real import shell
from e2e.test_recommend_patches import manifests, pod_of
from fake_prometheus import TOKEN, FakePrometheus, serving
from kubetide import crds
from kubetide.testing.builders import make_deployment

PODS = {
    "Deployment/web": "web-7d9f8c6b54-x2k7z",
    "StatefulSet/web": "web-0",
    "DaemonSet/web": "web-x2k7z",
    "CronJob/web": "web-29916126-x2k7z",
    "ReplicaSet/bare": "bare-x2k7z",
    "Rollout/canary": "canary-7d9f8c6b54-x2k7z",
}


def permissions(namespace: str) -> list[dict[str, Any]]:
    """Return what lets a visitor list workloads, and nothing else."""
    group, meta = "rbac.authorization.k8s.io", {"name": "visitor", "namespace": namespace}
    listed = {"": ["pods"], "apps": ["*"], "batch": ["*"], "autoscaling": ["*"], "argoproj.io": ["rollouts"]}
    rules = [{"apiGroups": [name], "resources": kinds, "verbs": ["list"]} for name, kinds in listed.items()]
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            **binding,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "visitor"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "visitor"}],
        },
    ]


def prepared(plane: ControlPlane) -> str:
    """Make a namespace with a workload of every kind; return its name."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: install the kubernetes-client package")
    name = f"visited-{uuid.uuid4().hex[:6]}"
    shell(plane, f"kubectl create namespace {name}")
    shell(plane, "kubectl apply -f -", given=json.dumps(ROLLOUT_CRD))
    shell(plane, "kubectl apply -f -", given=json.dumps(crds.load("verticalpodautoscalers")))
    for crd in ("rollouts.argoproj.io", "verticalpodautoscalers.autoscaling.k8s.io"):
        shell(plane, f"kubectl wait --for=condition=Established crd/{crd} --timeout=60s")
    bare = {**make_deployment("bare", cpu="1"), "kind": "ReplicaSet"}
    rollout = {**make_deployment("canary", cpu="1"), "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    for each in (bare, rollout):
        each["metadata"] = {"name": each["metadata"]["name"]}
    items = [*manifests(), bare, rollout, *permissions(name)]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    shell(plane, f"kubectl apply -n {name} -f -", given=body)
    return name


def check_patch(plane: ControlPlane, path: Path) -> None:
    """Apply a patch as its first line says, in a dry run, and read it back."""
    text = path.read_text()
    command = text.splitlines()[0].removeprefix("# ").replace(path.name, str(path))
    after = json.loads(shell(plane, f"{command} --dry-run=server -o json"))
    document = yaml.safe_load(text)
    if isinstance(document, list):  # a JSON patch: what it changes is tested in test_recommend_rollouts
        assert (after["kind"], pod_of(after)["containers"][0]["name"]) == ("Rollout", document[0]["value"])
        return
    for wanted in pod_of(document)["containers"]:
        got = next(each for each in pod_of(after)["containers"] if each["name"] == wanted["name"])
        assert got["resources"]["requests"] == wanted["resources"]["requests"]
        assert got["image"]


async def test_a_visitor_gets_rows_and_patches_that_apply(control_plane: ControlPlane, tmp_path: Path) -> None:
    namespace = await asyncio.to_thread(prepared, control_plane)
    visitor = control_plane.kubeconfig("visitor")
    usage = FakePrometheus(dict.fromkeys(PODS.values(), (0.3, 400 * 2**20)), namespace=namespace)
    async with serving(usage) as url:

        async def run(words: str) -> str:
            source = f"--prometheus {url} --prometheus-token {TOKEN} --history 2d"
            line = f"kubetide --kubeconfig {visitor} recommend -n {namespace} {source} {words}"
            return await asyncio.to_thread(shell, control_plane, line)

        rows = json.loads(await run("-o json"))["rows"]
        known = {f"{row['kind']}/{row['name']}" for row in rows if row["recommended"] is not None}
        assert known == set(PODS)
        written = (await run(f"-o patches --out {tmp_path}")).split()
        assert len(written) == len(PODS)
        for path in written:
            await asyncio.to_thread(check_patch, control_plane, Path(path))
        vpas = await run("-o vpa")
        apply = "kubectl apply --dry-run=server -o name -f -"
        assert (await asyncio.to_thread(lambda: shell(control_plane, apply, given=vpas))).count("\n") == len(PODS)


def test_who_may_read_nothing_is_told_so(control_plane: ControlPlane) -> None:
    nobody = control_plane.kubeconfig("nobody")
    shown = shell(control_plane, f"kubetide --kubeconfig {nobody} recommend -n default 2>&1", codes=(1,))
    assert shown.startswith("kubetide: no workloads may be read: deployments.apps cannot be listed: ")
    assert shown.count("\n") == 1
