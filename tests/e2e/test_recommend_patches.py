"""Patches of `kubetide recommend` on a real kube-apiserver: accepted in a dry run, and nothing but sizes changes."""

import copy
import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.controlplane import ControlPlane, find_program
from e2e.test_doctor_real import shell
from kubetide.recommend import Container, LimitPolicy, Options, Row, Sizes, rows
from kubetide.recommend.core.workloads import key_of
from kubetide.recommend.manifest_edits import edit_repository
from kubetide.recommend.patch_files import write_layout
from unit.recommend.test_rows import MIB, WEB, usage

HAD = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi"}}
WANTED = {"cpu": "150m", "memory": "300Mi"}


def manifests() -> list[dict[str, Any]]:
    containers = [
        {"name": "main", "image": "example.com/web", "resources": HAD, "env": [{"name": "A", "value": "b"}]},
        {"name": "proxy", "image": "example.com/proxy"},
    ]
    pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    cron = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers, "restartPolicy": "Never"}}
    selected = {"selector": {"matchLabels": {"app": "web"}}, "template": pod}
    meta = {"metadata": {"name": "web"}}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", **meta, "spec": selected},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", **meta, "spec": {**selected, "serviceName": "web"}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", **meta, "spec": selected},
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            **meta,
            "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": cron}}},
        },
    ]


def made(namespace: str, limits: LimitPolicy) -> list[Row]:
    main = Container("main", Sizes(1000, 1024 * MIB), Sizes(2000, 2048 * MIB))
    options = Options(floor=Sizes(150, 300 * MIB), ceiling=Sizes(150, 300 * MIB), limits=limits)
    workloads = [
        replace(
            WEB,
            namespace=namespace,
            kind=each["kind"],
            api_version=each["apiVersion"],
            containers=(main, Container("proxy")),
        )
        for each in manifests()
    ]
    samples = {key_of(each, one.name): usage(1) for each in workloads for one in each.containers}
    return rows(workloads, samples, options)


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    spec = body["spec"]["jobTemplate"]["spec"] if body["kind"] == "CronJob" else body["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def expected(before: dict[str, Any], limits: dict[str, str]) -> dict[str, Any]:
    """Return the spec as it must be afterwards: the sizes of both containers, and everything else as it was."""
    after = copy.deepcopy(before)
    main, proxy = pod_of(after)["containers"]
    main["resources"] = {"requests": WANTED, "limits": limits}
    proxy["resources"] = {"requests": WANTED}
    spec: dict[str, Any] = after["spec"]
    return spec


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: install the kubernetes-client package")
    name = f"recommend-{uuid.uuid4().hex[:6]}"
    shell(control_plane, f"kubectl create namespace {name}")
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests()})
    shell(control_plane, f"kubectl apply -n {name} -f -", given=body)
    return name


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        pytest.param(LimitPolicy.KEEP, HAD["limits"], id="limits-kept"),
        pytest.param(LimitPolicy.NONE, {"ephemeral-storage": "1Gi"}, id="limits-removed"),
    ],
)
def test_patches_for_kubectl_change_sizes_alone(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, limits: LimitPolicy, left: dict[str, str]
) -> None:
    written, left_out = write_layout(tmp_path, "kubectl", made(namespace, limits))
    assert (len(written), left_out) == (4, [])
    for path in written:
        command = path.read_text().splitlines()[0].removeprefix("# ").replace(path.name, str(path))
        kind = yaml.safe_load(path.read_text())["kind"].lower()
        before = json.loads(shell(control_plane, f"kubectl get -n {namespace} {kind}/web -o json"))
        after = json.loads(shell(control_plane, f"{command} --dry-run=server -o json"))
        assert after["spec"] == expected(before, left)


def test_kustomize_and_a_repository_give_the_same_objects(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    found = made(namespace, LimitPolicy.KEEP)
    write_layout(tmp_path / "sizes", "kustomize", found)
    objects = [{**each, "metadata": {"name": "web", "namespace": namespace}} for each in manifests()]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    whole = {"resources": ["all.yaml"], "components": ["sizes"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    apply = "--dry-run=server -o json"
    patched = json.loads(shell(control_plane, f"kubectl apply -k {tmp_path} {apply}"))["items"]
    (tmp_path / "kustomization.yaml").unlink()
    shutil.rmtree(tmp_path / "sizes")
    _, problems = edit_repository(tmp_path, found)
    assert problems == []
    edited = json.loads(shell(control_plane, f"kubectl apply -f {tmp_path} {apply}"))["items"]
    for items in (patched, edited):
        assert len(items) == 4
        for item in items:
            kind = item["kind"].lower()
            before = json.loads(shell(control_plane, f"kubectl get -n {namespace} {kind}/web -o json"))
            assert item["spec"] == expected(before, HAD["limits"])


def test_helm_values_are_resources_that_a_template_can_take(tmp_path: Path) -> None:
    written, _ = write_layout(tmp_path, "helm-values", made("shop", LimitPolicy.KEEP))
    for path in written:
        values = yaml.safe_load(path.read_text())
        assert {name: each["resources"]["requests"] for name, each in values.items()} == {
            "main": WANTED,
            "proxy": WANTED,
        }


CHART = """apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: main
          image: example.com/web
          env: [{name: A, value: b}]
          resources: {{- toYaml .Values.main.resources | nindent 12 }}
        - name: proxy
          image: example.com/proxy
          resources: {{- toYaml .Values.proxy.resources | nindent 12 }}
"""


@pytest.mark.skipif(find_program("helm") is None, reason="needs helm in KUBEBUILDER_ASSETS")
def test_a_chart_with_the_values_gives_the_same_object(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: web, version: 0.1.0}")
    (chart / "values.yaml").write_text(yaml.safe_dump({"main": {"resources": HAD}, "proxy": {"resources": {}}}))
    (chart / "templates" / "web.yaml").write_text(CHART)
    written, _ = write_layout(tmp_path / "values", "helm-values", made(namespace, LimitPolicy.KEEP))
    (values,) = (path for path in written if "deployment" in path.name.lower())
    rendered = shell(control_plane, f"{find_program('helm')} template web {chart} --values {values}")
    apply = f"kubectl apply -n {namespace} -f - --dry-run=server -o json"
    after = json.loads(shell(control_plane, apply, given=rendered))
    before = json.loads(shell(control_plane, f"kubectl get -n {namespace} deployment/web -o json"))
    assert after["spec"] == expected(before, HAD["limits"])
