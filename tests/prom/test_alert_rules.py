"""Alerts fire when they should and are quiet when they should, as Prometheus itself evaluates them; each has a page."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "helm" / "kubetide" / "rules" / "kubetide.yaml"
ALERTS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]

# Alert -> (series that fire it, the labels of the alert, the same series when all is well), each as promtool writes
# values: start, step, count. A minute a value.
JOB = 'job="kubetide"'
CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "KubetideNobodyLeads": (
        {
            'leader_election_master_status{name="hpa",pod="a"}': "0x400",
            'leader_election_master_status{name="hpa",pod="b"}': "0x400",
        },
        {"name": "hpa"},
        {
            'leader_election_master_status{name="hpa",pod="a"}': "0x400",
            'leader_election_master_status{name="hpa",pod="b"}': "1x400",
        },
    ),
    "KubetideShardsWithoutOwner": (
        {
            'kubetide_shard_ranges{name="vpa-updater",pod="a"}': "128x400",
            'kubetide_shard_ranges{name="vpa-updater",pod="b"}': "127x400",
        },
        {"name": "vpa-updater"},
        {
            'kubetide_shard_ranges{name="vpa-updater",pod="a"}': "128x10 0x5 256x400",
            'kubetide_shard_ranges{name="vpa-updater",pod="b"}': "128x10 256x5 0x400",
        },
    ),
    "KubetideApiErrors": (
        {
            f'rest_client_requests_total{{code="500",{JOB}}}': "0+10x400",
            f'rest_client_requests_total{{code="200",{JOB}}}': "0+90x400",
        },
        {},
        {
            f'rest_client_requests_total{{code="500",{JOB}}}': "0+1x400",
            f'rest_client_requests_total{{code="200",{JOB}}}': "0+90x400",
        },
    ),
    "KubetideCacheStale": (
        {'kubetide_informer_staleness_seconds{component="hpa",resource="pods"}': "601x400"},
        {"component": "hpa", "resource": "pods"},
        {'kubetide_informer_staleness_seconds{component="hpa",resource="pods"}': "599x400"},
    ),
    "KubetideHpaAtMaximum": ({"kubetide_hpa_at_maximum": "2x400"}, {}, {"kubetide_hpa_at_maximum": "0x400"}),
    "KubetideHpaWithoutMetrics": (
        {"kubetide_hpa_without_metrics": "1x400"},
        {},
        {"kubetide_hpa_without_metrics": "1 1 0 1 1 1 0 0x400"},
    ),
    "KubetideHpaFightsBuiltIn": (
        {"kubetide_hpa_built_in_controller_conflicts_total": "0+1x400"},
        {},
        {"kubetide_hpa_built_in_controller_conflicts_total": "7x400"},
    ),
    "KubetideNodesWithoutMetrics": (
        {'kubetide_metrics_nodes{state="missing"}': "1x400", 'kubetide_metrics_nodes{state="agent"}': "9x400"},
        {},
        {'kubetide_metrics_nodes{state="missing"}': "1x5 0x400", 'kubetide_metrics_nodes{state="agent"}': "9x400"},
    ),
    "KubetideRecommendationsCapped": (
        {"kubetide_recommender_capped_vpas": "3x400"},
        {},
        {"kubetide_recommender_capped_vpas": "0x400"},
    ),
    "KubetideVpaHpaConflict": (
        {"kubetide_recommender_conflicting_vpas": "3x400"},
        {},
        {"kubetide_recommender_conflicting_vpas": "0x400"},
    ),
    "KubetideUpdatesPaused": ({"kubetide_updater_paused_vpas": "1x400"}, {}, {"kubetide_updater_paused_vpas": "0x400"}),
    "KubetideWebhookNotPatching": (
        {'kubetide_admission_patching{pod="a"}': "0x400", 'kubetide_admission_patching{pod="b"}': "0x400"},
        {},
        {'kubetide_admission_patching{pod="a"}': "0x400", 'kubetide_admission_patching{pod="b"}': "1x400"},
    ),
    "KubetideCertificateNotShown": (
        {'kubetide_webhook_certificate_matches{server="vpa"}': "0x400"},
        {"server": "vpa"},
        {'kubetide_webhook_certificate_matches{server="vpa"}': "1x400"},
    ),
    "KubetideConfigRefused": (
        {'kubetide_slo_config_problems_total{key="k"}': "0+1x400"},
        {"key": "k"},
        {'kubetide_slo_config_problems_total{key="k"}': "4x400"},
    ),
    "KubetideAgentRestartsModules": (
        {'kubetide_node_module_restarts_total{node="n",module="m"}': "0+1x400"},
        {"node": "n", "module": "m"},
        {'kubetide_node_module_restarts_total{node="n",module="m"}': "0 1 1x400"},
    ),
    "KubetideAgentLosesSamples": (
        {'kubetide_node_history_lost_batches{node="n"}': "0+1x400"},
        {"node": "n"},
        {'kubetide_node_history_lost_batches{node="n"}': "5x400"},
    ),
}


def lasting(rule: dict[str, Any]) -> str:
    """Return a moment at which what lasts since the start has fired, but no later than needed."""
    return "6h10m" if rule["for"] == "6h" else "1h5m" if rule["for"] == "1h" else "35m"


def test_every_alert_has_a_case() -> None:
    assert [rule["alert"] for rule in ALERTS] == list(CASES)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_runbook_with_all_its_parts(rule: dict[str, Any]) -> None:
    page = rule["annotations"]["runbook_url"].removeprefix("RUNBOOKS/")
    text = (ROOT / "docs" / "runbooks" / page).read_text()
    for part in (f"# {rule['alert']}", "**Meaning.**", "**Impact.**", "## Look", "## Fix"):
        assert part in text


def test_alerts_are_about_metrics_that_components_have() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for rule in ALERTS:
        for name in re.findall(r"\b(?:kubetide|leader|rest_client)_\w+", rule["expr"]):
            assert f'"{name}"' in source, f"{rule['alert']} is about {name}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian package prometheus)")
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    by_name = {rule["alert"]: rule for rule in ALERTS}
    tests = []
    for name, (firing, labels, quiet) in CASES.items():
        severity = by_name[name]["labels"]["severity"]
        expected = [{"exp_labels": {**labels, "severity": severity}}]
        for series, alerts in ((firing, expected), (quiet, [])):
            inputs = [{"series": each, "values": values} for each, values in series.items()]
            check = {"eval_time": lasting(by_name[name]), "alertname": name, "exp_alerts": alerts}
            tests.append({"interval": "1m", "input_series": inputs, "alert_rule_test": [check]})
    # Only labels are compared: what people read contains values.
    bare = yaml.safe_load(RULES.read_text())
    for rule in bare["groups"][0]["rules"]:
        rule.pop("annotations")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(bare))
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(tmp_path / "tests.yaml")]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
