"""Every verdict about an object: the situation, the line, the remedy."""

from typing import Any

import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.verdicts.core.budgets import judge_pdb
from kubetide.verdicts.core.judge import NEEDS, about, rows
from kubetide.verdicts.core.table import TABLE
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.webhook import judge_webhook
from unit.verdicts.breaking import NODE, POD, WEB, change, ended, no_cpu_request, single
from unit.verdicts.situations_autoscalers import AUTOSCALERS
from unit.verdicts.situations_others import OTHERS
from unit.verdicts.town import Town, container

SITUATIONS = {**AUTOSCALERS, **OTHERS}
PREFLIGHT = frozenset(
    {
        "server-unreachable",
        "upstream-differs",
        "api-missing",
        "crd-missing",
        "metrics-missing",
        "namespace-missing",
        "permissions-missing",
        "server-old",
        "api-optional",
        "rival",
        "component-absent",
        "component-ok",
    }
)
"""What tests/cluster/test_doctor.py asks a server about."""


def findings(town: Town, kind: str, key: ObjectKey, record: dict[str, Any]) -> list[Finding]:
    view = town.view()
    if kind == "webhook":
        return judge_webhook(view)
    if kind == "pdb":
        return judge_pdb(view, next(one for one in view.pdbs if one.metadata.name == key.name))
    return about(view, kind, key, record)


@pytest.mark.parametrize("verdict", SITUATIONS)
def test_a_situation_has_its_verdict_and_its_remedy(verdict: str) -> None:
    break_it, kind, key, record, line, remedy = SITUATIONS[verdict]
    town = Town()
    break_it(town)
    told = {finding.verdict.id: finding for finding in findings(town, kind, key, record)}
    assert verdict in told, [finding.line for finding in told.values()]
    assert (told[verdict].line, told[verdict].remedy) == (line, remedy)


@pytest.mark.parametrize(("by", "line"), [("rollout", "OK"), ("rolout", "NOT APPLIED")])
def test_a_single_replica_that_is_rolled_out_is_not_too_few(by: str, line: str) -> None:
    town = Town()
    single(town)
    change("VerticalPodAutoscaler", metadata__annotations={"kubetide.io/update-by": by})(town)
    assert [finding.line.partition(":")[0] for finding in findings(town, "vpa", WEB, {})] == [line]


def test_every_verdict_has_a_situation() -> None:
    assert {verdict.id for verdict in TABLE} == SITUATIONS.keys() | PREFLIGHT


def test_lines_and_remedies_are_of_one_form() -> None:
    for verdict in TABLE:
        words, _, cause = verdict.line.partition(": ")
        assert words.isupper(), verdict.id
        assert cause, verdict.id
        assert "\n" not in verdict.line + verdict.remedy
        assert verdict.remedy.startswith(("kubectl ", "kubetide ", "<restart>")) or not verdict.remedy, verdict.id
        if verdict.severity is Severity.OK:
            assert (words, verdict.remedy) == ("OK", ""), verdict.id
        elif verdict.severity.is_problem:
            assert verdict.remedy, f"{verdict.id} has a problem and no remedy"
        assert verdict.meaning.endswith(".")


def test_a_healthy_cluster_has_no_rows() -> None:
    assert rows(Town().view()) == []


@pytest.mark.parametrize("kind", ["hpa", "vpa", "pod", "node", "deploy"])
@pytest.mark.parametrize("resource", ["pods", "deployments.apps", "nodes", "leases.coordination.k8s.io"])
def test_what_cannot_be_read_is_never_fine(kind: str, resource: str) -> None:
    town = Town()
    town.unreadable[resource] = "forbidden"
    key = {"pod": POD, "node": NODE}.get(kind, WEB)
    severities = {finding.severity for finding in about(town.view(), kind, key)}
    assert (Severity.OK not in severities) == (resource in NEEDS[kind])
    assert [finding.verdict.id for finding in rows(town.view())][:1] == ["unreadable"]


def test_pods_of_one_workload_with_the_same_trouble_are_one_row() -> None:
    town = Town()
    ended("OOMKilled")(town)
    (row,) = [finding for finding in rows(town.view()) if finding.verdict.id == "pod-oom"]
    assert row.line.endswith("(and 1 more like it)")


def test_an_old_end_of_a_container_that_has_run_well_since_is_no_trouble() -> None:
    town = Town()
    ended("OOMKilled", ready=True, at="2026-03-01T11:30:00Z")(town)
    change("Pod", status__containerStatuses__0__state={"running": {}})(town)
    assert [finding.verdict.id for finding in about(town.view(), "pod", POD)] == ["pod-ok"]


def test_the_worst_comes_first_and_a_workload_reports_what_its_parts_have() -> None:
    town = Town()
    no_cpu_request(town)
    change("HorizontalPodAutoscaler", spec__minReplicas=5)(town)
    change("PodDisruptionBudget", spec__minAvailable=2, status__disruptionsAllowed=0, status__desiredHealthy=2)(town)
    told = [finding.verdict.id for finding in about(town.view(), "deploy", WEB)]
    assert told == ["hpa-no-request", "hpa-pinned", "pdb-blocks"]


def test_a_sidecar_without_a_request_counts_and_pod_level_requests_stand_in() -> None:
    town = Town()
    sidecar = {**container("proxy"), "restartPolicy": "Always", "resources": {}}
    for spec in (town.get("Deployment")["spec"]["template"]["spec"], *(one["spec"] for one in town.all("Pod"))):
        spec["initContainers"] = [sidecar]
    assert about(town.view(), "hpa", WEB)[0].line.startswith("NOT SCALING: container proxy requests no cpu")
    for spec in (town.get("Deployment")["spec"]["template"]["spec"], *(one["spec"] for one in town.all("Pod"))):
        spec["resources"] = {"requests": {"cpu": "1"}}
    assert about(town.view(), "hpa", WEB)[0].verdict.id == "hpa-ok"


def test_a_conflict_with_policies_of_its_own_changes_nothing_else() -> None:
    town = Town()
    policies = [{"containerName": "main", "minAllowed": {"cpu": "100m"}}, {"containerName": "side", "mode": "Off"}]
    change("VerticalPodAutoscaler", spec__resourcePolicy={"containerPolicies": policies})(town)
    (finding,) = [one for one in about(town.view(), "vpa", WEB) if one.verdict.id == "vpa-hpa-conflict"]
    assert '"path":"/spec/resourcePolicy/containerPolicies/0/controlledResources","value":["memory"]' in finding.remedy
    assert '{"containerName":"*","controlledResources":["memory"]}' in finding.remedy
