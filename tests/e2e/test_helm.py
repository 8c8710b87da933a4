"""The Helm chart with the real helm: it renders the objects of `kubetide manifests`, changed by its values."""

import subprocess

import pytest
import yaml

from e2e.chart import CHART, KUBERNETES, NEEDS_HELM, NEEDS_KUBECTL, Raw, helm, identity, one, plain, render
from kubetide import __version__
from kubetide.cli.node.command import known_flags as node_flags
from kubetide.cli.run import known_flags as run_flags
from kubetide.flags import parse_flags
from kubetide.install.dashboard import dashboard_manifests
from kubetide.install.metrics_api import api_services
from kubetide.install.objects import COMPONENTS, NAMESPACED, manifests
from kubetide.install.packaging import OVERLAYS
from kubetide.install.sizes import PODS

pytestmark = NEEDS_HELM


@pytest.mark.parametrize("components", [COMPONENTS, *((component,) for component in COMPONENTS)], ids="-".join)
def test_the_chart_renders_the_objects_of_the_manifests(components: tuple[str, ...]) -> None:
    image = f"registry.test/kubetide:{__version__}"
    expected = manifests(components, namespace="tide", image=image, with_crds=False)
    # The namespace of a release is made by whoever installs it.
    wanted = {identity(each): plain(each) for each in expected if identity(each) != ("Namespace", "", "tide")}
    assert {identity(each): plain(each) for each in render(enabled=components)} == wanted


def test_a_release_for_one_namespace_is_the_manifests_for_one_namespace() -> None:
    components = tuple(NAMESPACED)
    image = f"registry.test/kubetide:{__version__}"
    expected = manifests(components, namespace="tide", image=image, with_crds=False, watched="team")
    wanted = {identity(each): plain(each) for each in expected if each["kind"] != "Namespace"}
    rendered = render({"watchNamespace": "team"}, enabled=components)
    assert {identity(each): plain(each) for each in rendered} == wanted


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_lint_has_nothing_to_say() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_several_replicas_avoid_each_other_and_get_a_disruption_budget() -> None:
    objects = render({"hpa.replicas": "2"}, enabled=("hpa",))
    deployment = one(objects, "Deployment", "kubetide-hpa")
    assert deployment["spec"]["replicas"] == 2
    assert "podAntiAffinity" in deployment["spec"]["template"]["spec"]["affinity"]
    assert one(objects, "PodDisruptionBudget", "kubetide-hpa")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize(
    ("component", "flag"),
    [
        ("hpa", "--hpa-shards=auto"),
        ("recommender", "--shards=auto"),
        ("updater", "--shards=auto"),
        ("slo", "--shards=auto"),
    ],
)
def test_replicas_share_the_work_where_that_is_asked_for(component: str, flag: str) -> None:
    objects = render({"defaults.shards": "auto", "defaults.replicas": "3"}, enabled=(component, "colocation"))
    deployment = one(objects, "Deployment", f"kubetide-{component}")
    assert flag in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    other = one(objects, "Deployment", "kubetide-colocation")["spec"]["template"]["spec"]["containers"][0]
    assert not [each for each in other["args"] if "shards" in each]


def test_flags_are_replaced_removed_and_added() -> None:
    values = {"node.extraArgs.host-mode": "true", "node.extraArgs.audit-log-dir": "null", "node.extraArgs.v": "5"}
    (container,) = one(render(values, enabled=("node",)), "DaemonSet", "kubetide-node")["spec"]["template"]["spec"][
        "containers"
    ]
    assert {"--host-mode=true", "--v=5"} <= set(container["args"])
    assert not [each for each in container["args"] if each.startswith("--audit-log-dir")]
    assert len([each for each in container["args"] if each.startswith("--host-mode")]) == 1


@pytest.mark.parametrize(
    ("alias", "component", "kind"),
    [
        ("admissionController", "admission", "Deployment"),
        ("manager", "slo", "Deployment"),
        ("koordlet", "node", "DaemonSet"),
    ],
)
def test_names_of_upstream_charts_are_understood(alias: str, component: str, kind: str) -> None:
    values = {f"{alias}.enabled": "true", f"{alias}.nodeSelector.zone": "a"}
    workload = one(render(values, enabled=()), kind, f"kubetide-{component}")
    assert workload["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}


def test_certificates_of_cert_manager_reach_the_webhooks() -> None:
    hosts = {"admission": "vpa-webhook", "colocation": "kubetide-colocation", "metrics": "kubetide-metrics"}
    objects = render({"certificates.source": "cert-manager"}, enabled=tuple(hosts))
    for component, host in hosts.items():
        certificate = one(objects, "Certificate", f"kubetide-{component}")["spec"]
        pod = one(objects, "Deployment", f"kubetide-{component}")["spec"]["template"]["spec"]
        assert f"{host}.tide.svc" in certificate["dnsNames"]
        assert {"name": "certificates", "secret": {"secretName": certificate["secretName"]}} in pod["volumes"]
    (container,) = one(objects, "Deployment", "kubetide-admission")["spec"]["template"]["spec"]["containers"]
    assert "--tls-cert-file=/etc/kubetide/certificates/tls.crt" in container["args"]


def test_flags_for_given_certificates_are_flags_of_the_components() -> None:
    values = {
        "certificates.source": "given",
        "tracing.endpoint": "http://collector:4318",
        **{f"certificates.given.{each}": "mine" for each in ("admission", "colocation", "metrics")},
    }
    objects = render(values, enabled=COMPONENTS)
    for component in COMPONENTS:
        kind = "DaemonSet" if component == "node" else "Deployment"
        (container,) = one(objects, kind, f"kubetide-{component}")["spec"]["template"]["spec"]["containers"]
        given = [each for each in container["args"] if each.startswith("--")]
        known = node_flags() if component == "node" else run_flags((component,))
        assert not parse_flags(given, known).words, component
        assert "--tracing-endpoint=http://collector:4318" in given


@pytest.mark.parametrize(
    ("component", "flag"),
    [
        ("hpa", "--hpa-watch-usage=true"),
        ("hpa", "--concurrent-horizontal-pod-autoscaler-syncs=20"),
        ("node", "--metrics-stream=true"),
    ],
)
def test_signals_are_fresh_where_there_is_a_metrics_server(component: str, flag: str) -> None:
    for enabled, expected in (((component, "metrics"), True), ((component,), False)):
        objects = render({"freshSignals.enabled": "true"}, enabled=enabled)
        (workload,) = (
            each
            for each in objects
            if each["metadata"]["name"] == f"kubetide-{component}" and "template" in each.get("spec", {})
        )
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert (flag in container["args"]) is expected


def test_the_dashboard_is_that_of_the_manifests_and_has_an_ingress_on_request() -> None:
    image = f"registry.test/kubetide:{__version__}"
    expected = {identity(each): each for each in dashboard_manifests(namespace="tide", image=image)}
    rendered = render({"dashboard.enabled": "true"}, enabled=())
    assert {identity(each): plain(each) for each in rendered} == expected
    named = {"dashboard.ingress.enabled": "true", "dashboard.ingress.host": "tide.test"}
    objects = render({"dashboard.enabled": "true", **named}, enabled=())
    (rule,) = one(objects, "Ingress", "kubetide-dashboard")["spec"]["rules"]
    assert rule["host"] == "tide.test"
    (container,) = one(objects, "Deployment", "kubetide-dashboard")["spec"]["template"]["spec"]["containers"]
    assert "--allowed-host=tide.test" in container["args"]


def test_components_size_themselves_and_single_pods_by_rollout() -> None:
    objects = render({"selfSizing.enabled": "true", "admission.replicas": "2"}, enabled=("hpa", "admission", "node"))
    ways = {
        each["metadata"]["name"]: (each["metadata"].get("annotations") or {}).get("kubetide.io/update-by")
        for each in objects
        if each["kind"] == "VerticalPodAutoscaler"
    }
    assert ways == {"kubetide-hpa": "rollout", "kubetide-admission": None, "kubetide-node": None}


def test_components_that_see_another_namespace_only_do_not_size_themselves() -> None:
    values = {"selfSizing.enabled": "true", "watchNamespace": "team"}
    assert "VerticalPodAutoscaler" not in {each["kind"] for each in render(values, enabled=("recommender",))}


@pytest.mark.parametrize("size", list(PODS))
def test_a_size_is_that_of_the_manifests(size: str) -> None:
    image = f"registry.test/kubetide:{__version__}"
    expected = manifests(COMPONENTS, namespace="tide", image=image, with_crds=False, size=size)
    wanted = {identity(each): plain(each) for each in expected if identity(each) != ("Namespace", "", "tide")}
    assert {identity(each): plain(each) for each in render({"size": size}, enabled=COMPONENTS)} == wanted


def test_values_of_single_components_reach_their_pods() -> None:
    values = {
        "hpa.image.tag": "v9",
        "hpa.replicaCount": "3",
        "hpa.features": "X=true",
        "hpa.log.level": "5",
        "hpa.podDisruptionBudget.minAvailable": "2",
        "hpa.extraVolumes[0].name": "ca",
        "hpa.extraVolumes[0].configMap.name": "ca",
        "hpa.extraVolumeMounts[0].name": "ca",
        "hpa.extraVolumeMounts[0].mountPath": "/ca",
        "hpa.securityContext.runAsUser": "7",
        "hpa.podSecurityContext.fsGroup": "7",
    }
    objects = render(values, enabled=("hpa",))
    deployment = one(objects, "Deployment", "kubetide-hpa")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 3
    assert container["image"] == "registry.test/kubetide:v9"
    assert {"--feature-gates=X=true", "--v=5"} <= set(container["args"])
    assert {"name": "ca", "mountPath": "/ca"} in container["volumeMounts"]
    assert {"name": "ca", "configMap": {"name": "ca"}} in pod["volumes"]
    assert container["securityContext"]["runAsUser"] == 7
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"] == {"fsGroup": 7}
    budget = one(objects, "PodDisruptionBudget", "kubetide-hpa")["spec"]
    assert (budget["minAvailable"], "maxUnavailable" in budget) == (2, False)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"hpa.replica": "2"}, "replica", id="a-key-that-does-not-exist"),
        pytest.param({"certificates.source": "letsencrypt"}, "source", id="a-source-that-does-not-exist"),
        pytest.param({"certificates.source": "given"}, "certificates.given.admission", id="a-secret-that-is-not-named"),
    ],
)
def test_mistakes_are_named(values: dict[str, str], named: str) -> None:
    chosen = [f"--set={key}={value}" for key, value in values.items()]
    done = helm("template", "release", str(CHART), KUBERNETES, *chosen)
    assert done.returncode != 0
    assert named in done.stderr


def test_monitoring_and_network_policies_are_there_on_request() -> None:
    values = {
        "monitoring.podMonitor.enabled": "true",
        "monitoring.rules.enabled": "true",
        "networkPolicy.enabled": "true",
    }
    objects = render(values, enabled=("hpa", "admission"))
    rules = one(objects, "PrometheusRule", "kubetide")["spec"]["groups"][0]["rules"]
    assert all(rule["annotations"]["runbook_url"].startswith("docs/runbooks/") for rule in rules)
    assert one(objects, "PodMonitor", "kubetide")["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"
    services = render({"monitoring.serviceMonitor.enabled": "true", "dashboard.enabled": "true"}, enabled=("hpa",))
    chosen = one(services, "ServiceMonitor", "kubetide")["spec"]["selector"]["matchLabels"]
    monitored = [each for each in services if chosen.items() <= (each["metadata"].get("labels") or {}).items()]
    assert [each["metadata"]["name"] for each in monitored] == ["kubetide-hpa-monitoring"]
    ports = [
        rule["ports"][0]["port"] for rule in one(objects, "NetworkPolicy", "kubetide-admission")["spec"]["ingress"]
    ]
    assert ports == [8944, 8000]


@NEEDS_KUBECTL
@pytest.mark.parametrize("overlay", ["upstream-replacement", "recommend-only", "node-agent", "everything"])
def test_overlays_are_the_manifests(overlay: str) -> None:
    folder = CHART.parents[1] / "kustomize" / "overlays" / overlay
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    components = OVERLAYS[overlay][0]
    expected = manifests(components, namespace="kube-system", image="kubetide:latest", with_crds=False)
    built = {identity(each): each for each in yaml.safe_load_all(done.stdout)}
    for each in expected:
        assert built[identity(each)] == each
    others = {kind for kind, _, _ in built.keys() - {identity(each) for each in expected}}
    assert others == {"CustomResourceDefinition"}


@pytest.mark.parametrize("group", ["custom", "external"])
def test_more_groups_of_metrics_lead_to_the_metrics_server_on_request(group: str) -> None:
    def services(values: dict[str, str]) -> dict[str, Raw]:
        found = render(values, enabled=("metrics",))
        return {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "APIService"}

    assert list(services({})) == ["v1beta1.metrics.k8s.io"]
    wanted = {
        one["metadata"]["name"]: one["spec"]
        for one in api_services("tide", ["metrics.k8s.io", f"{group}.metrics.k8s.io"])
    }
    assert services({f"metricsApis.{group}": "true"}) == wanted
    assert render({f"metricsApis.{group}": "true"}, enabled=()) == []


def test_the_configuration_of_slos_is_given_as_text_or_as_yaml() -> None:
    values = {
        "slo.config.colocation-config.enable": "true",
        "slo.config.host-application-config": "\\{\\}",
    }
    config = one(render(values, enabled=("slo",)), "ConfigMap", "slo-controller-config")
    assert config["data"] == {
        "colocation-config": '{"enable":true}',
        "host-application-config": "{}",
        "resource-threshold-config": '{"clusterStrategy": {"enable": false}}',
    }


def test_components_may_recommend_their_own_size_and_be_left_alone() -> None:
    objects = render({"selfSizing.enabled": "true", "selfSizing.updateMode": "Off"}, enabled=("hpa",))
    assert one(objects, "VerticalPodAutoscaler", "kubetide-hpa")["spec"]["updatePolicy"]["updateMode"] == "Off"
