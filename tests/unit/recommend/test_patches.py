"""Changes for Git: patches hold sizes alone, and manifests keep every byte but the amounts."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubetide.api.values.quantity import parse_quantity
from kubetide.recommend import Container, Options, Row, Sizes, rows
from kubetide.recommend.core.patches import layout, patch, vpas
from kubetide.recommend.core.sizing import LimitPolicy
from kubetide.recommend.core.workloads import Workload, key_of
from kubetide.recommend.manifest_edits import edit_repository
from unit.recommend.test_rows import MIB, WEB, usage

FIXED = Options(floor=Sizes(150, 300 * MIB), ceiling=Sizes(150, 300 * MIB))


def made(workload: Workload = WEB, options: Options = FIXED) -> list[Row]:
    return rows([workload], {key_of(workload, each.name): usage() for each in workload.containers}, options)


def test_a_patch_names_containers_and_their_sizes_alone() -> None:
    assert patch(made()) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "resources": {
                                "requests": {"cpu": "150m", "memory": "300Mi"},
                                "limits": {"cpu": "2", "memory": "2Gi"},
                            },
                        }
                    ]
                }
            }
        },
    }
    job = patch(made(replace(WEB, kind="CronJob", api_version="batch/v1")))
    assert "containers" in job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    gone = patch(made(options=with_limits(LimitPolicy.NONE)))
    assert gone["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": None, "memory": None}


def with_limits(limits: LimitPolicy) -> Options:
    return replace(FIXED, limits=limits)


def test_layouts_have_a_file_per_workload_and_name_what_they_leave_out() -> None:
    found = [*made(), *made(replace(WEB, kind="Rollout", name="canary"))]
    files, left_out = layout("kustomize", found)
    assert sorted(files) == ["kustomization.yaml", "shop/deployment-web.yaml"]
    assert files["kustomization.yaml"][0]["patches"] == [{"path": "shop/deployment-web.yaml"}]
    assert left_out == ["Rollout shop/canary"]
    values, none = layout("helm-values", found)
    assert values["shop/deployment-web.yaml"][0]["resources"]["requests"] == {"cpu": "150m", "memory": "300Mi"}
    assert none == []


def test_vpas_are_off_and_one_per_workload() -> None:
    two = replace(WEB, containers=(Container("main"), Container("proxy")))
    (vpa,) = vpas(made(two))
    assert vpa["spec"]["updatePolicy"] == {"updateMode": "Off"}
    assert vpa["spec"]["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


MANIFEST = """\
# The shop.
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
    template:
        spec:
            containers:
            - name:  main   # two blanks
              resources:
                requests: {cpu: "1", memory: 1Gi}  # as measured in spring
                limits:
                    cpu:    '2'   # two cores
                    memory: 2Gi
              image: "web:1"
---
apiVersion: v1
kind: Service
metadata:
  name: web
"""


def test_a_manifest_keeps_every_byte_but_the_amounts(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(MANIFEST)
    (tmp_path / "template.yaml").write_text("kind: {{ .Values.kind }}\n")
    shown, problems = edit_repository(tmp_path, made())
    assert file.read_text() == MANIFEST.replace('{cpu: "1", memory: 1Gi}', "{cpu: 150m, memory: 300Mi}")
    assert problems == []
    assert "+                requests: {cpu: 150m, memory: 300Mi}  # as measured in spring\n" in shown
    again, _ = edit_repository(tmp_path, made())
    assert again == ""


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param("", "requests:\n    cpu: 150m\n    memory: 300Mi", id="no-resources"),
        pytest.param("resources:\n  limits:\n    memory: 2Gi", "memory: 300Mi", id="no-requests"),
        pytest.param("resources:\n  requests:\n    cpu: 1 # one", "cpu: 150m # one", id="no-memory"),
    ],
)
def test_what_is_missing_is_added_where_it_belongs(tmp_path: Path, resources: str, expected: str) -> None:
    import yaml

    indented = "".join(f"        {line}\n" for line in resources.splitlines())
    file = tmp_path / "web.yaml"
    head = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n"
    file.write_text(f"{head}      containers:\n      - name: main\n{indented}        image: web:1\n")
    _, problems = edit_repository(tmp_path, made())
    assert problems == []
    text = file.read_text()
    container = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "150m", "memory": "300Mi"}
    assert parse_quantity(container["resources"]["limits"]["memory"]).value == 2048 * MIB
    assert container["image"] == "web:1"
    assert expected.splitlines()[-1].strip() in text


def test_limits_that_go_are_removed_and_what_is_not_found_is_named(tmp_path: Path) -> None:
    import yaml

    file = tmp_path / "web.yaml"
    file.write_text(MANIFEST)
    found = [*made(options=with_limits(LimitPolicy.NONE)), *made(replace(WEB, name="other"))]
    _, problems = edit_repository(tmp_path, found)
    documents = list(yaml.safe_load_all(file.read_text()))
    assert documents[0]["spec"]["template"]["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "150m", "memory": "300Mi"}
    }
    assert problems == ["Deployment shop/other: no manifest found"]


def test_workloads_of_one_name_and_two_kinds_get_vpas_of_two_names() -> None:
    found = vpas([*made(), *made(replace(WEB, kind="StatefulSet")), *made(replace(WEB, name="shop"))])
    names = {(vpa["metadata"]["name"], vpa["spec"]["targetRef"]["kind"]) for vpa in found}
    assert names == {("web-deployment", "Deployment"), ("web-statefulset", "StatefulSet"), ("shop", "Deployment")}
