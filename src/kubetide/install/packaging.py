"""What the Helm chart and the Kustomize bases are made of: the very objects that `kubetide manifests` prints.

The chart lays values over them (`deploy/helm/kubetide/templates`), so that a permission or a flag is written in one
place only. `make docs` writes the files, and a test compares them.
"""

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kubetide import crds
from kubetide.install.dashboard import COMPONENT as DASHBOARD
from kubetide.install.dashboard import dashboard_manifests
from kubetide.install.grafana import grafana_files
from kubetide.install.objects import ALL, COMPONENTS, NAMESPACED, component_objects, namespaces_of, required_crds
from kubetide.install.rbac import CLUSTER, LOCAL
from kubetide.install.sizes import PODS, resources

Raw = dict[str, Any]

# Stand-ins that no object contains by itself; the chart puts what its user chose in their place.
NAMESPACE = "RELEASE-NAMESPACE"
IMAGE = "RELEASE-IMAGE"
WATCHED = "WATCHED-NAMESPACE"

OVERLAYS: dict[str, tuple[tuple[str, ...], str]] = {
    "upstream-replacement": (
        ("hpa", "recommender", "updater", "admission"),
        "What stands in for the horizontal and the vertical autoscaler of upstream.",
    ),
    "recommend-only": (("recommender",), "Recommendations in the status of VPAs; no pod is touched."),
    "node-agent": (("slo", "colocation", "node"), "What shares nodes safely: SLO controller, profiles, agents."),
    "everything": (
        ALL,
        "All components but metrics, which would take metrics.k8s.io over from the server that is there.",
    ),
}


def chart_files() -> dict[str, str]:
    """Return the generated files of the chart, by their path in it."""
    placed = partial(component_objects, namespace=NAMESPACE, image=IMAGE)
    everywhere = {component: placed(component) for component in COMPONENTS}
    everywhere[DASHBOARD] = dashboard_manifests(namespace=NAMESPACE, image=IMAGE)
    one_namespace = {component: placed(component, watched=WATCHED) for component in NAMESPACED}
    spaces = {component: namespaces_of([component]) for component in COMPONENTS if namespaces_of([component])}
    return {
        "files/objects.yaml": as_yaml([everywhere]),
        "files/one-namespace.yaml": as_yaml([one_namespace]),
        "files/namespaces.yaml": as_yaml([spaces]),
        "files/sizes.yaml": as_yaml([{size: {each: resources(each, size) for each in everywhere} for size in PODS}]),
        **{f"crds/{name}.yaml": crds.text(name) for name in crds.names()},
    }


def kustomize_files(image: str) -> dict[str, str]:
    """Return bases, a folder per component, and overlays that choose among them."""
    written = {
        "base/crds/kustomization.yaml": _kustomization([f"{name}.yaml" for name in crds.names()]),
        **{f"base/crds/{name}.yaml": crds.text(name) for name in crds.names()},
    }
    for component in (*COMPONENTS, DASHBOARD):
        make = dashboard_manifests if component == DASHBOARD else partial(component_objects, component)
        objects = make(namespace="kube-system", image=image)
        written[f"base/{component}/objects.yaml"] = as_yaml(objects)
        written[f"base/{component}/kustomization.yaml"] = _kustomization(["objects.yaml"])
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces_of(COMPONENTS)
    ]
    written["base/namespaces/namespaces.yaml"] = as_yaml(spaces)
    written["base/namespaces/kustomization.yaml"] = _kustomization(["namespaces.yaml"])
    for name, (components, meaning) in OVERLAYS.items():
        shared = ["../../base/crds"] if any(map(required_crds, components)) else []
        shared += ["../../base/namespaces"] if namespaces_of(components) else []
        chosen = [*shared, *(f"../../base/{component}" for component in components)]
        written[f"overlays/{name}/kustomization.yaml"] = f"# {meaning}\n{_kustomization(chosen)}"
    return written


def permissions_text() -> str:
    """Return every permission of every component, a line each, for reviewers: a change of one shows up as a line."""
    lines = ["# component | where | API group | resource | verbs (written by `make docs`)"]
    for component in COMPONENTS:
        placed = [("cluster", each) for each in CLUSTER[component]]
        placed += [(each.namespace or "own namespace", each.right) for each in LOCAL[component]]
        for where, each in placed:
            for resource in each.resources:
                named = f"{resource} {'|'.join(each.names)}" if each.names else resource
                lines.append(f"{component} | {where} | {each.group or 'core'} | {named} | {' '.join(each.verbs)}")
    lines.append(f"{DASHBOARD} | | | | none: it reads with the token of whoever looks")
    return "\n".join(lines) + "\n"


def write(deploy: Path, *, image: str) -> None:
    """Write all of it below the folder `deploy`; files of an earlier time that are no longer made are removed."""
    for folder, files in (
        (deploy / "helm" / "kubetide", chart_files()),
        (deploy / "kustomize", kustomize_files(image)),
        (deploy / "grafana", grafana_files()),
        (deploy, {"permissions.txt": permissions_text()}),
    ):
        for generated in ("files/*.yaml", "crds/*.yaml", "base/*/*.yaml", "overlays/*/*.yaml"):
            for old in folder.glob(generated):
                if str(old.relative_to(folder)) not in files:
                    old.unlink()
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)


def as_yaml(objects: list[Raw]) -> str:
    """Return objects as one YAML stream."""
    return yaml.dump_all(objects, Dumper=_PlainDumper, sort_keys=False, explicit_start=True, width=120)


class _PlainDumper(yaml.SafeDumper):
    """Writes repeated values out: Kubernetes tools read YAML anchors, people do not."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _kustomization(resources: list[str]) -> str:
    return as_yaml([{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}])
