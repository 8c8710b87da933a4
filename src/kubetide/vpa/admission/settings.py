"""Settings of the admission controller. Names and defaults of upstream, unless the text says otherwise."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar

from kubetide.api.values.compat import Compat
from kubetide.config import Doc, Settings
from kubetide.errors import SettingsError
from kubetide.vpa import settings as shared
from kubetide.vpa.admission.core.heartbeat import ADMISSION_LEASE
from kubetide.vpa.core.compat import DEFAULT, check_gates, compat_of, gate_enabled


class AdmissionSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "admission"

    client_ca_file: Annotated[Path, Doc("CA certificate that the API server gets to trust.")] = Path(
        "/etc/tls-certs/caCert.pem"
    )
    tls_cert_file: Annotated[Path, Doc("Server certificate.")] = Path("/etc/tls-certs/serverCert.pem")
    tls_private_key: Annotated[Path, Doc("Key of the server certificate.")] = Path("/etc/tls-certs/serverKey.pem")
    generate_certificates: Annotated[
        bool,
        Doc(
            "Make and rotate CA and server certificate, kept in a Secret, where the files above do not exist. "
            "Not upstream, whose installer makes them."
        ),
    ] = True
    tls_secret: Annotated[str, Doc("Secret that holds certificates made by kubetide.")] = "vpa-tls-certs"
    certificate_lifetime: Annotated[
        timedelta, Doc("Lifetime of a server certificate made by kubetide; renewed after two thirds.")
    ] = timedelta(days=90)
    ca_lifetime: Annotated[timedelta, Doc("Lifetime of a CA made by kubetide; renewed after two thirds.")] = timedelta(
        days=3650
    )
    ca_notice: Annotated[
        timedelta, Doc("How long a new CA made by kubetide is trusted before the server certificate is signed by it.")
    ] = timedelta(minutes=1)
    reload_cert: Annotated[
        bool, Doc("Read certificate files again when they change. Off upstream; reloading drops no request.")
    ] = True
    min_tls_version: Annotated[str, Doc("tls1_2 or tls1_3.", choices=("tls1_2", "tls1_3"))] = "tls1_2"
    tls_ciphers: Annotated[
        str,
        Doc(
            "Ciphers of TLS 1.2, by their names in Go or OpenSSL, separated by commas or colons; unknown ones are "
            "ignored. Empty: the library's choice."
        ),
    ] = ""
    host: Annotated[str, Doc("Address to listen on; empty: all.")] = ""
    port: Annotated[int, Doc("Port of the webhook.", maximum=65535)] = 8000
    address: Annotated[str, Doc("Where metrics and health are served when the admission controller runs alone.")] = (
        ":8944"
    )
    webhook_service: Annotated[str, Doc("Service through which the API server reaches the webhook.")] = "vpa-webhook"
    webhook_address: Annotated[str, Doc("Host or https:// URL for --register-by-url.")] = ""
    webhook_port: Annotated[str, Doc("Port for --register-by-url; empty: that of the webhook.")] = ""
    webhook_timeout_seconds: Annotated[
        int,
        Doc(
            "How long the API server waits for the webhook. 30 upstream: creating pods would wait as long.",
            minimum=1,
            maximum=30,
        ),
    ] = 5
    register_webhook: Annotated[bool, Doc("Write the webhook configuration.")] = True
    register_by_url: Annotated[bool, Doc("Register an address instead of a Service.")] = False
    register_delay: Annotated[
        timedelta, Doc("How long to wait with registration after the start, so that the server is up.")
    ] = timedelta(seconds=10)
    webhook_failure_policy_fail: Annotated[
        bool, Doc("Refuse pods while the webhook cannot be reached (failurePolicy Fail instead of Ignore).")
    ] = False
    webhook_labels: Annotated[str, Doc("Labels of the webhook configuration, as key:value,key:value.")] = ""
    webhook_match_conditions: Annotated[
        bool,
        Doc("Let the API server ask only about pods that a VPA may select (matchConditions). Not upstream."),
    ] = True
    local_name: Annotated[
        str, Doc("Register as local://NAME on an embedded API server in the same process, without a socket.")
    ] = ""
    max_allowed_cpu_boost: Annotated[str, Doc("Upper end of a boosted CPU request; empty: none.")] = ""
    vpa_object_namespace: shared.VpaNamespace = ""
    ignored_vpa_object_namespaces: Annotated[
        tuple[str, ...], Doc("Namespaces whose pods are left alone. Not together with --vpa-object-namespace.")
    ] = ()
    feature_gates: shared.FeatureGates = ()
    compat: shared.CompatRelease = str(DEFAULT)
    profiling: shared.Profiling = False
    namespace: Annotated[
        str,
        Doc(
            "Own namespace: of the Service, the lease and the Secret. Its pods are exempt if failures stop pods. "
            "Empty: the environment's NAMESPACE, else kube-system.",
            flag="webhook-namespace",
        ),
    ] = ""
    lease_name: Annotated[
        str, Doc("Lease that shows the updater that the webhook lives.", flag="status-lease-name")
    ] = ADMISSION_LEASE
    lease_namespace: Annotated[
        str, Doc("Namespace of that lease; empty: the own namespace.", flag="status-lease-namespace")
    ] = ""
    lease_period: Annotated[
        timedelta,
        Doc(
            "How often the lease is renewed, how long one renewal may take, and the duration that a new lease states.",
            flag="status-lease-update-interval",
        ),
    ] = timedelta(seconds=10)
    probe_webhook: Annotated[
        bool,
        Doc(
            "Create a pod as a dry run with every renewal, to see whether the API server really calls the webhook; "
            "the lease reports it in an annotation. Needs permission to create pods in the probe namespace."
        ),
    ] = True
    probe_namespace: Annotated[
        str,
        Doc(
            "Namespace of the dry run, unless one namespace is chosen: then there. There is none in a namespace that "
            "is ignored or exempt, whose pods the webhook is not asked about."
        ),
    ] = "default"

    upstream_behavior: Annotated[
        bool, Doc("Switch off everything that kubetide adds to upstream's admission controller for safety.")
    ] = False
    memory_headroom: shared.MemoryHeadroom = 0.2
    fit_nodes: shared.FitNodes = True

    def gate(self, name: str) -> bool:
        """Return whether a feature gate is switched on."""
        return gate_enabled(self.feature_gates, name)

    @property
    def followed(self) -> Compat:
        """Return the release whose rules decide."""
        return compat_of(self.compat, exactly=self.upstream_behavior)

    def checked(self) -> "AdmissionSettings":
        """Return self, or raise SettingsError for a value that cannot be used."""
        check_gates(self.feature_gates, section=self.section)
        _ = self.followed
        if self.lease_period <= timedelta():
            raise SettingsError("must be positive", subject=self.section, field="lease_period")
        return self
