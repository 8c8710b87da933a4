"""Releases of the chart on a real API server: installed, upgraded, rolled back and removed, beside what others made."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.chart import CHART, NEEDS_HELM, NEEDS_KUBECTL, Raw, helm, render
from e2e.controlplane import BinariesMissing, ControlPlane, connected, running
from kubetide.install.objects import COMPONENTS
from kubetide.install.packaging import OVERLAYS
from kubetide.metrics.registration import Registration

pytestmark = [NEEDS_HELM, NEEDS_KUBECTL]
SECONDS = 300
"""How long a command may take on a machine that is busy with other work."""
OWN_KINDS = (
    "deployments,daemonsets,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,"
    "ingresses,verticalpodautoscalers"
)
CLUSTER_KINDS = "clusterroles,clusterrolebindings,apiservices,priorityclasses"


@dataclass(frozen=True)
class Server:
    """A real API server, and what its administrator does with it."""

    plane: ControlPlane

    def kubectl(self, *arguments: str, given: str = "") -> str:
        command = ["kubectl", f"--kubeconfig={self.plane.kubeconfig()}", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: Raw) -> None:
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind: str, name: str, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", kind, name, "-o", "json", *arguments))

    def names(self, kinds: str, *arguments: str) -> set[str]:
        return set(self.kubectl("get", kinds, "-o", "name", *arguments).split())

    def helm(self, *arguments: str, namespace: str) -> "subprocess.CompletedProcess[str]":
        config = f"--kubeconfig={self.plane.kubeconfig()}"
        return helm(*arguments, f"--namespace={namespace}", config)

    def release(self, *arguments: str, namespace: str) -> None:
        done = self.helm(*arguments, namespace=namespace)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Objects of releases are cluster-wide: a server of their own keeps them from other tests."""
    try:
        with running(tmp_path_factory.mktemp("releases")) as plane:
            yield Server(plane)
    except BinariesMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def where(server: Server) -> Iterator[str]:
    """A namespace for a release named tide, which is removed afterwards; what it keeps on purpose goes too."""
    namespace = f"tide-{len(server.names('namespaces'))}"
    server.kubectl("create", "namespace", namespace)
    yield namespace
    server.helm("uninstall", "tide", namespace=namespace)
    server.kubectl("delete", "configmap", "slo-controller-config", "-n", "koordinator-system", "--ignore-not-found")


def deployments(server: Server, namespace: str) -> set[str]:
    return {name.removeprefix("deployment.apps/kubetide-") for name in server.names("deployments", "-n", namespace)}


def switched_on(*components: str) -> str:
    return "--set=" + ",".join(f"{component}.enabled=true" for component in components)


def test_install_upgrade_roll_back_and_remove(server: Server, where: str) -> None:
    server.release("install", "tide", str(CHART), "--set=recommender.replicas=2", namespace=where)
    assert deployments(server, where) == {"recommender", "updater", "admission"}
    # A release sizes itself.
    assert len(server.names("verticalpodautoscalers", "-n", where)) == 3
    server.apply(
        {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": {"name": "web-main", "namespace": where},
            "spec": {"vpaObjectName": "web", "containerName": "main"},
        }
    )
    server.release("upgrade", "tide", str(CHART), switched_on("hpa", "slo"), namespace=where)
    assert deployments(server, where) == {"recommender", "updater", "admission", "hpa", "slo"}
    server.release("rollback", "tide", "1", namespace=where)
    assert deployments(server, where) == {"recommender", "updater", "admission"}
    server.release("uninstall", "tide", namespace=where)
    chosen = ("-l", "app.kubernetes.io/instance=tide")
    assert server.names(OWN_KINDS, "-n", where, *chosen) | server.names(CLUSTER_KINDS, *chosen) == set()
    # What the recommender has learned outlives the release.
    assert len(server.names("verticalpodautoscalercheckpoints", "-n", where)) == 1


EVERYTHING = {
    "networkPolicy.enabled": "true",
    "metricsApis.custom": "true",
    "metricsApis.external": "true",
    "selfSizing.enabled": "true",
    "freshSignals.enabled": "true",
    "defaults.shards": "auto",
    "defaults.replicas": "2",
    "dashboard.enabled": "true",
    "dashboard.ingress.enabled": "true",
    "dashboard.ingress.host": "tide.test",
    "tracing.endpoint": "http://collector:4318",
}


def test_the_server_knows_every_field_of_every_object(server: Server, where: str) -> None:
    chosen = ",".join(f"{key}={value}" for key, value in EVERYTHING.items())
    server.release("install", "tide", str(CHART), switched_on(*COMPONENTS), f"--set={chosen}", namespace=where)
    assert deployments(server, where) == {*COMPONENTS, "dashboard"} - {"node"}
    # Helm passes over fields that nobody knows; a strict server does not.
    rendered = server.helm("get", "manifest", "tide", namespace=where).stdout
    server.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-", given=rendered)


def test_a_release_is_kept_to_one_namespace(server: Server, where: str) -> None:
    values = f"--set=watchNamespace={where},hpa.enabled=true,plan.enabled=true"
    server.release("install", "tide", str(CHART), values, namespace=where)
    bound = server.get("clusterrole", f"kubetide-updater-{where}")["rules"]
    assert {name for rule in bound for name in rule["resources"]} == {"nodes"}
    # Permissions reach the server's authorizer a moment after they are written.
    until(lambda: may_evict(server, where))
    assert not may_evict(server, "default", account_of=where)


def may_evict(server: Server, namespace: str, account_of: str = "") -> bool:
    """Return whether the updater of a release may evict pods in a namespace."""
    account = f"--as=system:serviceaccount:{account_of or namespace}:kubetide-updater"
    command = ["auth", "can-i", "create", "pods", "--subresource=eviction", "-n", namespace, account]
    line = ["kubectl", f"--kubeconfig={server.plane.kubeconfig()}", *command]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout.strip() == "yes"


def until(wanted: Callable[[], bool]) -> None:
    """Wait for what the server brings about by itself."""
    deadline = time.monotonic() + SECONDS
    while not wanted():
        assert time.monotonic() < deadline, f"it did not come to it in {SECONDS} s"
        time.sleep(0.2)


def test_edits_of_the_configuration_survive_upgrades_and_the_release(server: Server, where: str) -> None:
    def config() -> dict[str, str]:
        found = server.get("configmap", "slo-controller-config", "-n", "koordinator-system")["data"]
        return {key: found[key] for key in found if key != "resource-threshold-config"}

    server.release("install", "tide", str(CHART), switched_on("slo"), namespace=where)
    assert config() == {"colocation-config": '{"enable": false}'}
    edited = json.dumps({"data": {"colocation-config": '{"enable": true}'}})
    place = ("configmap", "slo-controller-config", "-n", "koordinator-system")
    server.kubectl("patch", *place, "--type=merge", "-p", edited)
    values = (switched_on("slo"), "--set-json", 'slo.config={"cpu-normalization-config":{"enable":true}}')
    server.release("upgrade", "tide", str(CHART), *values, namespace=where)
    wanted = {"colocation-config": '{"enable": true}', "cpu-normalization-config": '{"enable":true}'}
    assert config() == wanted
    server.release("uninstall", "tide", namespace=where)
    assert config() == wanted
    server.release("install", "tide", str(CHART), switched_on("slo"), namespace=where)
    assert config() == wanted


def test_what_koordinator_made_is_left_alone(server: Server, where: str) -> None:
    spaces = server.names("namespaces")
    if "namespace/koordinator-system" not in spaces:
        server.kubectl("create", "namespace", "koordinator-system")
    meta = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    kept = {"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 50}'}
    server.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": kept})
    meta = {"name": "koord-batch"}
    server.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 5500})
    for action in ("install", "upgrade"):
        server.release(action, "tide", str(CHART), switched_on("slo", "colocation", "node"), namespace=where)
        assert server.get("configmap", "slo-controller-config", "-n", "koordinator-system")["data"] == kept
        assert server.get("priorityclass", "koord-batch")["value"] == 5500
    server.release("uninstall", "tide", namespace=where)
    assert "priorityclass.scheduling.k8s.io/koord-batch" in server.names("priorityclasses")
    server.kubectl("delete", "priorityclass", "koord-batch")


def test_the_metrics_api_is_taken_over_when_asked_for(server: Server, where: str) -> None:
    service = {"name": "metrics-server", "namespace": "kube-system"}
    spec = {"group": "metrics.k8s.io", "version": "v1beta1", "service": service, "insecureSkipTLSVerify": True}
    spec |= {"groupPriorityMinimum": 100, "versionPriority": 100}
    meta = {"name": "v1beta1.metrics.k8s.io"}
    server.apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": meta, "spec": spec})
    values = (switched_on("metrics"), "--set=recommender.enabled=false,updater.enabled=false,admission.enabled=false")
    refused = server.helm("install", "tide", str(CHART), *values, namespace=where)
    assert refused.returncode != 0
    assert "v1beta1.metrics.k8s.io" in refused.stderr
    server.release("install", "tide", str(CHART), *values, "--take-ownership", namespace=where)
    found = server.get("apiservice", "v1beta1.metrics.k8s.io")["spec"]
    assert found["service"]["name"] == "kubetide-metrics"
    # What metrics-server leaves unverified, the metrics server verifies as soon as it runs.
    asyncio.run(registered(server.plane, where))
    found = server.get("apiservice", "v1beta1.metrics.k8s.io")["spec"]
    assert (found.get("insecureSkipTLSVerify", False), bool(found["caBundle"])) == (False, True)


async def registered(plane: ControlPlane, namespace: str) -> None:
    """Let the metrics server of a release write its CA."""
    async with connected(plane, "admin") as client:
        names = ["v1beta1.metrics.k8s.io"]
        ours = Registration(client, names=names, required=names, service="kubetide-metrics", namespace=namespace)
        await ours.refresh(plane.ca.certificate)
        assert ours.problems == {}


def test_components_run_where_pods_are_restricted(server: Server) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": label}})
    refused = set()
    for workload in render({"dashboard.enabled": "true"}):
        if workload["kind"] in ("Deployment", "DaemonSet"):
            name = workload["metadata"]["name"]
            meta = {"name": name, "namespace": "strict"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": workload["spec"]["template"]["spec"]}
            create = ["kubectl", f"--kubeconfig={server.plane.kubeconfig()}", "create", "--dry-run=server", "-f", "-"]
            given = json.dumps(pod)
            done = subprocess.run(create, input=given, capture_output=True, text=True, timeout=SECONDS, check=False)
            refused |= {name} if done.returncode else set()
    # The agent has the host's folders.
    assert refused == {"kubetide-node"}


@pytest.mark.parametrize("overlay", list(OVERLAYS))
def test_overlays_are_applied(server: Server, overlay: str) -> None:
    folder = CHART.parents[1] / "kustomize" / "overlays" / overlay
    server.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-k", str(folder))
    assert deployments(server, "kube-system") >= set(OVERLAYS[overlay][0]) - {"node"}
    chosen = ("-l", "app.kubernetes.io/name=kubetide")
    server.kubectl("delete", "deployments,daemonsets", "-n", "kube-system", *chosen, "--ignore-not-found")
