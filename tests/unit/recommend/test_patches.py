"""Changes for Git: patches hold sizes alone, and manifests keep every byte but the amounts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubetide.api.values.quantity import parse_quantity
from kubetide.recommend import Container, Options, Row, Sizes, rows
from kubetide.recommend.core.patches import layout, patch, vpas
from kubetide.recommend.core.sizing import LimitPolicy
from kubetide.recommend.core.workloads import NOTHING, Maker, Place, Workload, key_of
from kubetide.recommend.manifest_edits import edit_repository, find_in_repository
from kubetide.recommend.outputs.sarif import sarif
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


def test_kustomize_is_told_of_the_containers_before_one() -> None:
    two = replace(WEB, containers=(Container("mesh", sidecar=True, after=("migrate",)),))
    (file,) = (each for name, each in layout("kustomize", made(two))[0].items() if name != "kustomization.yaml")
    first, second = file.document["spec"]["template"]["spec"]["initContainers"]
    assert (first, second["name"]) == ({"name": "migrate"}, "mesh")
    (file,) = layout("kubectl", made(two))[0].values()
    assert [each["name"] for each in file.document["spec"]["template"]["spec"]["initContainers"]] == ["mesh"]


def with_limits(limits: LimitPolicy) -> Options:
    return replace(FIXED, limits=limits)


def test_layouts_have_a_file_per_workload_and_name_what_they_leave_out() -> None:
    unclear = replace(WEB, kind="Fleet", api_version="example.com/v1", name="games", no_template="no pod template")
    found = [*made(), *made(replace(WEB, kind="Job", api_version="batch/v1", name="import")), *made(unclear)]
    files, left_out = layout("kustomize", found)
    assert sorted(files) == ["kustomization.yaml", "shop/deployment-web.yaml"]
    assert files["kustomization.yaml"].document["patches"] == [{"path": "shop/deployment-web.yaml"}]
    assert left_out == [
        "Fleet shop/games: no patch, it has no pod template that could be found",
        "Job shop/import: no patch, the template of a Job cannot be changed",
    ]
    assert "no pod template: sizes of its pods today, and no patch" in found[-1].notes
    values, none = layout("helm-values", found)
    requests = values["shop/deployment-web.yaml"].document["resources"]["requests"]
    assert (requests, none) == ({"cpu": "150m", "memory": "300Mi"}, [])


def rollout(holds: tuple[str, ...], limits: Sizes = NOTHING, path: str = "containers/1") -> Workload:
    place = Place(resource="rollouts.argoproj.io", path=f"/spec/template/spec/{path}", holds=holds)
    had = Sizes(1000, None) if "requests" in holds else NOTHING
    main = Container("main", had, limits, place=place)
    return replace(WEB, api_version="argoproj.io/v1alpha1", kind="Rollout", name="canary", containers=(main,))


SIZES = {"cpu": "150m", "memory": "300Mi"}
NEW = [(f"/requests/{resource}", amount) for resource, amount in SIZES.items()]


@pytest.mark.parametrize(
    ("workload", "changes"),
    [
        pytest.param(rollout(()), [("", {"requests": SIZES})], id="no-resources"),
        pytest.param(rollout(("resources",)), [("/requests", SIZES)], id="no-requests"),
        pytest.param(rollout(("resources", "requests")), NEW, id="beside-what-is-there"),
        pytest.param(
            rollout(("resources", "requests", "limits"), Sizes(2000, None)),
            [*NEW, ("/limits/cpu", None)],
            id="a-limit-that-goes",
        ),
    ],
)
def test_a_json_patch_first_makes_sure_of_the_container(workload: Workload, changes: list[tuple[str, Any]]) -> None:
    found = made(workload, with_limits(LimitPolicy.NONE))
    files, left_out = layout("kubectl", found)
    (file,) = files.values()
    base = "/spec/template/spec/containers/1"
    assert file.document[0] == {"op": "test", "path": f"{base}/name", "value": "main"}
    assert file.document[1:] == [
        {"op": "remove", "path": f"{base}/resources{path}"}
        if value is None
        else {"op": "add", "path": f"{base}/resources{path}", "value": value}
        for path, value in changes
    ]
    assert file.command == "kubectl patch -n shop rollouts.argoproj.io/canary --type=json"
    assert left_out == []
    parts = layout("kustomize", found)[0]["kustomization.yaml"].document["patches"]
    group = {"group": "argoproj.io", "version": "v1alpha1"}
    target = {**group, "kind": "Rollout", "name": "canary", "namespace": "shop"}
    assert parts == [{"path": "shop/rollout-canary.yaml", "target": target}]


def test_kustomize_and_helm_keep_what_they_wrote_last_time() -> None:
    applied = Container("main", Sizes(150, 300 * MIB), Sizes(2000, 2048 * MIB))
    found = made(replace(WEB, containers=(applied, Container("new"))))
    assert [row.recommended == row.current for row in sorted(found, key=lambda row: row.position)] == [True, False]
    named = {
        name: [each["name"] for each in patched(layout(name, found)[0]["shop/deployment-web.yaml"].document)]
        for name in ("kubectl", "kustomize")
    }
    assert named == {"kubectl": ["new"], "kustomize": ["main", "new"]}
    assert set(layout("helm-values", found)[0]["shop/deployment-web.yaml"].document) == {"main", "new"}
    assert layout("kubectl", made(replace(WEB, containers=(applied,)))) == ({}, [])


def patched(document: Any) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = document["spec"]["template"]["spec"]["containers"]
    return containers


def test_a_json_patch_for_kustomize_does_not_count_on_what_it_wrote_itself() -> None:
    others = {"limits": {"ephemeral-storage": "1Gi"}, "claims": [{"name": "gpu"}]}
    place = Place(resource="rollouts.argoproj.io", path="/spec/template/spec/containers/1", others=others)
    workload = rollout(("resources", "requests", "limits"), Sizes(2000, None))
    workload = replace(workload, containers=(replace(workload.containers[0], place=place),))
    kept, dropped = (
        layout("kustomize", made(workload, options))[0]["shop/rollout-canary.yaml"].document
        for options in (FIXED, with_limits(LimitPolicy.NONE))
    )
    for document, limits in ((kept, {"ephemeral-storage": "1Gi", "cpu": "2"}), (dropped, {"ephemeral-storage": "1Gi"})):
        assert [(step["op"], step["path"].removeprefix(place.path)) for step in document] == [
            ("test", "/name"),
            ("add", "/resources"),
        ]
        assert document[1]["value"] == {"limits": limits, "claims": [{"name": "gpu"}], "requests": SIZES}


def test_a_manifest_that_differs_from_the_cluster_is_edited_too(tmp_path: Path) -> None:
    applied = replace(WEB, containers=(Container("main", Sizes(150, 300 * MIB)),))
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n"
    text += "      containers:\n        - name: main\n          resources:\n            requests:\n"
    (tmp_path / "web.yaml").write_text(text + "              cpu: 2\n              memory: 300Mi\n")
    silent = replace(applied, name="elsewhere")
    _, problems = edit_repository(tmp_path, [*made(applied), *made(silent)])
    assert "cpu: 150m\n" in (tmp_path / "web.yaml").read_text()
    assert problems == [], "what is right in the cluster needs no manifest"


def test_a_vpa_is_for_what_makes_the_pods() -> None:
    maker = Maker(api_version="argoproj.io/v1alpha1", kind="Rollout", name="canary")
    found = made(replace(WEB, maker=maker))
    assert vpas(found)[0]["spec"]["targetRef"]["kind"] == "Rollout"
    assert patch(found)["kind"] == "Deployment"
    assert "its pods are made by Rollout canary, from this template" in found[0].notes


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
        pytest.param("resources: {}  # none yet", "resources:  # none yet\nrequests:\n    cpu: 150m", id="empty"),
        pytest.param("resources:", "memory: 300Mi", id="null"),
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


def test_a_rollout_in_a_repository_is_changed_as_a_deployment_is(tmp_path: Path) -> None:
    file = tmp_path / "rollout.yaml"
    text = MANIFEST.replace("kind: Deployment", "kind: Rollout").replace("name: web,", "name: canary,")
    file.write_text(text)
    _, problems = edit_repository(tmp_path, made(rollout(("resources", "requests", "limits"), Sizes(2000, 2048 * MIB))))
    assert problems == []
    assert file.read_text() == text.replace('{cpu: "1", memory: 1Gi}', "{cpu: 150m, memory: 300Mi}")


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


def test_rows_are_found_at_the_lines_of_a_repository(tmp_path: Path) -> None:
    folder = tmp_path / "deploy here"
    folder.mkdir()
    (tmp_path / ".git").mkdir()
    text = "# ours\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n"
    text += "      containers:\n        - name: main\n          image: x\n"
    (folder / "web.yaml").write_text(text)
    (folder / "old.yaml").write_bytes(b"name: \xe9t\xe9\n")
    silent = replace(WEB, name="silent")
    found = [*made(), *made(silent)]
    places, problems = find_in_repository(folder, found)
    assert list(places.values()) == [("deploy here/web.yaml", 9)]
    assert (folder / "web.yaml").read_text() == text
    assert problems[0].startswith("old.yaml: cannot be read: ")
    assert problems[1:] == ["Deployment shop/silent: no manifest found"]
    (result,) = sarif(found, places)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "deploy%20here/web.yaml"}, "region": {"startLine": 9}}
    assert len(sarif(found)["runs"][0]["results"]) == 2
    assert edit_repository(folder, found)[1] == problems
