"""Whether a disruption budget lets anybody be evicted, ever."""

from kubetide.api.objects.apps import PodDisruptionBudget
from kubetide.api.objects.meta import key_of
from kubetide.verdicts.core.finding import found
from kubetide.verdicts.core.verdict import Finding
from kubetide.verdicts.core.view import ClusterView, selector_of

KIND = "pdb"


def judge_pdb(view: ClusterView, pdb: PodDisruptionBudget) -> list[Finding]:
    """Return what there is to say about a budget."""
    key, status, spec = key_of(pdb), pdb.status, pdb.spec
    pods = view.matched(key.namespace, selector_of(pdb))
    if not pods:
        return [found("pdb-no-pods", KIND, key)]
    findings = []
    selecting = view.near(key.namespace).selecting_pdbs
    for pod in pods:
        others = [each.metadata.name for each in selecting.those(pod.metadata.labels) if each.metadata.name != key.name]
        if others:
            values = {"pod": pod.metadata.name, "other": others[0], "surplus": max(key.name, others[0])}
            findings.append(found("pdb-two", KIND, key, **values))
            break
    count = status.expected_pods or len(pods)
    if status.disruptions_allowed > 0:
        return findings or [found("pdb-ok", KIND, key, allowed=status.disruptions_allowed, count=count)]
    if status.observed_generation == 0:
        return findings or [found("pdb-not-counted", KIND, key)]
    if status.current_healthy < status.desired_healthy or status.current_healthy < count:
        healthy, wanted = status.current_healthy, status.desired_healthy
        return [*findings, found("pdb-unhealthy", KIND, key, healthy=healthy, count=count, wanted=wanted)]
    if spec.max_unavailable is not None:
        rule = f"maxUnavailable {spec.max_unavailable}"
    else:
        rule = f"minAvailable {spec.min_available if spec.min_available is not None else 1}"
    return [*findings, found("pdb-blocks", KIND, key, rule=rule, count=count)]
