"""A script of real kubectl commands against `kubetide up` with a small simulated cluster behind it.

Each topic is a list of steps in a namespace of its own: a command line, and what its output must contain. A step
that must fail says so. The server runs in a process of its own, thirty times faster than the clock on the wall, so
that rollouts and graceful deletions take a moment only.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

KUBECTL = shutil.which("kubectl")
STEP_SECONDS = 90

SCENARIO = """
nodes:
  - {name: node, count: 2, cpu: 8, memory: 16Gi}
"""

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: example.com/web:1
        resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
"""
WEB_3 = WEB.replace("web:1", "web:3")
TYPO = WEB.replace("replicas: 2", "replicaCount: 2")
CONFIGS = "/api/v1/namespaces/$NAMESPACE/configmaps?fieldValidation=Strict"
TWICE = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"twice"},"data":{"a":"1","a":"2"}}'
DB = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 2, containers: [{name: main, image: "example.com/db:1"}]}
"""
AGENT = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {terminationGracePeriodSeconds: 2, containers: [{name: main, image: "example.com/agent:1"}]}
"""
STUCK = (
    '{"spec":{"progressDeadlineSeconds":30,"template":{"spec":{"containers":'
    '[{"name":"main","resources":{"requests":{"cpu":"99"}}}]}}}}'
)
SIDE = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example.com/side:1"}]}}}}'
NO_SIDE = '{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"side"}]}}}}'
HISTORY = '[{"op":"replace","path":"/spec/revisionHistoryLimit","value":5}]'
COLLISIONS = '{"status":{"collisionCount":4}}'
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: string, enum: [small, large], description: How big the widget is.}
              replicas: {type: integer, minimum: 0, default: 1}
          status: {type: object, properties: {replicas: {type: integer}}}
"""
WIDGET = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
spec: {size: small}
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One command: its arguments after the namespace, what it prints, what it reads, and whether it must fail."""

    command: str
    prints: tuple[str, ...] = ()
    reads: str = ""
    fails: bool = False
    editor: str = ""


def step(command: str, *prints: str, reads: str = "", fails: bool = False, editor: str = "") -> Step:
    return Step(command, prints, reads, fails, editor)


SCRIPT: dict[str, list[Step]] = {
    "apply-and-read": [
        step("apply -f -", "deployment.apps/web created", reads=WEB),
        step("apply -f -", "deployment.apps/web unchanged", reads=WEB),
        step("diff -f -", reads=WEB),
        step("diff -f -", "example.com/web:9", reads=WEB.replace("web:1", "web:9"), fails=True),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
        step("get deployment web", "NAME", "READY", "2/2"),
        step("get deployments -o wide", "CONTAINERS", "example.com/web:1", "app=web"),
        step("get deployment web -o json", '"kind": "Deployment"', '"uid":'),
        step("get deployment web -o yaml", "kind: Deployment", "readyReplicas: 2"),
        step("get deployment web -o jsonpath={.spec.replicas}/{.status.readyReplicas}", "2/2"),
        step("get deployment web -o name", "deployment.apps/web"),
        step("get pods -l app=web -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName", "node-"),
        step("get pods --field-selector=status.phase=Running --no-headers", "1/1", "Running"),
        step("get pods --sort-by=.metadata.name -o wide", "node-", "10."),
        step("get all", "deployment.apps/web", "replicaset.apps/web-", "pod/web-"),
        step("get pods --show-labels", "pod-template-hash="),
        step("describe deployment web", "2 desired | 2 updated | 2 total | 2 available", "ScalingReplicaSet"),
        step("describe pods -l app=web", "Controlled By:  ReplicaSet/web-", "Limits:", "Scheduled"),
        step("get events", "SuccessfulCreate", "Scheduled"),
        step("events --for deployment/web", "ScalingReplicaSet"),
        step("get deployments.v1.apps web", "web"),
        step("get pods nope", 'pods "nope" not found', fails=True),
    ],
    "change": [
        step("create deployment web --image=example.com/web:1 --replicas=1", "created"),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
        step("scale deployment web --replicas=3", "scaled"),
        step("wait --for=jsonpath={.status.readyReplicas}=3 deployment/web --timeout=60s", "condition met"),
        step("scale deployment web --replicas=2 --current-replicas=9", "Expected replicas to be 9", fails=True),
        step("label deployment web team=red", "labeled"),
        step("label deployment web team=blue", "already has a value", fails=True),
        step("label deployment web team=blue --overwrite", "labeled"),
        step("label deployment web team-", "unlabeled"),
        step("annotate deployment web note=hello", "annotated"),
        step("""patch deployment web --type=merge -p '{"spec":{"replicas":1}}'""", "patched"),
        step(f"patch deployment web -p '{SIDE}'", "patched"),
        step("get deployment web -o jsonpath={.spec.template.spec.containers[*].name}", "side", "web"),
        step(f"patch deployment web -p '{NO_SIDE}'", "patched"),
        step(f"patch deployment web --type=json -p '{HISTORY}'", "patched"),
        step("""patch deployment web --type=json -p '[{"op":"test","path":"/spec/replicas","value":7}]'""", fails=True),
        step(f"patch deployment web --subresource=status --type=merge -p '{COLLISIONS}'", "patched"),
        step("set image deployment/web web=example.com/web:2", "image updated"),
        step("set resources deployment/web --requests=cpu=50m", "resource requirements updated"),
        step("set env deployment/web COLOR=blue", "env updated"),
        step("edit deployment web", "edited", editor="sed -i s/COLOR/COLOUR/"),
        step("get deployment web -o yaml", "COLOUR"),
        step("replace -f -", "deployment.apps/web replaced", reads=WEB),
        step("""patch deployment web -p '{"spec":{"replicas":-1}}'""", "must be greater than or equal", fails=True),
    ],
    "rollouts": [
        step("apply -f -", "created", reads=WEB),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
        step("set image deployment/web main=example.com/web:2", "image updated"),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
        step("rollout history deployment/web", "REVISION", "2"),
        step("rollout undo deployment/web", "rolled back"),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
        step("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}", "example.com/web:1"),
        step("rollout restart deployment/web", "restarted"),
        step("rollout pause deployment/web", "paused"),
        step("rollout resume deployment/web", "resumed"),
        step("autoscale deployment web --min=1 --max=4 --cpu-percent=60", "autoscaled"),
        step("get hpa web", "Deployment/web", "60%", "1", "4"),
        step("describe hpa web", "Reference:", "Deployment/web", "Min replicas:"),
        step("get horizontalpodautoscalers.v1.autoscaling web -o yaml", "targetCPUUtilizationPercentage: 60"),
        step("create pdb web --selector=app=web --min-available=1", "created"),
        step("get pdb web", "MIN AVAILABLE"),
        step("delete deployment web --timeout=60s", 'deployment.apps "web" deleted'),
        step("wait --for=delete pod -l app=web --timeout=60s"),
        step("get pods", "No resources found"),
    ],
    "sets": [
        step("apply -f -", "statefulset.apps/db created", reads=DB),
        step("rollout status statefulset/db --timeout=60s", "roll out complete"),
        step("set image statefulset/db main=example.com/db:2", "image updated"),
        step("rollout status statefulset/db --timeout=60s", "roll out complete"),
        step("rollout history statefulset/db", "REVISION", "1", "2"),
        step("rollout history statefulset/db --revision=1", "example.com/db:1"),
        step("get controllerrevisions", "statefulset.apps/db"),
        step("rollout undo statefulset/db", "rolled back"),
        step("rollout status statefulset/db --timeout=60s", "roll out complete"),
        step("get pods -l app=db -o jsonpath={.items[*].spec.containers[0].image}", "example.com/db:1"),
        step("apply -f -", "daemonset.apps/agent created", reads=AGENT),
        step("rollout status daemonset/agent --timeout=60s", "successfully rolled out"),
        step("set image daemonset/agent main=example.com/agent:2", "image updated"),
        step("rollout status daemonset/agent --timeout=60s", "successfully rolled out"),
        step("rollout history daemonset/agent", "REVISION", "2"),
        step("rollout undo daemonset/agent --to-revision=1", "rolled back"),
        step("rollout status daemonset/agent --timeout=60s", "successfully rolled out"),
        step("get daemonset agent -o jsonpath={.spec.template.spec.containers[0].image}", "example.com/agent:1"),
        step("apply -f -", "created", reads=WEB),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
        step("delete deployment web --cascade=orphan", "deleted"),
        step("apply -f -", "created", reads=WEB),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
        step("get replicasets -l app=web -o jsonpath=<{.items[*].metadata.ownerReferences[0].name}>", "<web>"),
        step(f"patch deployment web -p '{STUCK}'", "patched"),
        step("rollout status deployment/web --timeout=60s", "exceeded its progress deadline", fails=True),
        step("describe deployment web", "ProgressDeadlineExceeded"),
        step("rollout undo deployment/web", "rolled back"),
        step("rollout status deployment/web --timeout=60s", "successfully rolled out"),
    ],
    "objects": [
        step("create configmap cfg --from-literal=a=b --from-literal=c=d", "created"),
        step("get configmap cfg -o jsonpath={.data.a}{.data.c}", "bd"),
        step("create secret generic sec --from-literal=p=q", "created"),
        step("get secret sec -o jsonpath={.data.p}", "cQ=="),
        step("create configmap cfg", "already exists", fails=True),
        step("create service clusterip front --tcp=80:8080", "created"),
        step("get service front", "ClusterIP", "80/TCP"),
        step("create job once --image=example.com/job:1", "created"),
        step("create cronjob nightly --image=example.com/job:1 --schedule='0 3 * * *'", "created"),
        step("get cronjobs", "0 3 * * *", "False"),
        step("run solo --image=example.com/solo:1", "created"),
        step("wait --for=condition=Ready pod/solo --timeout=60s", "condition met"),
        step("expose pod solo --port=80", "exposed"),
        step("create quota small --hard=pods=5", "created"),
        step("delete pod solo --now", 'pod "solo" deleted'),
        step("delete configmaps --all", 'configmap "cfg" deleted'),
        step("apply --server-side -f -", "serverside-applied", reads=WEB),
        step("apply --server-side --field-manager=other -f -", "conflict", reads=WEB_3, fails=True),
        step(
            "apply --server-side --field-manager=other --force-conflicts -f -",
            "serverside-applied",
            reads=WEB_3,
        ),
        step("apply --dry-run=server -f -", "server dry run", reads=WEB.replace("name: web,", "name: dry,")),
        step("get deployment dry", "not found", fails=True),
    ],
    "unknown-fields": [
        step("apply -f -", 'unknown field "spec.replicaCount"', reads=TYPO, fails=True),
        step("get deployment web", "not found", fails=True),
        step("apply --validate=warn -f -", 'Warning: unknown field "spec.replicaCount"', "created", reads=TYPO),
        step("get deployment web -o jsonpath=<{.spec.replicaCount}>", "<>"),
        step("apply --validate=ignore -f -", "deployment.apps/web configured", reads=TYPO),
        step(f"create --raw {CONFIGS} -f -", 'duplicate field "data.a"', reads=TWICE, fails=True),
        step("apply --server-side -f -", "field not declared in schema", reads=TYPO, fails=True),
        step("""patch deployment web --type=merge -p '{"spec":{"typo":1}}'""", "Warning: unknown field", "no change"),
    ],
    "custom-resources": [
        step("apply -f -", "created", reads=CRD),
        step("wait --for=condition=Established crd/widgets.example.com --timeout=30s", "condition met"),
        step("apply -f -", "widget.example.com/one created", reads=WIDGET),
        step("get widgets", "SIZE", "small"),
        step("get wd one -o jsonpath={.spec.replicas}", "1"),
        step("scale widget one --replicas=3", "scaled"),
        step("apply -f -", "unknown field", reads=WIDGET.replace("size: small", "size: small, typo: 1"), fails=True),
        step("""patch widget one --type=merge -p '{"spec":{"size":"huge"}}'""", "Unsupported value", fails=True),
        step("explain widget.spec", "How big the widget is."),
        step("api-resources --api-group=example.com", "widgets", "wd", "Widget"),
        step("delete widget one", "deleted"),
        step("delete crd widgets.example.com", "deleted"),
        step("get widgets", fails=True),
    ],
    "cluster": [
        step("version", "Server Version: v1."),
        step("cluster-info", "is running at"),
        step("get nodes", "node-1", "Ready"),
        step("get nodes -o wide", "INTERNAL-IP"),
        step("describe node node-1", "Allocatable:", "cpu:"),
        step("get namespaces", "kube-system", "Active"),
        step("api-versions", "apps/v1", "autoscaling/v2", "metrics.k8s.io/v1beta1"),
        step("api-resources", "horizontalpodautoscalers", "deployments", "poddisruptionbudgets"),
        step("explain deployment.spec", "replicas", "template"),
        step("explain pod", "KIND:       Pod"),
        step("top nodes", "CPU(cores)", "node-1"),
        step("get --raw /apis/metrics.k8s.io/v1beta1/nodes", "NodeMetricsList"),
        step("get --raw /healthz", "ok"),
        step("cordon node-2", "cordoned"),
        step("get node node-2", "SchedulingDisabled"),
        step("drain node-2 --ignore-daemonsets --force --timeout=60s", "drained"),
        step("uncordon node-2", "uncordoned"),
        step("taint node node-2 only=me:NoSchedule", "tainted"),
        step("taint node node-2 only-", "untainted"),
    ],
    "access": [
        step("auth can-i create deployments", "yes"),
        step("auth whoami", "kubernetes-admin"),
        step("create serviceaccount robot", "created"),
        step("create role reader --verb=get,list --resource=pods", "created"),
        step("create rolebinding reader --role=reader --serviceaccount=$NAMESPACE:robot", "created"),
        step("auth can-i list pods --as=system:serviceaccount:$NAMESPACE:robot", "yes"),
        step("auth can-i delete pods --as=system:serviceaccount:$NAMESPACE:robot", "no", fails=True),
        step("get pods --as=system:serviceaccount:$NAMESPACE:robot", "No resources found"),
        step("get secrets --as=system:serviceaccount:$NAMESPACE:robot", "forbidden", fails=True),
        step("create token robot", "ey"),
        step("auth can-i --list", "*.*"),
        step("create clusterrole nodes --verb=get --resource=nodes", "created"),
        step("create clusterrolebinding nodes --clusterrole=nodes --user=ann", "created"),
        step("auth can-i get nodes --as=ann", "yes"),
    ],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Server:
    kubeconfig: Path
    home: Path

    def run(self, command: Step, namespace: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBE_EDITOR": command.editor}
        words = shlex.split(command.command.replace("$NAMESPACE", namespace))
        arguments = [str(KUBECTL), "--kubeconfig", str(self.kubeconfig), "-n", namespace, *words]
        return subprocess.run(
            arguments,
            input=command.reads,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            env=environment,
            check=False,
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if KUBECTL is None:
        pytest.skip("kubectl is not on the PATH: install the kubernetes-client package")
    folder = tmp_path_factory.mktemp("kubectl")
    scenario = folder / "scenario.yaml"
    scenario.write_text(SCENARIO)
    kubeconfig = folder / "kubeconfig"
    arguments = ["--port", "0", "--kubeconfig", str(kubeconfig), "--sim", str(scenario), "--speed", "30"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kubetide", "up", "--data", str(folder / "data"), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready: https://127.0.0.1:"), (folder / "log").read_text()
            yield Server(kubeconfig, folder)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            process.stdout.close()


@pytest.mark.parametrize("topic", SCRIPT)
def test_kubectl_works_on_kubetide_up(server: Server, topic: str) -> None:
    namespace = f"t-{topic}"
    made = server.run(step(f"create namespace {namespace}"), "default")
    assert made.returncode == 0, made.stderr
    for number, each in enumerate(SCRIPT[topic], 1):
        done = server.run(each, namespace)
        output = done.stdout + done.stderr
        where = f"step {number}: kubectl {each.command}\n{output}"
        assert (done.returncode != 0) is each.fails, where
        missing = [text for text in each.prints if text not in output]
        assert not missing, f"{missing} is not in the output of {where}"
    gone = server.run(step(f"delete namespace {namespace} --timeout=60s"), "default")
    assert gone.returncode == 0, gone.stderr


def test_kubectl_watches_changes_as_they_happen(server: Server) -> None:
    watch = [str(KUBECTL), "--kubeconfig", str(server.kubeconfig), "get", "configmaps", "--watch-only", "-o", "name"]
    environment = {"HOME": str(server.home), "PATH": os.environ["PATH"]}
    watching = subprocess.Popen(watch, stdout=subprocess.PIPE, env=environment)
    try:
        assert watching.stdout is not None
        for number in range(100):
            # The watch may not be open yet, so something changes until it is seen.
            made = server.run(step(f"create configmap seen-{number}"), "default")
            assert made.returncode == 0, made.stderr
            os.set_blocking(watching.stdout.fileno(), False)
            if b"configmap/seen-" in (watching.stdout.read() or b""):
                break
        else:
            pytest.fail("kubectl saw nothing of a hundred changes")
    finally:
        watching.terminate()
        watching.wait(timeout=30)
        if watching.stdout is not None:
            watching.stdout.close()


def test_the_script_is_long_enough() -> None:
    assert sum(len(steps) for steps in SCRIPT.values()) >= 80
