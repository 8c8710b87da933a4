"""Patches for custom resources on a real kube-apiserver: accepted in a dry run, and nothing but sizes changes."""

import asyncio
import copy
import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.test_recommend import ROLLOUT_CRD
from e2e.controlplane import ControlPlane
from e2e.test_doctor_real import shell
from e2e.test_recommend_patches import HAD, WANTED
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files
from kubetide.recommend import LimitPolicy, Options, Row, Sizes, rows
from kubetide.recommend.cluster import Selection, read_workloads
from kubetide.recommend.core.workloads import key_of
from kubetide.recommend.manifest_edits import edit_repository
from kubetide.recommend.patch_files import write_layout
from unit.recommend.test_rows import MIB, usage

Raw = dict[str, Any]
API = "argoproj.io/v1alpha1"


def template() -> Raw:
    """Return a pod template in which no two containers hold the same parts of `resources`."""
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "initContainers": [
                {"name": "migrate", "image": "example.com/migrate"},
                {"name": "mesh", "image": "example.com/mesh", "restartPolicy": "Always", "resources": {}},
            ],
            "containers": [
                {"name": "proxy", "image": "example.com/proxy"},
                {"name": "main", "image": "example.com/web", "resources": HAD, "env": [{"name": "A", "value": "b"}]},
                {"name": "logs", "image": "example.com/logs", "resources": {"limits": HAD["limits"]}},
            ],
        },
    }


def manifests() -> list[Raw]:
    selector = {"matchLabels": {"app": "web"}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "referred"}
    return [
        {
            "apiVersion": API,
            "kind": "Rollout",
            "metadata": {"name": "canary"},
            "spec": {"selector": selector, "strategy": {"canary": {"steps": [{"setWeight": 20}]}}}
            | {"template": template()},
        },
        {
            "apiVersion": API,
            "kind": "Rollout",
            "metadata": {"name": "referring"},
            "spec": {"selector": selector, "workloadRef": reference},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "referred"},
            "spec": {"replicas": 0, "selector": selector, "template": template()},
        },
    ]


def resized(before: Raw, limits: Raw) -> Raw:
    """Return the spec as it must be afterwards: sizes of what keeps running, and everything else as it was."""
    spec: Raw = copy.deepcopy(before["spec"])
    pod = spec["template"]["spec"]
    proxy, main, logs = pod["containers"]
    for each in (pod["initContainers"][1], proxy):
        each["resources"] = {"requests": WANTED}
    for each in (main, logs):
        each["resources"] = {"requests": WANTED, "limits": limits}
    return spec


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: install the kubernetes-client package")
    name = f"rollouts-{uuid.uuid4().hex[:6]}"
    shell(control_plane, f"kubectl create namespace {name}")
    shell(control_plane, "kubectl apply -f -", given=json.dumps(ROLLOUT_CRD))
    shell(control_plane, "kubectl wait --for=condition=Established crd/rollouts.argoproj.io --timeout=60s")
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests()})
    shell(control_plane, f"kubectl apply -n {name} -f -", given=body)
    return name


def made(plane: ControlPlane, namespace: str, limits: LimitPolicy = LimitPolicy.KEEP) -> Sequence[Row]:
    async def read() -> Sequence[Row]:
        client = Client(HttpTransport(from_files([plane.kubeconfig()], clock=SystemClock())), clock=SystemClock())
        try:
            workloads = (await read_workloads(client, Selection(namespace=namespace))).workloads
        finally:
            await client.close()
        samples = {key_of(each, one.name): usage(1) for each in workloads for one in each.containers}
        fixed = Sizes(150, 300 * MIB)
        return rows(workloads, samples, Options(floor=fixed, ceiling=fixed, limits=limits))

    return asyncio.run(read())


def stored(plane: ControlPlane, namespace: str, kind: str, name: str) -> Raw:
    found: Raw = json.loads(shell(plane, f"kubectl get -n {namespace} {kind}/{name} -o json"))
    return found


def command_of(path: Path) -> str:
    return path.read_text().splitlines()[0].removeprefix("# ").replace(path.name, str(path))


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        pytest.param(LimitPolicy.KEEP, HAD["limits"], id="limits-kept"),
        pytest.param(LimitPolicy.NONE, {"ephemeral-storage": "1Gi"}, id="limits-removed"),
    ],
)
def test_a_rollout_is_patched_where_its_template_is(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, limits: LimitPolicy, left: Raw
) -> None:
    written, left_out = write_layout(tmp_path, "kubectl", made(control_plane, namespace, limits))
    assert (sorted(path.name for path in written), left_out) == (
        ["deployment-referred.yaml", "rollout-canary.yaml"],
        [],
    )
    for path in written:
        kind, _, name = path.stem.partition("-")
        after = json.loads(shell(control_plane, f"{command_of(path)} --dry-run=server -o json"))
        assert after["spec"] == resized(stored(control_plane, namespace, kind, name), left)


def test_a_rollout_whose_containers_moved_is_left_alone(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    written, _ = write_layout(tmp_path, "kubectl", made(control_plane, namespace))
    (path,) = (each for each in written if each.name == "rollout-canary.yaml")
    moved = manifests()[0]
    moved["spec"]["template"]["spec"]["containers"].reverse()
    shell(control_plane, f"kubectl apply -n {namespace} -f -", given=json.dumps(moved))
    shown = shell(control_plane, f"{command_of(path)} --dry-run=server -o json 2>&1", codes=(1,))
    assert "the server rejected our request" in shown


def test_kustomize_and_a_repository_give_the_same_rollout(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    found = made(control_plane, namespace)
    write_layout(tmp_path / "sizes", "kustomize", found)
    (tmp_path / "all.yaml").write_text(
        yaml.safe_dump_all([{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in manifests()])
    )
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["all.yaml"], "components": ["sizes"]}))
    apply = "--dry-run=server -o json"
    patched = json.loads(shell(control_plane, f"kubectl apply -k {tmp_path} {apply}"))["items"]
    (tmp_path / "kustomization.yaml").unlink()
    shutil.rmtree(tmp_path / "sizes")
    _, problems = edit_repository(tmp_path, found)
    assert problems == []
    edited = json.loads(shell(control_plane, f"kubectl apply -f {tmp_path} {apply}"))["items"]
    for items in (patched, edited):
        specs = {item["metadata"]["name"]: item["spec"] for item in items}
        referring = stored(control_plane, namespace, "rollout", "referring")
        assert specs["referring"] == referring["spec"]
        for kind, name in (("rollout", "canary"), ("deployment", "referred")):
            assert specs[name] == resized(stored(control_plane, namespace, kind, name), HAD["limits"])
