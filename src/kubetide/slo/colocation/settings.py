"""Settings of the colocation webhook."""

import os
from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.api.values.compat import Compat
from kubetide.config import Doc, Settings
from kubetide.errors import SettingsError
from kubetide.slo.core.compat import parse_compat
from kubetide.slo.core.gates import gate_enabled, gate_warnings


class ColocationSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "colocation"

    compat: Annotated[
        str,
        Doc(
            "Release of Koordinator whose rules hold, 1.4 to 1.8. docs/reference/compat.md says what changed when.",
            flag="compat",
        ),
    ] = "1.8"
    feature_gates: Annotated[
        tuple[str, ...],
        Doc(
            "Features as Name=true or Name=false. On: PodMutatingWebhook, PodValidatingWebhook, WebhookFramework. "
            "Off: ColocationProfileSkipMutatingResources, ColocationProfileSkipValidatingPriority, "
            "EnablePodEnhancedValidator, ValidatePodDeviceResource, DisableExtendedResourceSpec, "
            "DisableDeviceResourceSpec, ReservationMutatingWebhook, ColocationProfileController."
        ),
    ] = ()
    record_profiles: Annotated[
        bool,
        Doc(
            "Note on each pod which profiles made it what it is (kubetide.io/colocation-profiles), "
            "for kubetide explain pod. Not upstream."
        ),
    ] = True
    host: Annotated[str, Doc("Address to listen on; empty: all.")] = ""
    port: Annotated[int, Doc("Port of the webhook.")] = 9877
    address: Annotated[str, Doc("Where metrics and health are served when the webhook runs alone.")] = ":8946"
    webhook_cert_dir: Annotated[
        str,
        Doc(
            "Folder with tls.crt, tls.key and ca.crt of the webhook; reloaded when they change. "
            "Empty: made and rotated by kubetide, kept in a Secret."
        ),
    ] = ""
    tls_secret: Annotated[str, Doc("Secret that holds certificates made by kubetide.")] = "kubetide-colocation-certs"
    certificate_lifetime: Annotated[
        timedelta, Doc("Lifetime of a server certificate made by kubetide; renewed after two thirds.")
    ] = timedelta(days=90)
    ca_lifetime: Annotated[timedelta, Doc("Lifetime of a CA made by kubetide; renewed after two thirds.")] = timedelta(
        days=3650
    )
    webhook_service: Annotated[str, Doc("Service through which the API server reaches the webhook.")] = (
        "kubetide-colocation"
    )
    webhook_address: Annotated[str, Doc("An address to register instead of the Service, such as 10.0.0.5.")] = ""
    webhook_timeout_seconds: Annotated[int, Doc("How long the API server waits for the webhook.")] = 5
    webhook_failure_policy_fail: Annotated[
        bool,
        Doc(
            "Refuse pods while the webhook cannot be reached (failurePolicy Fail), as upstream. Otherwise they "
            "start as they are, as prod pods. Pods in kubetide's own namespace are never asked about."
        ),
    ] = True
    register_webhook: Annotated[bool, Doc("Write the webhook configurations.")] = True
    refresh_period: Annotated[timedelta, Doc("How often certificates and registration are checked.")] = timedelta(
        seconds=10
    )
    namespace: Annotated[
        str,
        Doc(
            "Own namespace: of the Service and the Secret. Empty: the environment's NAMESPACE, else kube-system.",
            flag="webhook-namespace",
        ),
    ] = ""
    validator_config_namespace: Annotated[
        str,
        Doc("Namespace of the ConfigMap with required labels.", flag="pod-enhanced-validator-config-namespace"),
    ] = "koordinator-system"
    validator_config_name: Annotated[
        str, Doc("Name of the ConfigMap with required labels.", flag="pod-enhanced-validator-config-name")
    ] = "pod-enhanced-validator-config"
    validator_reconcile_interval: Annotated[
        timedelta,
        Doc("Accepted for compatibility: the ConfigMap is watched.", flag="pod-enhanced-validator-reconcile-interval"),
    ] = timedelta(minutes=5)

    colocation_profile_reconcile_by_default: Annotated[
        bool,
        Doc(
            "With the gate ColocationProfileController: every profile with a selector is for pending pods too, not "
            "only those with the label config.koordinator.sh/controller-managed=true."
        ),
    ] = False
    colocation_profile_reconcile_interval: Annotated[
        timedelta, Doc("How often pending pods are compared with their profiles.")
    ] = timedelta(seconds=30)
    colocation_profile_force_update_pod_duration: Annotated[
        timedelta, Doc("How long a pending pod that was looked at is left alone.")
    ] = timedelta(minutes=5)
    colocation_profile_expire_pod_cache_duration: Annotated[
        timedelta, Doc("How long it is remembered that a pending pod was looked at.")
    ] = timedelta(minutes=10)
    colocation_profile_update_pod_qps: Annotated[float, Doc("How many pending pods are patched per second.")] = 10.0
    colocation_profile_update_pod_qps_burst: Annotated[
        int, Doc("How many pending pods may be patched at once after a pause.")
    ] = 100
    leader_elect: Annotated[
        bool,
        Doc(
            "Patch pending pods only while holding the lease kubetide-colocation-profiles; the webhook itself needs "
            "none.",
            flag="colocation-leader-elect",
        ),
    ] = True

    def __post_init__(self) -> None:
        if self.colocation_profile_update_pod_qps <= 0:
            raise SettingsError("must be above 0", field="colocation-profile-update-pod-qps")
        if self.colocation_profile_reconcile_interval <= timedelta(0):
            raise SettingsError("must be above 0", field="colocation-profile-reconcile-interval")

    @property
    def own_namespace(self) -> str:
        """Where the Service, the Secret and the lease are."""
        return self.namespace or os.environ.get("NAMESPACE", "") or "kube-system"

    @property
    def version(self) -> Compat:
        """The release whose rules hold."""
        return parse_compat(self.compat)

    def gate(self, name: str) -> bool:
        """Return whether a feature is switched on; the last word about it counts."""
        return gate_enabled(self.feature_gates, name, self.version.version)

    def gate_warnings(self) -> tuple[str, ...]:
        """Return what to report about the feature gates that were set."""
        return tuple(gate_warnings(self.feature_gates, self.version.version))
