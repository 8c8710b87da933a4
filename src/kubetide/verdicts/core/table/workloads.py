"""Verdicts about workloads, their pods and their disruption budgets."""

from kubetide.verdicts.core.verdict import Severity, Verdict

_ERROR, _UNKNOWN, _WARNING, _NOTE, _OK = Severity

_LOOSEN_PDB = (
    "kubectl patch pdb <name> -n <namespace> --type=merge -p "
    """'{"spec":{"minAvailable":null,"maxUnavailable":1}}'"""
)

WORKLOAD = (
    Verdict(
        "workload-quota",
        _ERROR,
        "BLOCKED: one more pod needs <resource> <wanted>, quota <quota> has <free> left",
        "kubectl patch resourcequota <quota> -n <namespace> --type=merge -p "
        """'{"spec":{"hard":{"<hard>":"<amount>"}}}'""",
        "The next pod, of a rollout or of an autoscaler, would be refused.",
    ),
    Verdict(
        "workload-overlap",
        _ERROR,
        "CONFLICT: <other_kind> <other> selects pods of this <own_kind> too",
        "kubectl get pods -n <namespace> -l '<selector>' --show-labels",
        "Two workloads with overlapping selectors take each other's pods for their own. A selector cannot be "
        "changed: one of them has to be made again with a label of its own.",
    ),
    Verdict(
        "workload-unready",
        _WARNING,
        "UNREADY: <ready> of <count> pods are ready",
        "kubectl rollout status <workload> -n <namespace>",
        "Fewer pods serve than the workload wants; verdicts of its pods say why.",
    ),
    Verdict(
        "workload-no-room",
        _WARNING,
        "NO ROOM: one more pod needs <needs>, <shortage>",
        "kubectl set resources <workload> -n <namespace> --requests=<fitting>",
        "No node could take another pod: a rollout with a surge or the next scale-up waits. Add a node, or lower the "
        "requests to what fits now.",
    ),
    Verdict(
        "workload-stopped",
        _NOTE,
        "OFF: it is set to 0 replicas",
        "kubectl scale <workload> -n <namespace> --replicas=1",
        "Nothing runs because nothing is asked for.",
    ),
    Verdict(
        "workload-ok",
        _OK,
        "OK: <ready> of <count> pods are ready; <detail>",
        "",
        "The workload runs as it should.",
    ),
)

POD = (
    Verdict(
        "pod-oom",
        _ERROR,
        "OOM: container <container> ran out of memory, <restarts> restarts, limit <limit>",
        "kubectl set resources <workload> -n <namespace> -c <container> --limits=memory=<amount>",
        "The kernel ended the container because it used more memory than its limit. The amount is half as much again.",
    ),
    Verdict(
        "pod-crashing",
        _ERROR,
        "CRASHING: container <container> ended with exit code <code>, <restarts> restarts",
        "kubectl logs <name> -n <namespace> -c <container> --previous",
        "The container ends by itself again and again; its last log says why.",
    ),
    Verdict(
        "pod-image",
        _ERROR,
        "NO IMAGE: container <container> cannot get its image (<reason>)",
        "kubectl describe pod <name> -n <namespace>",
        "The image does not exist, or the node may not pull it.",
    ),
    Verdict(
        "pod-no-room",
        _ERROR,
        "PENDING: it needs <needs>, <shortage>",
        "kubectl set resources <workload> -n <namespace> --requests=<fitting>",
        "No node has room. Add a node, or lower the requests to what fits now.",
    ),
    Verdict(
        "pod-unschedulable",
        _ERROR,
        "PENDING: <message>",
        "kubectl describe pod <name> -n <namespace>",
        "The scheduler found no node, for a reason of its own.",
    ),
    Verdict(
        "pod-resize-infeasible",
        _WARNING,
        "NOT RESIZED: its node can never hold the new size",
        "kubectl delete pod <name> -n <namespace>",
        "A resize in place was refused for good. A new pod may go to another node.",
    ),
    Verdict(
        "pod-not-ready",
        _WARNING,
        "NOT READY: <message>",
        "kubectl describe pod <name> -n <namespace>",
        "The pod runs and does not pass its readiness probe.",
    ),
    Verdict(
        "pod-resize-deferred",
        _NOTE,
        "WAITING: its node has no room for the new size now",
        "kubectl delete pod <name> -n <namespace>",
        "The kubelet tries again by itself; a new pod may go to another node at once.",
    ),
    Verdict("pod-starting", _NOTE, "STARTING: <message>", "", "The pod is being started."),
    Verdict(
        "pod-finished",
        _NOTE,
        "FINISHED: it has ended (<message>)",
        "",
        "The pod has ended or is being deleted; nothing is decided about it any more.",
    ),
    Verdict("pod-ok", _OK, "OK: <detail>", "", "The pod runs as it should."),
)

PDB = (
    Verdict(
        "pdb-two",
        _ERROR,
        "BLOCKING: pod <pod> has two budgets, this one and <other>, so it can never be evicted",
        "kubectl delete pdb <surplus> -n <namespace>",
        "The API server refuses every eviction of a pod that two budgets match.",
    ),
    Verdict(
        "pdb-not-counted",
        _UNKNOWN,
        "UNKNOWN: nobody has counted the pods of this budget",
        "kubectl get pdb <name> -n <namespace> -o yaml",
        "The disruption controller has not written its status; until then no pod may be evicted.",
    ),
    Verdict(
        "pdb-blocks",
        _WARNING,
        "BLOCKING: <rule> of <count> pods lets none be evicted, ever",
        _LOOSEN_PDB,
        "The budget allows no disruption although all pods are healthy: drains, the updater and evictions wait for "
        "ever.",
    ),
    Verdict(
        "pdb-unhealthy",
        _WARNING,
        "BLOCKING: <healthy> of <count> pods are healthy, <wanted> are wanted, so none may be evicted",
        """kubectl patch pdb <name> -n <namespace> --type=merge -p """
        """'{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}'""",
        "Pods that are not ready use up the budget. The remedy lets those be evicted that serve nobody.",
    ),
    Verdict(
        "pdb-no-pods",
        _NOTE,
        "IDLE: it matches no pod",
        "kubectl delete pdb <name> -n <namespace>",
        "The selector fits no pod: the workload is gone, or its labels have changed.",
    ),
    Verdict("pdb-ok", _OK, "OK: <allowed> of <count> pods may be evicted now", "", "The budget lets evictions happen."),
)
