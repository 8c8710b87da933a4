"""kubetide on a whole real cluster of one node: control plane, scheduler, kubelet and containerd, chart and all.

What differs from a cluster of yours: components are processes instead of pods, because no image can be pulled here (the
chart's Deployments have no replicas and its DaemonSet selects no node), each with a token of its own service account
from the chart and nothing more, the agent with its capabilities and no others; and instead of kube-proxy, the addresses
of three Services are put on the loopback interface of the private network in which all of it runs (`make real`). Pods
use the node's network.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cri.realcontainerd import IMAGE, need_containerd
from e2e.controlplane import BinariesMissing, ControlPlane, find_program, running
from e2e.programs import KUBETIDE, program
from kubetide.install.objects import COMPONENTS, component_objects
from real.node import ADDRESS, NAME, RealNode

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "kubetide"
PATIENCE = 300
NAMESPACE = "kube-system"
SLO = {
    "colocation-config": json.dumps({"enable": True, "metricReportIntervalSeconds": 10, "degradeTimeMinutes": 5}),
    "resource-threshold-config": json.dumps(
        {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}}
    ),
}


@dataclass
class Story:
    """What happened, when: printed, and written where KUBETIDE_TRANSCRIPT says."""

    began: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str, shown: str = "") -> None:
        """Note a step, and what a command showed."""
        self.lines.append(f"[{time.monotonic() - self.began:6.1f} s] {text}")
        self.lines += [f"           | {line}" for line in shown.rstrip().splitlines()]
        print(*self.lines[-1 - len(shown.rstrip().splitlines()) :], sep="\n", flush=True)

    def save(self) -> None:
        """Write the transcript, if somebody wants it."""
        if path := os.environ.get("KUBETIDE_TRANSCRIPT"):
            Path(path).write_text("\n".join(self.lines) + "\n")


@dataclass
class Cluster:
    """The cluster, as its administrator sees it."""

    plane: ControlPlane
    node: RealNode
    folder: Path
    story: Story

    def kubectl(self, *arguments: str, given: str = "", codes: tuple[int, ...] = (0,)) -> str:
        """Run kubectl as the administrator."""
        command = ["kubectl", f"--kubeconfig={self.plane.kubeconfig()}", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in codes, f"{command}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def until(self, what: str, wanted: Callable[[], object]) -> Any:
        """Wait for something that the cluster brings about; fail with the logs."""
        deadline = time.monotonic() + PATIENCE
        pause = threading.Event()
        while time.monotonic() < deadline:
            try:
                if found := wanted():
                    return found
            except (AssertionError, KeyError, IndexError):
                pass
            pause.wait(0.5)
        logs = "\n".join(f"== {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log")))
        pytest.fail(f"{what}: not within {PATIENCE} s\n{logs}\n== kubelet\n{self.node.log_of('kubelet')}")

    @contextmanager
    def component(self, name: str, *flags: str) -> Iterator[None]:
        """Run a component with the token of its service account from the chart."""
        account = f"kubetide-{name}"
        token = self.kubectl("create", "token", account, "-n", NAMESPACE, "--duration=1h").strip()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [
                {
                    "name": "real",
                    "cluster": {
                        "server": self.plane.url,
                        "certificate-authority": str(self.plane.folder / "ca.crt"),
                    },
                }
            ],
            "users": [{"name": account, "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": account}}],
        }
        file = self.folder / f"{account}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config))
        verb = ("node",) if name == "node" else ("run", name)
        command = (*KUBETIDE, *verb, f"--kubeconfig={file}", *flags)
        if name == "node":
            # In the node's mounts, and with no other capabilities than the DaemonSet of the chart has.
            command = tuple(self.node.inside(["setpriv", f"--bounding-set=-all,{capabilities()}", *command]))
        with program(self.folder / f"{name}.log", *command):
            yield

    def service_address(self, name: str) -> str:
        """Give a Service's address to this network and name an endpoint for it: kube-proxy and pods would do both."""
        service = self.get("service", name, "-n", NAMESPACE)
        address = str(service["spec"]["clusterIP"])
        subprocess.run(["ip", "addr", "replace", f"{address}/32", "dev", "lo"], check=True)
        if service["spec"].get("selector"):
            unselected = {"spec": {"selector": None}}
            self.kubectl("patch", "service", name, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(unselected))
        meta = {"name": f"{name}-process", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}}
        ports = [{"name": port.get("name", ""), "port": port["port"]} for port in service["spec"]["ports"]]
        endpoints = [{"addresses": [address], "conditions": {"ready": True}}]
        form = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
        self.apply({**form, "metadata": meta, "endpoints": endpoints, "ports": ports})
        return address


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_containerd()
    for name in ("kubelet", "kube-scheduler", "helm"):
        if find_program(name) is None:
            pytest.skip(f"{name} not found: put it into KUBEBUILDER_ASSETS")
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    if f"{ADDRESS}/32" not in subprocess.run(["ip", "addr"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("runs in a private network: make real")
    folder = tmp_path_factory.mktemp("real")
    story = Story()
    try:
        with ExitStack() as stack:
            plane = stack.enter_context(running(folder / "plane", extra=audited(folder)))
            plane.start_controller_manager(extra=("--controllers=*,-horizontal-pod-autoscaler-controller",))
            plane.start_scheduler()
            story.tell("etcd, kube-apiserver, kube-controller-manager (without its autoscaler) and kube-scheduler run")
            node = RealNode(plane)
            stack.callback(node.stop)
            node.start()
            one = Cluster(plane, node, folder, story)
            one.until("the node is ready", lambda: " Ready" in one.kubectl("get", "nodes"))
            story.tell("containerd and kubelet run; the node is ready", one.kubectl("get", "nodes"))
            yield one
    except BinariesMissing as error:
        pytest.skip(str(error))
    finally:
        story.save()


AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]}, {"level": "None"}],
}


def audited(folder: Path) -> tuple[str, str]:
    """Return flags that let the API server write down what service accounts ask for."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    return f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"


def asked(folder: Path) -> list[tuple[str, str, int]]:
    """Return what components asked the API server for: component, request, code of the answer."""
    found = []
    for line in (folder / "audit.log").read_text().splitlines():
        entry = json.loads(line)
        user = entry["user"]["username"].removeprefix(f"system:serviceaccount:{NAMESPACE}:")
        if user.startswith("kubetide-"):
            code = (entry.get("responseStatus") or {}).get("code", 0)
            found.append((user.removeprefix("kubetide-"), f"{entry['verb']} {entry['requestURI']}", code))
    return found


def workload(name: str, script: str, *, namespace: str = "default", **resources: dict[str, str]) -> dict[str, Any]:
    """Return a Deployment of one pod that runs a line of shell."""
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "hostNetwork": True,
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": False,
                    "containers": [{**container, "resources": resources}],
                },
            },
        },
    }


BUSY = "while :; do :; done"
IDLE = "sleep 100000"


def autoscaler(name: str) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    used = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [{"type": "Resource", "resource": used}]}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}


def sizer(name: str) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    policy = {"updateMode": "InPlaceOrRecreate", "minReplicas": 1}
    bounds = {"containerName": "main", "controlledResources": ["cpu"], "controlledValues": "RequestsOnly"}
    spec = {"targetRef": target, "updatePolicy": policy, "resourcePolicy": {"containerPolicies": [bounds]}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": meta, "spec": spec}


def profile(name: str) -> dict[str, Any]:
    """Return a profile that makes the pods of a workload best-effort batch work."""
    spec = {"selector": {"matchLabels": {"app": name}}, "qosClass": "BE", "priorityClassName": "koord-batch"}
    kind = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def plan(name: str) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    meta = {"name": name, "namespace": "default"}
    spec = {"targetRef": target, "replicas": {"min": 1, "max": 2}}
    return {"apiVersion": "kubetide.io/v1alpha1", "kind": "WorkloadPlan", "metadata": meta, "spec": spec}


def test_a_day_in_the_life_of_a_real_node(cluster: Cluster) -> None:
    story, kubectl = cluster.story, cluster.kubectl
    helm(cluster, "install", *installed())
    story.tell("helm installs the chart: CRDs, permissions, Services, configuration; no pods, they are processes here")
    cluster.apply(configuration())
    with ExitStack() as running_now:
        start(cluster, running_now)
        hooks = "mutatingwebhookconfigurations"
        cluster.until("webhooks are registered", lambda: kubectl("get", hooks, "-o", "name").count("\n") >= 2)
        story.tell("all ten components run, each with the permissions of the chart alone")
        # So small that it is busy with what other work leaves of the machine.
        cluster.apply(workload("web", BUSY, requests={"cpu": "20m"}, limits={"cpu": "150m"}), autoscaler("web"))
        cluster.apply(workload("tight", BUSY, requests={"cpu": "10m"}, limits={"cpu": "300m"}), sizer("tight"))
        cluster.apply(profile("batch"))
        marked = cluster.until("a profile marks its pods", lambda: marked_pod(cluster, workload("batch", BUSY)))
        assert marked["spec"]["priorityClassName"] == "koord-batch"
        cluster.until("pods run", lambda: running_apps(cluster) >= {"web", "tight", "batch"})
        listed = kubectl("get", "pods", "-L", "koordinator.sh/qosClass")
        story.tell("three workloads run: one with an HPA, one with a VPA, one best-effort by a profile", listed)
        story.tell("kubectl tide explain pod", explain(cluster, "pod", marked["metadata"]["name"]))

        streams = cluster.until("the agent streams", lambda: streamed(cluster))
        story.tell(f"the agent streams samples to the metrics server, with a token of its node: {streams}")
        top = cluster.until("kubectl top", lambda: kubectl("top", "pods", codes=(0,)))
        story.tell("kubectl top pods, through the aggregation layer and kubetide's metrics server", top)
        story.tell("kubectl top nodes", kubectl("top", "nodes"))

        replicas = ("deployment", "web", "-o", "jsonpath={.spec.replicas}")
        cluster.until("the HPA scales", lambda: kubectl("get", *replicas) == "3")
        story.tell("the HPA scaled web to 3", kubectl("get", "hpa", "web"))
        story.tell("kubectl tide explain hpa web", explain(cluster, "hpa", "web"))

        before = pod_of(cluster, "tight")
        resized = cluster.until("the VPA resizes in place", lambda: resized_pod(cluster, before["metadata"]["name"]))
        assert resized["metadata"]["uid"] == before["metadata"]["uid"]
        assert resized["status"]["containerStatuses"][0]["restartCount"] == 0
        given = resized["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"]
        story.tell(f"the kubelet resized tight in place: 10m became {given}; same pod, no restart")

        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": SIZED}})
        cluster.apply(workload("cart", IDLE, namespace="shop"), workload("orders", IDLE), plan("orders"))
        made = cluster.until("the policy's VPA", lambda: kubectl("get", "vpa", "-n", "shop", "--no-headers"))
        story.tell("a labelled namespace gets VPAs: kubectl get vpa -n shop", made)
        made = cluster.until("HPA and VPA of a plan", lambda: planned(cluster, "orders"))
        story.tell("a WorkloadPlan is carried out: kubectl get hpa,vpa orders", made)

        quota = cluster.node.cgroups / "cpu" / "kubepods" / "besteffort" / "cpu.cfs_quota_us"
        seen = cluster.until("best-effort pods are suppressed", lambda: limited(cluster, quota))
        story.tell(f"best-effort pods are suppressed: cpu.cfs_quota_us of their class is {seen}")

        reported = cluster.until("NodeMetric", lambda: cluster.get("nodemetric", NAME)["status"]["nodeMetric"])
        story.tell("the agent reports the node", json.dumps(reported["nodeUsage"]["resources"]))
        allocatable = cluster.until("batch resources", lambda: batch(cluster))
        story.tell("the SLO controller offers batch resources on the node", json.dumps(allocatable))
        rows = cluster.until("the dashboard", lambda: dashboard_rows(cluster, running_now))
        shown = [{name: row[name] for name in ("name", "replicas") if name in row} for row in rows]
        story.tell("the dashboard lists the workloads", json.dumps(shown))
    story.tell("all components stopped")

    kubectl("scale", "deployment", "web", "--replicas=1")
    cluster.plane.stop_one("kube-controller-manager")
    cluster.plane.start_controller_manager(extra=("--horizontal-pod-autoscaler-sync-period=3s",))
    with cluster.component("metrics", *metrics_flags(cluster)):
        cluster.until("upstream's HPA takes over", lambda: kubectl("get", *replicas) == "3")
    story.tell("back to kube-controller-manager's autoscaler: it scaled web to 3, on kubetide's metrics API")
    cluster.plane.stop_one("kube-controller-manager")
    cluster.plane.start_controller_manager(extra=("--controllers=*,-horizontal-pod-autoscaler-controller",))
    with ExitStack() as running_again:
        start(cluster, running_again)
        kubectl("scale", "deployment", "web", "--replicas=2")
        cluster.until("forward again it scales", lambda: kubectl("get", *replicas) == "3")
        story.tell("and forward again: web was set to 2 by hand, kubetide's HPA is back at 3")
    story.tell("all components stopped again, as an upgrade does")

    helm(cluster, "uninstall", "tide")
    removed = cluster.until("Leases run out", lambda: uninstalled(cluster))
    story.tell("kubectl tide uninstall --yes, after helm uninstall", removed)
    assert leftovers(cluster) == []
    story.tell("nothing of kubetide is left but CRDs, their objects and the namespace with the configuration")
    requests = asked(cluster.folder)
    assert {component for component, _, _ in requests} == set(COMPONENTS)
    assert [each for each in requests if each[2] in (401, 403)] == []
    story.tell(f"the audit log has {len(requests)} requests of the ten service accounts; none was refused")


def capabilities() -> str:
    """Return the agent's capabilities in the manifests, as setpriv writes them, as far as this machine has them."""
    (agent,) = (each for each in component_objects("node", namespace="x", image="x") if each["kind"] == "DaemonSet")
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    status = Path("/proc/self/status").read_text()
    held = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd")), 16)
    numbers = {"DAC_OVERRIDE": 1, "NET_ADMIN": 12, "SYS_PTRACE": 19, "SYS_RESOURCE": 24, "PERFMON": 38}
    added = container["securityContext"]["capabilities"]["add"]
    return ",".join(f"+{name.lower()}" for name in added if held >> numbers[name] & 1)


def installed() -> tuple[str, ...]:
    """Return how the chart is installed: everything on, nothing that would need an image."""
    switches = [f"{name}.enabled=true,{name}.replicas=0" for name in COMPONENTS]
    # No VPAs for what is no pod here, and no node for the DaemonSet.
    quiet = "selfSizing.enabled=false,node.nodeSelector.none=here"
    return ("tide", str(CHART), "--set", ",".join([*switches, quiet]))


def helm(cluster: Cluster, *arguments: str) -> None:
    config = f"--kubeconfig={cluster.plane.kubeconfig()}"
    command = [str(find_program("helm")), *arguments, f"--namespace={NAMESPACE}", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def configuration() -> dict[str, Any]:
    meta = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": SLO}


def metrics_flags(cluster: Cluster) -> tuple[str, ...]:
    address = cluster.service_address("kubetide-metrics")
    ca = f"--kubelet-certificate-authority={cluster.plane.folder / 'ca.crt'}"
    return (f"--bind-address={address}", "--secure-port=443", "--metric-resolution=5s", ca, "--listen=127.0.0.1:9101")


def start(cluster: Cluster, stack: ExitStack) -> None:
    """Start every component; loops are shorter than in production, so that the story does not take an hour."""
    enter = stack.enter_context
    enter(cluster.component("metrics", *metrics_flags(cluster)))
    period = "--horizontal-pod-autoscaler-sync-period=5s"
    enter(cluster.component("hpa", "--take-over", "--hpa-watch-usage", period, "--listen=127.0.0.1:9102"))
    enter(cluster.component("recommender", "--recommender-interval=10s", "--listen=127.0.0.1:9103"))
    enter(cluster.component("updater", "--updater-interval=10s", "--listen=127.0.0.1:9104"))
    webhook = cluster.service_address("vpa-webhook")
    enter(cluster.component("admission", f"--host={webhook}", "--port=443", "--address=127.0.0.1:9105"))
    enter(cluster.component("slo", "--metrics-addr=127.0.0.1:9106", "--health-probe-addr=127.0.0.1:9107"))
    webhook = cluster.service_address("kubetide-colocation")
    # While components are stopped pods are still made.
    lenient = "--webhook-failure-policy-fail=false"
    enter(cluster.component("colocation", f"--host={webhook}", "--port=443", "--address=127.0.0.1:9110", lenient))
    enter(cluster.component("policy", "--listen=127.0.0.1:9111"))
    enter(cluster.component("plan", "--listen=127.0.0.1:9112"))
    host = f"--cgroup-root-dir={cluster.node.cgroups}"
    own = f"--metric-history-path={cluster.folder / 'history'}"
    audit = f"--audit-log-dir={cluster.folder / 'audit'}"
    kubelet = ("--kubelet-insecure-tls=true", f"--node-name={NAME}")
    stream = ("--metrics-stream", f"--metrics-token-file={stream_token(cluster)}")
    enter(cluster.component("node", host, own, audit, *kubelet, *stream, AGENT))


AGENT = "--addr=127.0.0.1:9108"
SIZED = {"kubetide.io/vpa": "Off"}


def stream_token(cluster: Cluster) -> Path:
    """Return a file with the token that the kubelet gives to a pod of the agent."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={NAME}", "--audience=kubetide-metrics")
    file = cluster.folder / "stream-token"
    file.touch(mode=0o600)
    file.write_text(cluster.kubectl("create", "token", "kubetide-node", "-n", NAMESPACE, "--duration=1h", *bound))
    return file


def streamed(cluster: Cluster) -> str:
    """Return what the metrics server says of its streams, once there is one and its node is known by it."""
    with suppress(OSError), urllib.request.urlopen("http://127.0.0.1:9101/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
        wanted = ("kubetide_metrics_streams 1.0", 'kubetide_metrics_nodes{state="agent"} 1.0')
        return ", ".join(wanted) if set(wanted) <= set(lines) else ""
    return ""


def marked_pod(cluster: Cluster, deployment: dict[str, Any]) -> dict[str, Any] | None:
    """Return the pod of a workload once a profile marked it; made anew while the webhook was not called yet."""
    name = deployment["metadata"]["name"]
    cluster.apply(deployment)
    pods = cluster.get("pods", "-l", f"app={name}")["items"]
    if pods and pods[0]["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE":
        return dict(pods[0])
    if pods:
        cluster.kubectl("delete", "deployment", name, "--wait=true")
    return None


def planned(cluster: Cluster, name: str) -> str:
    return cluster.kubectl("get", f"hpa/{name}", f"vpa/{name}", "--no-headers")


def explain(cluster: Cluster, kind: str, name: str) -> str:
    plugins = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig()), "PATH": plugins}
    command = ["kubectl", "tide", "explain", kind, name, "-n", "default"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return "\n".join(done.stdout.splitlines()[:12])


DASHBOARD = "http://127.0.0.1:9109"


def dashboard_rows(cluster: Cluster, stack: ExitStack) -> list[dict[str, Any]]:
    """Return the workloads that the dashboard lists, as the administrator sees them; starts it the first time."""
    log = cluster.folder / "dashboard.log"
    if not log.exists():
        config = f"--kubeconfig={cluster.plane.kubeconfig()}"
        stack.enter_context(program(log, *KUBETIDE, config, "dashboard", "--port=9109"))
    with suppress(OSError), urllib.request.urlopen(f"{DASHBOARD}/c/test/workloads?format=json", timeout=10) as answer:
        rows = json.loads(answer.read())["workloads"]["rows"]
        return [row for row in rows if row["name"] in ("web", "tight", "batch")]
    return []


def running_apps(cluster: Cluster) -> set[str]:
    pods = cluster.get("pods")["items"]
    return {pod["metadata"]["labels"]["app"] for pod in pods if pod["status"]["phase"] == "Running"}


def pod_of(cluster: Cluster, name: str) -> dict[str, Any]:
    (pod,) = cluster.get("pods", "-l", f"app={name}")["items"]
    return dict(pod)


def resized_pod(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """Return the pod once the kubelet has given it another request than it began with."""
    pod = cluster.get("pod", name)
    given = pod["status"]["containerStatuses"][0].get("resources", {}).get("requests", {}).get("cpu")
    return dict(pod) if given not in (None, "10m") else None


def limited(cluster: Cluster, quota: Path) -> int | None:
    read = subprocess.run(cluster.node.inside(["cat", str(quota)]), capture_output=True, text=True, check=False)
    value = int(read.stdout or -1)
    return value if value > 0 else None


def batch(cluster: Cluster) -> dict[str, str]:
    listed = cluster.get("node", NAME)["status"]["allocatable"]
    return {name: amount for name, amount in listed.items() if "batch" in name}


def uninstalled(cluster: Cluster) -> str:
    """Return what `kubetide uninstall` removed, once nobody holds a Lease any more."""
    config = f"--kubeconfig={cluster.plane.kubeconfig()}"
    command = [sys.executable, "-m", "kubetide", config, "-n", NAMESPACE, "uninstall", "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return "" if "kept" in done.stdout else done.stdout


def leftovers(cluster: Cluster) -> list[str]:
    """Return objects of kubetide that outlive it, but for CRDs, namespaces and what is in them."""
    kinds = (
        "deployments,daemonsets,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,"
        "mutatingwebhookconfigurations,validatingwebhookconfigurations,apiservices,leases,secrets"
    )
    listed = cluster.kubectl("get", kinds, "-A", "-o", "name").split()
    # Groups of CRDs have an APIService that the API server itself makes; it goes with them.
    local = [each["metadata"]["name"] for each in cluster.get("apiservices")["items"] if "service" not in each["spec"]]
    listed = [name for name in listed if name.rpartition("/")[2] not in local]
    own = ("kubetide", "metrics.k8s.io", "vpa-", "koordinator-manager")
    return [name for name in listed if any(part in name for part in own)]
