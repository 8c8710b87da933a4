"""Every flag of the original updater and admission controller is taken."""

import pytest

from kubetide.cli.run import read_flags

SHARED = (
    "address",
    "feature-gates",
    "ignored-vpa-object-namespaces",
    "kube-api-burst",
    "kube-api-qps",
    "kubeconfig",
    "profiling",
    "vpa-object-namespace",
)
UPDATER = (
    "evict-after-oom-threshold",
    "eviction-rate-burst",
    "eviction-rate-limit",
    "eviction-tolerance",
    "in-place-skip-disruption-budget",
    "in-recommendation-bounds-eviction-lifetime-threshold",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "min-replicas",
    "pod-update-threshold",
    "updater-interval",
    "use-admission-controller-status",
    "admission-controller-status-lease-name",
    "admission-controller-status-lease-namespace",
    "admission-controller-status-lease-timeout",
)
ADMISSION = (
    "client-ca-file",
    "max-allowed-cpu-boost",
    "min-tls-version",
    "port",
    "register-by-url",
    "register-webhook",
    "reload-cert",
    "tls-cert-file",
    "tls-ciphers",
    "tls-private-key",
    "webhook-address",
    "webhook-failure-policy-fail",
    "webhook-labels",
    "webhook-port",
    "webhook-service",
    "webhook-timeout-seconds",
    "status-lease-name",
    "status-lease-namespace",
    "status-lease-update-interval",
)


@pytest.mark.parametrize(
    ("component", "flag"),
    [
        *(("updater", flag) for flag in (*SHARED, *UPDATER)),
        *(("admission", flag) for flag in (*SHARED, *ADMISSION)),
    ],
)
def test_a_flag_of_upstream_is_known(component: str, flag: str) -> None:
    assert flag in read_flags((component,), (f"--{flag}=1",)).by_section[component]
