"""Verdicts about horizontal and vertical autoscalers."""

from kubetide.verdicts.core.table.cluster import METRICS_SERVER
from kubetide.verdicts.core.verdict import Severity, Verdict

_ERROR, _UNKNOWN, _WARNING, _NOTE, _OK = Severity

_SET_REQUEST = "kubectl set resources <workload> -n <namespace> -c <container> --requests=<resource>=<amount>"
_RETARGET = """kubectl patch <kind> <name> -n <namespace> --type=merge -p '{"spec":{"<field>":{"name":"<close>"}}}'"""
_NARROW_VPA = "kubectl patch vpa <vpa> -n <namespace> --type=json -p '<patch>'"
_PATCH_VPA = "kubectl patch vpa <name> -n <namespace> --type=json -p '<patch>'"
_CAN_I = "kubectl auth can-i <verb> <resource> -n <namespace>"
_EXPLAIN_WORKLOAD = "kubetide explain <workload_kind> <namespace>/<target>"

HPA = (
    Verdict(
        "hpa-target-misspelt",
        _ERROR,
        "NOT SCALING: there is no <target_kind> <target> in <namespace>; did you mean <close>?",
        _RETARGET,
        "The target does not exist, but a workload with a similar name does.",
    ),
    Verdict(
        "hpa-target-missing",
        _ERROR,
        "NOT SCALING: there is no <target_kind> <target> in <namespace>",
        "kubectl delete hpa <name> -n <namespace>",
        "The target does not exist. Create it, or delete the autoscaler that is left over.",
    ),
    Verdict(
        "hpa-no-request",
        _ERROR,
        "NOT SCALING: container <container> requests no <resource>, so utilization has no base",
        _SET_REQUEST,
        "A target in percent is a percentage of what containers request; one container without a request is enough "
        "to make it unknown. The amount is what the container uses now, where that is known, and 50m or 32Mi at least.",
    ),
    Verdict(
        "hpa-two-on-target",
        _ERROR,
        "NOT SCALING: HPA <other> scales <target_kind> <target> too, so neither is acted on",
        "kubectl delete hpa <younger> -n <namespace>",
        "Two autoscalers on one target would undo each other, so both are refused. The younger one is the one to go.",
    ),
    Verdict(
        "hpa-overlapping-selectors",
        _ERROR,
        "NOT SCALING: the selector <selector> also matches pods that HPA <other> scales",
        "kubectl get pods -n <namespace> -l '<selector>' --show-labels",
        "Pods that two autoscalers count are counted twice, so both are refused. Give each workload a label of its "
        "own in its selector and its template; a selector cannot be changed, so one of them has to be made again.",
    ),
    Verdict(
        "hpa-two-controllers",
        _ERROR,
        "FIGHTING: kube-controller-manager and kubetide both write this HPA",
        "kubectl annotate hpa <name> -n <namespace> kubetide.io/managed-by=kube-controller-manager --overwrite",
        "Two controllers wrote the object within the last minutes. The remedy leaves it to the built-in one; "
        "docs/guides/switching.md says how to hand over the other way.",
    ),
    Verdict(
        "hpa-metrics-api-missing",
        _ERROR,
        "NOT SCALING: metrics.k8s.io is not served, so no usage of pods is known",
        METRICS_SERVER,
        "The metric is the usage of pods, and nothing in the cluster serves it.",
    ),
    Verdict(
        "hpa-metric-failed",
        _ERROR,
        "NOT SCALING: <message>",
        "kubectl get --raw '<path>'",
        "A metric cannot be read, and what is not known never scales. The remedy asks for it as the controller does.",
    ),
    Verdict(
        "hpa-scale-failed",
        _ERROR,
        "NOT SCALING: <message>",
        _CAN_I,
        "The scale of the target cannot be read or written.",
    ),
    Verdict(
        "hpa-not-seen",
        _UNKNOWN,
        "UNKNOWN: no controller has written the status of this HPA",
        "kubetide run hpa",
        "No horizontal autoscaler is at work, or it has not come to this object yet.",
    ),
    Verdict(
        "hpa-stale-metrics",
        _WARNING,
        "STALE: the newest usage of its pods is <age> old",
        "<restart>",
        "Usage that old says nothing about the load of now; kubetide does not shrink on it.",
    ),
    Verdict(
        "hpa-not-acting",
        _WARNING,
        "NOT ACTING: kubetide computes, but does not write: <message>",
        "kubectl annotate hpa <name> -n <namespace> kubetide.io/managed-by=kubetide --overwrite",
        "Another controller is at work on this object, or it was left to one by annotation.",
    ),
    Verdict(
        "hpa-at-max",
        _WARNING,
        "CAPPED: at maxReplicas <max>, but the metrics ask for <wanted>",
        """kubectl patch hpa <name> -n <namespace> --type=merge -p '{"spec":{"maxReplicas":<wanted>}}'""",
        "The load wants more replicas than the autoscaler may give.",
    ),
    Verdict(
        "hpa-pinned",
        _WARNING,
        "PINNED: minReplicas and maxReplicas are both <max>, so nothing can scale",
        """kubectl patch hpa <name> -n <namespace> --type=merge -p '{"spec":{"maxReplicas":<double>}}'""",
        "An autoscaler with one allowed size is a fixed size with extra steps.",
    ),
    Verdict(
        "hpa-vpa-conflict",
        _WARNING,
        "CONFLICT: VPA <vpa> changes the <resource> requests that this HPA measures by",
        _NARROW_VPA,
        "The one moves the base that the other divides by, and they chase each other. The remedy takes the resource "
        "away from the VPA.",
    ),
    Verdict(
        "hpa-no-ready-pods",
        _WARNING,
        "WAITING: none of its <count> pods is ready",
        _EXPLAIN_WORKLOAD,
        "Without a ready pod there is no usage to scale on. The explanation of the workload says why none is.",
    ),
    Verdict(
        "hpa-dry-run",
        _NOTE,
        "DRY RUN: decisions are computed and not written",
        "kubectl annotate hpa <name> -n <namespace> kubetide.io/hpa-dry-run-",
        "Switched on by the annotation of the remedy, or by a flag of the controller.",
    ),
    Verdict(
        "hpa-rolling-out",
        _NOTE,
        "WAITING: a rollout gives container <container> its <resource> request; <count> pods are still without",
        "kubectl rollout status <workload> -n <namespace>",
        "The template has the request already, pods of the old template have not.",
    ),
    Verdict(
        "hpa-disabled",
        _NOTE,
        "OFF: the target has 0 replicas, which switches autoscaling off",
        "kubectl scale <workload> -n <namespace> --replicas=<min>",
        "An autoscaler leaves a target alone that somebody set to zero.",
    ),
    Verdict(
        "hpa-ok",
        _OK,
        "OK: <replicas> replicas (<min> to <max>); <detail>",
        "",
        "The autoscaler works.",
    ),
)

VPA = (
    Verdict(
        "vpa-target-misspelt",
        _ERROR,
        "NOT SIZING: there is no <target_kind> <target> in <namespace>; did you mean <close>?",
        _RETARGET,
        "The target does not exist, but a workload with a similar name does.",
    ),
    Verdict(
        "vpa-target-missing",
        _ERROR,
        "NOT SIZING: there is no <target_kind> <target> in <namespace>",
        "kubectl delete vpa <name> -n <namespace>",
        "The target does not exist. Create it, or delete the autoscaler that is left over.",
    ),
    Verdict(
        "vpa-unsupported",
        _ERROR,
        "NOT SIZING: <message>",
        "kubectl edit vpa <name> -n <namespace>",
        "The recommender cannot use what the object says; its condition names the field.",
    ),
    Verdict(
        "vpa-not-seen",
        _UNKNOWN,
        "UNKNOWN: no recommender has written the status of this VPA",
        "kubetide run recommender",
        "No recommender is at work, or it has not come to this object yet.",
    ),
    Verdict(
        "vpa-not-applied",
        _ERROR,
        "NOT APPLIED: mode <mode>, but <message>",
        "<restart>",
        "New pods get their size from the admission webhook; while it does not patch, nothing is evicted either.",
    ),
    Verdict(
        "vpa-paused",
        _WARNING,
        "PAUSED: <message>",
        "kubetide doctor admission -n <namespace>",
        "Evicted pods came back without the recommendation, so the updater stopped evicting.",
    ),
    Verdict(
        "vpa-two-on-target",
        _WARNING,
        "CONFLICT: VPA <other> sizes <target_kind> <target> too; only the older one counts",
        "kubectl delete vpa <younger> -n <namespace>",
        "Of several the oldest wins. The younger one only confuses.",
    ),
    Verdict(
        "vpa-hpa-conflict",
        _WARNING,
        "CONFLICT: HPA <hpa> measures by the <resource> requests that this VPA changes",
        _NARROW_VPA,
        "The same as `hpa-vpa-conflict`, seen from the other side.",
    ),
    Verdict(
        "vpa-capped",
        _WARNING,
        "CAPPED: container <container> needs <resource> <wanted>, maxAllowed is <bound>",
        _PATCH_VPA,
        "The recommendation without the policy is above what the policy allows.",
    ),
    Verdict(
        "vpa-no-pods",
        _WARNING,
        "WAITING: no pod matches <target_kind> <target>",
        "kubectl scale <workload> -n <namespace> --replicas=1",
        "Without pods there is no usage to learn from.",
    ),
    Verdict(
        "vpa-no-samples",
        _WARNING,
        "WAITING: no recommendation yet, no usage of its pods has been seen",
        "kubectl top pods -n <namespace>",
        "The recommender needs a sample of every container. The remedy shows whether the metrics API has any.",
    ),
    Verdict(
        "vpa-too-few-replicas",
        _WARNING,
        "NOT APPLIED: <target_kind> <target> has <count> replica, fewer than the 2 from which pods are evicted",
        """kubectl patch vpa <name> -n <namespace> --type=merge -p '{"spec":{"updatePolicy":{"minReplicas":1}}}'""",
        "Pods of a workload with fewer replicas than minReplicas (2 unless set) are never evicted; they get the "
        "recommendation when something else restarts them. The remedy lets them be evicted; for a Deployment the "
        "annotation kubetide.io/update-by: rollout starts the new pod first.",
    ),
    Verdict(
        "vpa-floored",
        _NOTE,
        "RAISED: container <container> needs <resource> <wanted>, minAllowed is <bound>",
        _PATCH_VPA,
        "The policy asks for more than the container has ever needed.",
    ),
    Verdict(
        "vpa-ok",
        _OK,
        "OK: <detail>",
        "",
        "There is a recommendation, and nothing stands against it.",
    ),
)
