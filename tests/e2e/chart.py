"""The chart and the real helm, for tests: render a release, find its objects, leave out what only Helm says of them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.controlplane import find_program
from kubetide.install.objects import COMPONENTS

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "kubetide"
HELM = find_program("helm") or shutil.which("helm")
NEEDS_HELM = pytest.mark.skipif(HELM is None, reason="needs helm, on the PATH or in KUBEBUILDER_ASSETS")
NEEDS_KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
Raw = dict[str, Any]
KUBERNETES = "--kube-version=1.37.0"
PLAIN = {"selfSizing.enabled": "false", "freshSignals.enabled": "false", "image.repository": "registry.test/kubetide"}
PLAIN |= {f"{component}.replicas": "1" for component in COMPONENTS}
HELM_LABELS = {
    "helm.sh/chart",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
}
"""Labels that say where an object comes from; on pods they never are."""


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True, timeout=300, check=False)


def render(values: dict[str, str] | None = None, *, enabled: tuple[str, ...] = COMPONENTS) -> list[Raw]:
    """Return the objects of a release in the namespace `tide`."""
    switches = {f"{component}.enabled": str(component in enabled).lower() for component in COMPONENTS}
    chosen = [f"--set={key}={value}" for key, value in {**PLAIN, **switches, **(values or {})}.items()]
    done = helm("template", "release", str(CHART), "--namespace=tide", KUBERNETES, *chosen)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def identity(each: Raw) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def plain(each: Raw) -> Raw:
    """Return an object without what only Helm says of it."""
    shown: Raw = json.loads(json.dumps(each))
    labels = {key: value for key, value in shown["metadata"].pop("labels", {}).items() if key not in HELM_LABELS}
    if labels:
        shown["metadata"]["labels"] = labels
    shown["metadata"].pop("annotations", None)
    for container in shown.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
        container.pop("imagePullPolicy", None)
    return shown


def one(objects: list[Raw], kind: str, name: str) -> Raw:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found
