"""Verdicts about nodes, the admission webhook, and the cluster as a place for kubetide to run."""

from kubetide.verdicts.core.verdict import Severity, Verdict

_ERROR, _UNKNOWN, _WARNING, _NOTE, _OK = Severity

METRICS_SERVER = (
    "kubectl apply -f https://github.com/kubernetes-sigs/metrics-server/releases/latest/download/components.yaml"
)

NODE = (
    Verdict(
        "node-not-ready",
        _ERROR,
        "NOT READY: <message>",
        "kubectl describe node <name>",
        "The kubelet does not report, or reports that it cannot run pods.",
    ),
    Verdict(
        "node-pressure",
        _ERROR,
        "UNDER PRESSURE: <condition>",
        "kubectl top pods -A --sort-by=<sort>",
        "The node runs out of memory, disk or process ids, and evicts pods.",
    ),
    Verdict(
        "node-strategy-failing",
        _WARNING,
        "NOT ENFORCED: <strategy> fails: <message>",
        "kubetide node audit",
        "A strategy of the node agent cannot write what it wants; the audit shows what it wrote last.",
    ),
    Verdict(
        "node-report-stale",
        _WARNING,
        "STALE: the agent last reported <age> ago, so nothing is overcommitted",
        "kubectl get pods -A --field-selector spec.nodeName=<name>",
        "Without a fresh report nobody knows what can be shared. The remedy shows whether the agent's pod runs there.",
    ),
    Verdict(
        "node-cordoned",
        _NOTE,
        "CORDONED: it takes no new pods",
        "kubectl uncordon <name>",
        "Somebody took the node out of scheduling.",
    ),
    Verdict("node-ok", _OK, "OK: requests take <detail>", "", "The node works."),
)

WEBHOOK = (
    Verdict(
        "webhook-not-patching",
        _ERROR,
        "NOT PATCHING: the API server does not reach the admission webhook",
        "<restart>",
        "The webhook is registered and lives, but a pod made as a dry run came back without its patch. On a cluster "
        "that cannot reach its Service: --register-by-url --webhook-address=https://HOST.",
    ),
    Verdict(
        "webhook-silent",
        _ERROR,
        "NOT PATCHING: the admission webhook last reported <age> ago",
        "<restart>",
        "The lease of the webhook is not renewed: it does not run, or may not write.",
    ),
    Verdict(
        "webhook-unregistered",
        _ERROR,
        "NOT PATCHING: the admission webhook runs, but the API server does not know it",
        "<restart>",
        "There is no MutatingWebhookConfiguration vpa-webhook-config. The webhook registers itself when it starts, "
        "unless --register-webhook=false.",
    ),
    Verdict(
        "webhook-missing",
        _ERROR,
        "NOT PATCHING: <count> VPAs set sizes, and no admission webhook runs",
        "kubetide manifests admission | kubectl apply -f -",
        "Without the webhook new pods get the requests of their template, whatever a VPA recommends.",
    ),
    Verdict("webhook-ok", _OK, "OK: new pods come back patched", "", "The admission webhook works."),
)

CLUSTER = (
    Verdict(
        "server-unreachable",
        _UNKNOWN,
        "UNKNOWN: the API server does not answer: <message>",
        "kubectl cluster-info",
        "Nothing can be said about a cluster that does not answer. Look at --kubeconfig and --context.",
    ),
    Verdict(
        "unreadable",
        _UNKNOWN,
        "UNKNOWN: <resource> cannot be read: <message>",
        "kubectl auth can-i list <resource> -A",
        "What cannot be read is not fine: verdicts that need it are missing.",
    ),
    Verdict(
        "api-missing",
        _ERROR,
        "MISSING: <resource> is not served: <message>",
        "kubectl api-resources --api-group=<group>",
        "The component cannot work without this API.",
    ),
    Verdict(
        "crd-missing",
        _ERROR,
        "MISSING: the custom resource <resource> is not installed",
        "kubetide manifests <component> | kubectl apply -f -",
        "The component keeps its objects there.",
    ),
    Verdict(
        "metrics-missing",
        _ERROR,
        "MISSING: <group> is not served, so there is no <message>",
        METRICS_SERVER,
        "The component cannot decide without usage.",
    ),
    Verdict(
        "namespace-missing",
        _ERROR,
        "MISSING: namespace <resource>, where the component keeps its lease or its secrets",
        "kubectl create namespace <resource>",
        "The component cannot start leading without it.",
    ),
    Verdict(
        "permissions-missing",
        _WARNING,
        "FORBIDDEN: this identity may not <message>",
        "kubetide manifests <component> | kubectl apply -f -",
        "The account that asks lacks permissions that the component needs. The manifests have an account with all.",
    ),
    Verdict(
        "server-old",
        _NOTE,
        "OLD: Kubernetes <version> is older than 1.27, with which kubetide was not tried",
        "kubectl version",
        "It may work; nobody has looked.",
    ),
    Verdict(
        "upstream-differs",
        _NOTE,
        "DIFFERS: <object>: upstream <upstream>, kubetide <ours>",
        "kubetide explain <explained>",
        "A `kubetide run … --compare` beside the upstream controller would have decided otherwise.",
    ),
    Verdict(
        "api-optional",
        _NOTE,
        "ABSENT: <resource> is not served: <message>",
        "kubectl api-resources --api-group=<group>",
        "The component works without it, with less.",
    ),
    Verdict(
        "component-absent",
        _NOTE,
        "NOT INSTALLED: it lacks <resource>",
        "kubetide doctor <name>",
        "Nobody has installed the component. The remedy says what it needs; a component that is named on the command "
        "line is meant to run, and what it lacks is an error.",
    ),
    Verdict(
        "rival",
        _NOTE,
        "BESIDE: <holder> holds <lease>, renewed <age> ago",
        "kubectl get lease <lease_name> -n <lease_namespace>",
        "Somebody else does the same work. kubetide holds back until told to take over (docs/guides/switching.md).",
    ),
    Verdict("component-ok", _OK, "OK: <detail>", "", "The component can run here."),
)
