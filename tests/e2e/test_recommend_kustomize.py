"""The layout for kustomize with the real kustomize of kubectl: built again and again, the sizes stay."""

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from e2e.test_recommend_patches import HAD, WANTED
from e2e.test_recommend_rollouts import manifests
from kubetide.api.objects.scheme import Resource
from kubetide.recommend import LimitPolicy, Options, Row, Sizes, rows
from kubetide.recommend.cluster import BUILT_IN
from kubetide.recommend.core.templates import Custom, Found, Templated, read, workload_of
from kubetide.recommend.core.workloads import key_of
from kubetide.recommend.patch_files import write_layout
from unit.recommend.test_rows import MIB, usage

ROLLOUTS: Resource[Custom] = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout", Custom)
Raw = dict[str, Any]


def found(body: Raw) -> Found:
    """Return an object as it would be read from a cluster."""
    if body["kind"] == "Rollout":
        return read(ROLLOUTS, msgspec.convert(body, Custom))
    return read(BUILT_IN[0], msgspec.convert(body, Templated))


def made(objects: list[Raw], limits: LimitPolicy) -> list[Row]:
    workloads = [each for body in objects if (each := workload_of(found(body), [])) is not None and each.containers]
    known = [each for each in workloads if not each.no_template]
    samples = {key_of(each, one.name): usage(1) for each in known for one in each.containers}
    fixed = Sizes(150, 300 * MIB)
    return rows(known, samples, Options(floor=fixed, ceiling=fixed, limits=limits))


def built(folder: Path) -> list[Raw]:
    shown = subprocess.run(["kubectl", "kustomize", str(folder)], check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(shown))


def sizes_of(container: Raw) -> Raw | None:
    """Return resources; of limits that go, kustomize leaves an empty mapping."""
    held = container.get("resources")
    return None if held is None else {part: amounts for part, amounts in held.items() if amounts}


@pytest.mark.parametrize("limits", [LimitPolicy.KEEP, LimitPolicy.NONE])
def test_a_second_report_on_what_the_first_one_changed_builds_the_same(tmp_path: Path, limits: LimitPolicy) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: install the kubernetes-client package")
    base = [{**each, "metadata": {**each["metadata"], "namespace": "shop"}} for each in manifests()]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(base))
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["all.yaml"], "components": ["sizes"]}))
    cluster = copy.deepcopy(base)
    for _ in range(3):
        shutil.rmtree(tmp_path / "sizes", ignore_errors=True)
        no_limits = limits is LimitPolicy.NONE
        write_layout(tmp_path / "sizes", "kustomize", made(cluster, limits), no_limits=no_limits)
        cluster = built(tmp_path)
        for body in cluster:
            if "template" not in body["spec"]:
                continue
            pod = body["spec"]["template"]["spec"]
            assert [each["name"] for each in pod["containers"]] == ["proxy", "main", "logs"]
            assert [each["name"] for each in pod["initContainers"]] == ["migrate", "mesh"]
            left = HAD["limits"] if limits is LimitPolicy.KEEP else {"ephemeral-storage": "1Gi"}
            sizes = [sizes_of(each) for each in (*pod["initContainers"], *pod["containers"])]
            asked = {"requests": WANTED}
            assert sizes == [None, asked, asked, {**asked, "limits": left}, {**asked, "limits": left}]
