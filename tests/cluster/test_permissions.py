"""Every component does its work with just the permissions that `kubetide manifests` gives it."""

import asyncio
import random
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from kubetide.api.objects.scheme import COLOCATION_PROFILES, NAMESPACES, NODE_METRICS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.apiserver.auth.rbac import Attributes
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.install.objects import NAMESPACED, manifests
from kubetide.install.rbac import CLUSTER, LOCAL, READ
from kubetide.install.workloads import account
from kubetide.kube.client.client import Client
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.settings import NodeSettings, PodSource
from kubetide.settings import COMPONENTS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_deployment, make_hpa, make_pod, make_vpa
from kubetide.vpa.core.ceilings import CEILINGS
from kubetide.wiring import Dependencies, build
from onlookers import Counted
from simulated.cluster import run


def service_account(component: str) -> User:
    name = f"system:serviceaccount:kube-system:{account(component)}"
    return User(name, ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"))


async def work(cluster: SimCluster) -> None:
    """Give every component something to do."""
    await cluster.apply(
        [
            make_deployment("web", replicas=2, cpu="500m", memory="256Mi"),
            make_hpa("web", maximum=6, cpu_percent=50),
            make_deployment("idle", replicas=3, cpu="1", memory="1Gi"),
            make_vpa("idle", target="idle", mode="Recreate"),
            make_config_map(
                "slo-controller-config", "koordinator-system", {"colocation-config": '{"enable": true}', "x": "{"}
            ),
        ]
    )
    cluster.set_usage("default", "web", cpu=0.45)
    cluster.set_usage("default", "idle", cpu=0.05)


async def late_profile(cluster: SimCluster) -> None:
    """Make a profile that comes after the pod it is for, which waits for a node."""
    await cluster.apply(make_pod("waits", "default", labels={"app": "late"}, cpu="900", memory="1Gi"))
    labels = {"config.koordinator.sh/controller-managed": "true"}
    spec = {"selector": {"matchLabels": {"app": "late"}}, "labels": {"tier": "batch"}}
    await cluster.apply(
        {
            "apiVersion": COLOCATION_PROFILES.api_version,
            "kind": COLOCATION_PROFILES.kind,
            "metadata": {"name": "late", "labels": labels},
            "spec": spec,
        }
    )


def settings_of(component: str) -> Any:
    changes: dict[str, dict[str, Any]] = {
        "hpa": {"take_over": True},
        "recommender": {"feature_gates": ("AllAlpha=true",), "cpu_peaks": True, "ceilings": CEILINGS},
        "updater": {"feature_gates": ("AllAlpha=true",), "resize_before_oom": True},
        "admission": {
            "local_name": "vpa",
            "register_delay": timedelta(seconds=1),
            "feature_gates": ("AllAlpha=true",),
        },
        "colocation": {"feature_gates": ("ColocationProfileController=true", "ReservationMutatingWebhook=true")},
    }
    return COMPONENTS[component](**changes.get(component, {}))


Used = tuple[str, str, str]
"""A verb, an API group, and a resource with its subresource."""


def record(cluster: SimCluster, component: str, asked: set[Used]) -> None:
    """Note what a component asks the server for, whether it is granted or not."""
    check = cluster.api.authorizer.check

    def noted(user: User, wanted: Attributes) -> None:
        if user.name == service_account(component).name:
            resource = "*/scale" if wanted.subresource == "scale" else wanted.full_resource
            resource = "*" if wanted.group in ("custom.metrics.k8s.io", "external.metrics.k8s.io") else resource
            asked.add((wanted.verb, "*" if resource == "*/scale" else wanted.group, resource))
        check(user, wanted)

    cluster.api.authorizer.check = noted  # type: ignore[method-assign]


def granted(component: str) -> set[Used]:
    """Return every single thing a component may do."""
    permissions = [*CLUSTER[component], *(each.right for each in LOCAL[component])]
    return {(verb, each.group, resource) for each in permissions for resource in each.resources for verb in each.verbs}


# Permissions that a quarter of an hour in a cluster where nothing goes wrong does not need, and when they are needed.
def unused(*verbs: str, when: str, group: str = "", of: str) -> dict[Used, str]:
    return {(verb, group, of): when for verb in verbs}


def workloads(*kinds: tuple[str, str], verbs: tuple[str, ...], when: str) -> dict[Used, str]:
    return {(verb, group, kind): when for group, kind in kinds for verb in verbs}


EVENTS = unused("create", "patch", of="events", when="something worth telling happens, and again")
SECRETS = unused("get", "create", "update", of="secrets", when="certificates of its own, not of this process")
MEMBERS = unused("delete", "list", group="coordination.k8s.io", of="leases", when="replicas share the work")
WEBHOOKS = "admissionregistration.k8s.io"
VPA = "autoscaling.k8s.io"
KINDS = (
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
)
OWNERS = {
    **workloads(*KINDS, verbs=("get",), when="an owner of a kind that has no cache"),
    **unused("get", group="*", of="*/scale", when="a target of a kind that has no cache"),
}
RARE_KINDS = (("", "replicationcontrollers"), ("apps", "replicasets"), ("batch", "jobs"))
UNUSED: dict[str, dict[Used, str]] = {
    "admission": {
        **EVENTS,
        **SECRETS,
        **OWNERS,
        **unused("update", group=WEBHOOKS, of="mutatingwebhookconfigurations", when="it is another's or old"),
        **unused("list", group="metrics.k8s.io", of="pods", when="memory would shrink below what may be in use"),
    },
    "colocation": {
        **EVENTS,
        **SECRETS,
        **unused("delete", "update", group=WEBHOOKS, of="mutatingwebhookconfigurations", when="a gate is switched"),
        **unused("delete", "update", group=WEBHOOKS, of="validatingwebhookconfigurations", when="a gate is switched"),
        **unused("get", of="namespaces", when="a pod is made in a namespace that the cache does not know yet"),
        **unused("get", group="scheduling.k8s.io", of="priorityclasses", when="a profile names one that is new"),
    },
    "hpa": {
        **unused("patch", group="autoscaling", of="horizontalpodautoscalers", when="learned headroom keeps its state"),
        **MEMBERS,
        **unused("list", "watch", group=VPA, of="verticalpodautoscalers", when="--hpa-coordinate"),
        **workloads(
            ("", "replicationcontrollers"),
            ("apps", "replicasets"),
            ("apps", "statefulsets"),
            verbs=READ,
            when="pods are selected by owner, or the target is one",
        ),
        **unused("list", "watch", group="apps", of="deployments", when="many targets are followed by a watch"),
        **unused("watch", group="metrics.k8s.io", of="pods", when="--hpa-watch-usage"),
        **unused("get", "list", group="custom.metrics.k8s.io", of="*", when="a metric of pods or an object"),
        **unused("get", "list", group="external.metrics.k8s.io", of="*", when="an external metric"),
    },
    "metrics": {
        **unused("get", of="nodes/metrics", when="kubelets ask whether it may read theirs"),
        **unused("create", group="authentication.k8s.io", of="tokenreviews", when="a caller shows a token"),
        **unused("create", group="authorization.k8s.io", of="subjectaccessreviews", when="somebody asks for usage"),
        **unused("update", of="secrets", when="certificates are renewed"),
        **unused("update", of="configmaps", when="certificates are renewed"),
    },
    "node": {
        **EVENTS,
        **unused("create", of="pods/eviction", when="a node is short of what best-effort pods use"),
        **unused("create", group="kubetide.io", of="samples", when="--metrics-stream"),
        **unused("list", group="discovery.k8s.io", of="endpointslices", when="--metrics-stream"),
        **unused("get", of="configmaps", when="--metrics-stream"),
        **unused("get", of="nodes", when="the kubelet is asked for its pods: on which port?"),
        **{("get", "", f"nodes/{part}"): "the kubelet is asked" for part in ("proxy", "pods", "configz")},
        **unused("get", "create", "update", group="scheduling.koordinator.sh", of="devices", when="there are GPUs"),
        **unused("get", group="slo.koordinator.sh", of="nodemetrics", when="a report met another writer"),
        **unused("list", "watch", of="persistentvolumeclaims", when="disks of single claims are limited"),
    },
    "plan": {
        **unused("patch", of="events", when="something is told again"),
        **unused("patch", group="autoscaling", of="horizontalpodautoscalers", when="a plan changes"),
        **unused("patch", group=VPA, of="verticalpodautoscalers", when="a plan changes"),
    },
    "policy": {
        **EVENTS,
        **unused("delete", "patch", group=VPA, of="verticalpodautoscalers", when="the policy changes or is taken away"),
        **workloads(*RARE_KINDS, verbs=("list", "watch"), when="a workload of that kind is named by the policy"),
    },
    "recommender": {
        **EVENTS,
        **OWNERS,
        **MEMBERS,
        **unused("list", of="events", when="the watch of evictions begins anew"),
        **unused("get", "create", "patch", of="configmaps", when="an estimator that learns keeps its state"),
        **unused("delete", group=VPA, of="verticalpodautoscalercheckpoints", when="a VPA is gone"),
        **unused("get", group=VPA, of="verticalpodautoscalers", when="a checkpoint would be deleted: is its VPA gone?"),
        **unused("patch", group=VPA, of="verticalpodautoscalers", when="a scoped VPA where the CRD has no groups"),
        **unused("get", "list", group="external.metrics.k8s.io", of="*", when="usage comes from external metrics"),
    },
    "slo": {
        **EVENTS,
        **MEMBERS,
        **unused("get", of="configmaps", when="its webhook is on"),
        **unused("delete", "patch", group="slo.koordinator.sh", of="nodemetrics", when="a node or setting changes"),
        **unused("delete", "patch", group="slo.koordinator.sh", of="nodeslos", when="a node or setting changes"),
        **unused("patch", of="nodes/status", when="agents report usage"),
        **unused("patch", group="topology.node.k8s.io", of="noderesourcetopologies", when="nodes have NUMA zones"),
    },
    "updater": {
        **unused("list", of="resourcequotas", when="memory is running out, and room is looked for"),
        **EVENTS,
        **OWNERS,
        **MEMBERS,
        **unused("create", of="pods/eviction", when="a recommendation is far off"),
        **unused("patch", group="apps", of="deployments", when="a single replica is replaced by a rollout"),
        **unused("patch", of="pods/resize", when="a recommendation is far off, in place"),
        **unused("patch", of="pods", when="a pod about to be evicted is marked"),
        **unused("patch", group=VPA, of="verticalpodautoscalers/status", when="updates are paused or skipped"),
        **unused("get", group=VPA, of="verticalpodautoscalers", when="a condition is written"),
        **unused("get", group=VPA, of="verticalpodautoscalercheckpoints", when="a recommendation rests on few samples"),
    },
}


def check_unused(component: str, asked: set[Used]) -> None:
    """Fail on a permission that nobody used, and on one in the list above that was used after all."""
    never, listed = granted(component) - asked, set(UNUSED[component])
    assert (sorted(never - listed), sorted(listed - never)) == ([], []), component


def kept_to(component: str, namespace: str) -> dict[str, Any]:
    """Return what the flags of a namespaced install set."""
    if component in ("hpa", "plan"):
        return {"namespace": namespace, "leader_elect_resource_namespace": "kube-system"}
    return {"vpa_object_namespace": namespace}


@pytest.mark.parametrize(
    ("component", "watched"),
    [*((each, "") for each in sorted(COMPONENTS)), *((each, "default") for each in NAMESPACED)],
)
def test_nothing_is_refused(component: str, watched: str) -> None:
    asked: set[Used] = set()

    async def main(cluster: SimCluster) -> Counted:
        record(cluster, component, asked)
        objects = manifests((component,), namespace="kube-system", image="x", watched=watched)
        await cluster.apply([each for each in objects if each["kind"] not in ("Deployment", "DaemonSet")])
        await work(cluster)
        if component == "colocation":
            await late_profile(cluster)
        if component == "plan":
            reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "planned"}
            meta = {"name": "planned", "namespace": "default"}
            spec = {"targetRef": reference, "replicas": {"max": 3}}
            await cluster.apply(
                {"apiVersion": "kubetide.io/v1alpha1", "kind": "WorkloadPlan", "metadata": meta, "spec": spec}
            )
        if component == "policy":
            patch = MergePatch({"metadata": {"labels": {"kubetide.io/vpa": "Off"}}})
            await cluster.client().patch(NAMESPACES, "default", patch)
        transport = Counted(cluster.transport(service_account(component)))
        telemetry, rng = Telemetry(), random.Random(1)
        world = Dependencies(
            client=Client(transport, clock=cluster.clock, rng=rng),
            clock=cluster.clock,
            telemetry=telemetry,
            rng=rng,
            local_webhooks=cluster.api.admission,
        )
        settings = settings_of(component)
        if watched:
            settings = msgspec.structs.replace(settings, **kept_to(component, watched))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in build(component, world, settings)]
            await cluster.run_for(timedelta(minutes=15))
            for task in tasks:
                task.cancel()
        return transport

    transport = run(main, nodes=2)
    assert transport.refused == []
    assert transport.written
    if component == "colocation":
        assert any("/pods/waits" in request for request in transport.written)
    if component == "policy":
        assert any("verticalpodautoscalers" in request for request in transport.written)
    if not watched:
        check_unused(component, asked)


def test_no_permission_is_a_wildcard_but_scale_and_the_names_of_metrics() -> None:
    for component, permissions in CLUSTER.items():
        for each in permissions:
            free = each.group == "*" or "*" in each.resources or "*" in each.verbs
            metrics = each.group in ("custom.metrics.k8s.io", "external.metrics.k8s.io") and set(each.verbs) <= set(
                READ
            )
            assert not free or each.resources == ("*/scale",) or metrics, component


def test_the_agent_of_a_node_is_refused_nothing() -> None:
    asked: set[Used] = set()

    async def main(cluster: SimCluster) -> Counted:
        record(cluster, "node", asked)
        objects = manifests(("slo", "node"), namespace="kube-system", image="x")
        await cluster.apply([each for each in objects if each["kind"] not in ("Deployment", "DaemonSet")])
        await work(cluster)
        await cluster.apply(
            {"apiVersion": NODE_METRICS.api_version, "kind": "NodeMetric", "metadata": {"name": "node-1"}}
        )
        transport = Counted(cluster.transport(service_account("node")))
        host = cluster.hosts["node-1"]
        agent = NodeAgent(
            Client(transport, clock=cluster.clock, rng=random.Random(1)),
            cluster.clock,
            NodeSettings(node_name="node-1", audit_log_dir="", pod_source=PodSource.API_SERVER),
            host,
            Telemetry(),
            layout=Layout(version=host.version, paths=host.paths),
            commands=host,
            modules=partial(make_modules, sockets=False, rng=random.Random(1)),
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(agent.run())
            await cluster.run_for(timedelta(minutes=5))
            task.cancel()
        return transport

    transport = run(main, nodes=1)
    assert transport.refused == []
    assert any("nodemetrics/node-1/status" in request for request in transport.written)
    check_unused("node", asked)
