"""Dashboards for Grafana, made from one table of panels: fleet, one workload, QoS of nodes, kubetide's own health.

`make docs` writes them below `deploy/grafana`; a test runs every query on a Prometheus that scrapes all components.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

Raw = dict[str, Any]

SCHEMA_VERSION = 39
COLUMNS, HEIGHT = 24, 7
WIDTHS = {"stat": 6, "timeseries": 12}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_RATE = "[$__rate_interval]"
_HPA = '{namespace=~"$namespace",name=~"$name"}'
_VPA = '{vpa_namespace=~"$namespace",vpa_name=~"$vpa"}'
_NODE = '{node=~"$node"}'
_JOB = '{job=~"$job"}'


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: its title, Grafana's unit, and queries by their legend."""

    title: str
    unit: str
    queries: dict[str, str]
    kind: Literal["stat", "timeseries"] = "timeseries"


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page: what is chosen above it, by the query of its values, and its panels in order."""

    title: str
    variables: dict[str, str]
    panels: tuple[Panel, ...]


def _stat(title: str, query: str, unit: str = "none") -> Panel:
    return Panel(title, unit, {"": query}, "stat")


def _p99(title: str, histogram: str, by: str, chosen: str = "") -> Panel:
    query = f"histogram_quantile(0.99, sum by ({by}, le) (rate({histogram}_bucket{chosen}{_RATE})))"
    return Panel(title, "s", {f"{{{{{by}}}}}": query})


def _rates(title: str, by: str, counter: str, chosen: str = "") -> Panel:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return Panel(title, "cps", {legend: f"sum by ({by}) (rate({counter}{chosen}{_RATE}))"})


_AUTOSCALER = "horizontal_pod_autoscaler_controller"
_MISS = "vpa_quality_usage_recommendation_relative_diffs"
_STALE = "kubetide_informer_staleness_seconds"
_VPAS = "vpa_recommender_vpa_objects_count"
_CONTROLLED = "vpa_updater_controlled_pods_total"
_CONTAINER = '{pod_namespace=~"$namespace"}'
_BATCH = 'slo_controller_node_extended_resource_allocatable_internal{node=~"$node",resource="kubernetes.io/batch-%s"}'

DASHBOARDS: dict[str, Dashboard] = {
    "fleet": Dashboard(
        "kubetide: fleet",
        {},
        (
            _stat("Horizontal autoscalers", f"sum({_AUTOSCALER}_num_horizontal_pod_autoscalers)"),
            _stat("Autoscalers at their maximum", "sum(kubetide_hpa_at_maximum)"),
            _stat("Autoscalers without a metric", "sum(kubetide_hpa_without_metrics)"),
            _stat(
                "VPAs without a recommendation",
                'sum(vpa_recommender_vpa_objects_count{has_recommendation="false",matches_pods="true"})',
            ),
            _stat("VPAs whose recommendation is capped", "sum(kubetide_recommender_capped_vpas)"),
            _stat("VPAs in conflict with an HPA", "sum(kubetide_recommender_conflicting_vpas)"),
            _stat("VPAs whose updates are paused", "sum(kubetide_updater_paused_vpas)"),
            _stat("Pods disrupted in the last minute", "sum(kubetide_updater_disruptions_last_minute)"),
            Panel(
                "Replicas of all autoscaled workloads",
                "none",
                {"wanted": "sum(kubetide_hpa_desired_replicas)", "there": "sum(kubetide_hpa_current_replicas)"},
            ),
            _rates("Reconciles of autoscalers", "action, error", f"{_AUTOSCALER}_reconciliations_total"),
            Panel("VPAs by mode", "none", {"{{update_mode}}": f"sum by (update_mode) ({_VPAS})"}),
            Panel("Pods under a VPA", "none", {"{{update_mode}}": f"sum by (update_mode) ({_CONTROLLED})"}),
            Panel(
                "Pods replaced and resized",
                "cps",
                {
                    "evicted": f"sum(rate(vpa_updater_evicted_pods_total{_RATE}))",
                    "resized in place": f"sum(rate(vpa_updater_in_place_updated_pods_total{_RATE}))",
                },
            ),
            _rates("Pods reviewed by the webhook", "applied", "vpa_admission_controller_admission_pods_total"),
            Panel(
                "Usage against recommendation (0: equal)",
                "percentunit",
                {
                    "{{resource}}": f"sum by (resource) (rate({_MISS}_sum{_RATE}))"
                    f" / sum by (resource) (rate({_MISS}_count{_RATE}))"
                },
            ),
            _rates("Samples that cannot be true", "reason", "kubetide_recommender_refused_samples_total"),
        ),
    ),
    "workload": Dashboard(
        "kubetide: one workload",
        {
            "namespace": "label_values(kubetide_hpa_acting, namespace)",
            "name": 'label_values(kubetide_hpa_acting{namespace=~"$namespace"}, name)',
            "vpa": 'label_values(vpa_updater_in_place_updated_pods_total{vpa_namespace=~"$namespace"}, vpa_name)',
        },
        (
            _stat("Replicas there", f"sum(kubetide_hpa_current_replicas{_HPA})"),
            _stat("Replicas wanted", f"sum(kubetide_hpa_desired_replicas{_HPA})"),
            _stat("kubetide acts (1) or looks (0)", f"min(kubetide_hpa_acting{_HPA})"),
            Panel(
                "Replicas",
                "none",
                {
                    "{{name}} wanted": f"kubetide_hpa_desired_replicas{_HPA}",
                    "{{name}} there": f"kubetide_hpa_current_replicas{_HPA}",
                },
            ),
            Panel(
                "Count that stands in the HPA's status",
                "none",
                {"{{hpa_name}}": f'{_AUTOSCALER}_desired_replicas{{namespace=~"$namespace",hpa_name=~"$name"}}'},
            ),
            Panel(
                "Pods evicted for a new size",
                "none",
                {"{{vpa_name}}": f"sum by (vpa_name) (increase(vpa_updater_evicted_pods_total{_VPA}{_RATE}))"},
            ),
            Panel(
                "Pods resized in place",
                "none",
                {"{{vpa_name}}": f"sum by (vpa_name) (increase(vpa_updater_in_place_updated_pods_total{_VPA}{_RATE}))"},
            ),
            Panel(
                "CPU burst of containers in the namespace",
                "µs",
                {"{{pod_name}} {{container_name}}": f"koordlet_container_scaled_cfs_burst_us{_CONTAINER}"},
            ),
        ),
    ),
    "node-qos": Dashboard(
        "kubetide: QoS of nodes",
        {"node": "label_values(koordlet_node_used_cpu_cores, node)"},
        (
            Panel("CPU used", "cores", {"{{node}}": f"koordlet_node_used_cpu_cores{_NODE}"}),
            Panel("Memory used", "bytes", {"{{node}}": f"koordlet_node_used_memory_bytes{_NODE}"}),
            Panel("CPU given to batch work", "cores", {"{{node}}": _BATCH % "cpu"}),
            Panel("Memory given to batch work", "bytes", {"{{node}}": _BATCH % "memory"}),
            Panel(
                "CPU left for best-effort work, and used",
                "cores",
                {
                    "{{node}} left by {{type}}": f"koordlet_be_suppress_cpu_cores{_NODE}",
                    "{{node}} used by others": f"koordlet_be_suppress_ls_used_cpu_cores{_NODE}",
                    "{{node}} used by best effort": f"koordlet_be_suppress_be_used_cpu_cores{_NODE}",
                },
            ),
            Panel(
                "CPUs of the shared pools",
                "cores",
                {
                    "{{node}} shared": f"koordlet_cpuset_share_pool_cpu_cores{_NODE}",
                    "{{node}} best effort": f"koordlet_cpuset_be_share_pool_cpu_cores{_NODE}",
                },
            ),
            Panel(
                "CPU that production will peak at",
                "cores",
                {"{{node}} {{predictor}}": 'koordlet_node_predicted_resource_peak{node=~"$node",resource="cpu"}'},
            ),
            Panel(
                "CPU that can be reclaimed",
                "cores",
                {"{{node}} {{priority}}": 'koordlet_node_priority_resource_reclaimable{node=~"$node",resource="cpu"}'},
            ),
            Panel(
                "Pods evicted by the agent",
                "none",
                {"{{node}} {{reason}}": f"sum by (node, reason) (increase(koordlet_pod_eviction{_NODE}{_RATE}))"},
            ),
            _rates("Rounds of strategies", "strategy, outcome", "kubetide_node_strategy_rounds_total", _NODE),
            _p99("Slow rounds of strategies (p99)", "kubetide_node_strategy_seconds", "strategy", _NODE),
            Panel("Series that the agent keeps", "none", {"{{node}}": f"kubetide_node_series{_NODE}"}),
        ),
    ),
    "health": Dashboard(
        "kubetide: own health",
        {"job": "label_values(kubetide_informer_objects, job)"},
        (
            _stat("Leases that are held", f"sum(max by (name) (leader_election_master_status{_JOB}))"),
            _stat("The API server calls the VPA webhook (1)", "max(kubetide_admission_patching)"),
            _stat("Oldest cache", f"max({_STALE}{_JOB})", "s"),
            _stat("Fights with the built-in autoscaler", "sum(kubetide_hpa_built_in_controller_conflicts_total)"),
            _rates("Requests to the API server", "code, method", "rest_client_requests_total", _JOB),
            _p99("Slow requests to the API server (p99)", "rest_client_request_duration_seconds", "verb", _JOB),
            Panel(
                "Objects in caches",
                "none",
                {"{{component}} {{resource}}": f"sum by (component, resource) (kubetide_informer_objects{_JOB})"},
            ),
            Panel(
                "Age of caches",
                "s",
                {"{{component}} {{resource}}": f"max by (component, resource) ({_STALE}{_JOB})"},
            ),
            Panel("Keys that wait", "none", {"{{name}}": f"sum by (name) (workqueue_depth{_JOB})"}),
            _p99("Long waits for a worker (p99)", "workqueue_queue_duration_seconds", "name"),
            _p99("Slow reconciles of autoscalers (p99)", f"{_AUTOSCALER}_reconciliation_duration_seconds", "action"),
            _p99("Slow steps of the recommender (p99)", "vpa_recommender_execution_latency_seconds", "step"),
            _p99("Slow steps of the updater (p99)", "vpa_updater_execution_latency_seconds", "step"),
            _p99("Slow reviews of pods (p99)", "vpa_admission_controller_admission_latency_seconds", "status"),
            _rates("Reconciles of other controllers", "controller, result", "controller_runtime_reconcile_total"),
            _rates("Requests to the metrics APIs", "api, error", "kubetide_hpa_metrics_requests_total"),
        ),
    ),
}


def grafana_files() -> dict[str, str]:
    """Return the dashboards as Grafana imports them, by file name."""
    return {
        f"{name}.json": json.dumps(_page(name, page), indent=1, ensure_ascii=False) + "\n"
        for name, page in DASHBOARDS.items()
    }


def _page(name: str, page: Dashboard) -> Raw:
    panels: list[Raw] = []
    x = y = 0
    for number, panel in enumerate(page.panels, 1):
        width = WIDTHS[panel.kind]
        if x + width > COLUMNS:
            x, y = 0, y + HEIGHT
        panels.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": HEIGHT}))
        x += width
    chosen = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"kubetide-{name}",
        "title": page.title,
        "tags": ["kubetide"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [chosen, *(_variable(name, query) for name, query in page.variables.items())]},
        "panels": panels,
    }


def _variable(name: str, query: str) -> Raw:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel, place: Raw) -> Raw:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for i, (legend, query) in enumerate(panel.queries.items())
        ],
    }
