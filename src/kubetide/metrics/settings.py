"""Settings of the metrics server. Flags carry the names that metrics-server gave them, where it has them."""

import os
from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.api.objects.sample_frames import STREAM_SERVICE
from kubetide.config import Doc, Settings
from kubetide.errors import SettingsError

ADDRESS_TYPES = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
TLS_VERSIONS = ("VersionTLS12", "VersionTLS13")


class MetricsSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "metrics"

    metric_resolution: Annotated[
        timedelta,
        Doc(
            "How often kubelets are scraped, of nodes whose agent does not stream.", flag="metric-resolution", minimum=1
        ),
    ] = timedelta(seconds=15)
    node_selector: Annotated[str, Doc("Labels of the nodes that are scraped; empty: all.", flag="node-selector")] = ""
    kubelet_preferred_address_types: Annotated[
        tuple[str, ...],
        Doc(
            "Which address of a node is used, the first one it has.",
            flag="kubelet-preferred-address-types",
            choices=ADDRESS_TYPES,
        ),
    ] = ("InternalIP", "ExternalIP", "Hostname")
    kubelet_use_node_status_port: Annotated[
        bool, Doc("Use the port that the node reports.", flag="kubelet-use-node-status-port")
    ] = True
    kubelet_port: Annotated[int, Doc("Port of kubelets otherwise.", flag="kubelet-port", maximum=65535)] = 10250
    kubelet_insecure_tls: Annotated[
        bool,
        Doc("Do not verify the certificates of kubelets. For trying things out.", flag="kubelet-insecure-tls"),
    ] = False
    kubelet_certificate_authority: Annotated[
        str,
        Doc("CA of the kubelets' certificates, a file. Empty: the cluster's.", flag="kubelet-certificate-authority"),
    ] = ""
    kubelet_client_certificate: Annotated[
        str, Doc("Certificate to show to kubelets instead of a token, a file.", flag="kubelet-client-certificate")
    ] = ""
    kubelet_client_key: Annotated[str, Doc("Its key, a file.", flag="kubelet-client-key")] = ""
    kubelet_request_timeout: Annotated[
        timedelta, Doc("How long a kubelet may take to answer.", flag="kubelet-request-timeout")
    ] = timedelta(seconds=10)
    scrape_concurrency: Annotated[int, Doc("Kubelets that are asked at the same time.", minimum=1)] = 64

    bind_address: Annotated[str, Doc("Address to listen on.", flag="bind-address")] = "0.0.0.0"
    secure_port: Annotated[int, Doc("Port of the API.", flag="secure-port", maximum=65535)] = 10250
    address: Annotated[str, Doc("Where telemetry and health are served when the server runs alone.")] = ":8948"
    max_connections: Annotated[
        int,
        Doc("Connections at most: one per agent, and those of API servers.", minimum=1, flag="metrics-max-connections"),
    ] = 16384
    cert_dir: Annotated[
        str,
        Doc(
            "Folder with apiserver.crt and apiserver.key, where no files are named; reloaded when they change. "
            "Empty: made and rotated by kubetide, kept in a Secret.",
            flag="cert-dir",
        ),
    ] = ""
    tls_cert_file: Annotated[str, Doc("Certificate of the API, a file.", flag="tls-cert-file")] = ""
    tls_private_key_file: Annotated[str, Doc("Its key, a file.", flag="tls-private-key-file")] = ""
    tls_min_version: Annotated[str, Doc("Oldest TLS version.", flag="tls-min-version", choices=TLS_VERSIONS)] = (
        "VersionTLS12"
    )
    tls_cipher_suites: Annotated[
        str, Doc("Ciphers of TLS 1.2 by their names in Go. Empty: the library's choice.", flag="tls-cipher-suites")
    ] = ""
    tls_secret: Annotated[str, Doc("Secret that holds certificates made by kubetide.", flag="metrics-tls-secret")] = (
        "kubetide-metrics-certs"
    )
    certificate_lifetime: Annotated[
        timedelta,
        Doc(
            "Lifetime of a server certificate made by kubetide; renewed after two thirds.",
            flag="metrics-certificate-lifetime",
        ),
    ] = timedelta(days=90)
    ca_lifetime: Annotated[
        timedelta, Doc("Lifetime of a CA made by kubetide; renewed after two thirds.", flag="metrics-ca-lifetime")
    ] = timedelta(days=3650)
    refresh_period: Annotated[
        timedelta, Doc("How often certificates and registration are checked.", minimum=1, flag="metrics-refresh-period")
    ] = timedelta(seconds=10)
    service: Annotated[str, Doc("Service through which the API server reaches this.", flag="metrics-service")] = (
        STREAM_SERVICE
    )
    namespace: Annotated[
        str,
        Doc(
            "Own namespace: of the Service, the Secret and the ConfigMaps. Empty: the environment's NAMESPACE, else "
            "kube-system.",
            flag="metrics-namespace",
        ),
    ] = ""
    register: Annotated[
        bool,
        Doc("Keep the CA of the APIServices that point to this Service up to date.", flag="register-apiservices"),
    ] = True

    metrics_config: Annotated[
        str,
        Doc("ConfigMap with rules for Prometheus (config.yaml) and other servers of metrics (backends.yaml)."),
    ] = "kubetide-metrics-config"
    prometheus_url: Annotated[
        str, Doc("Where Prometheus answers the queries of the rules. Empty: nowhere.", flag="prometheus-url")
    ] = ""
    prometheus_ca_file: Annotated[
        str, Doc("CA of Prometheus' certificate, a file. Empty: the system's.", flag="prometheus-ca-file")
    ] = ""
    prometheus_token_file: Annotated[
        str, Doc("Bearer token to show to Prometheus, a file.", flag="prometheus-token-file")
    ] = ""
    prometheus_timeout: Annotated[timedelta, Doc("How long a query may take.", flag="prometheus-timeout")] = timedelta(
        seconds=10
    )
    prometheus_cache: Annotated[
        timedelta, Doc("How long the answer to a query is good for all who ask the same.", flag="prometheus-cache")
    ] = timedelta(seconds=5)
    prometheus_concurrency: Annotated[
        int, Doc("Queries that run at the same time.", minimum=1, flag="prometheus-concurrency")
    ] = 8
    metrics_relist_interval: Annotated[
        timedelta, Doc("How often rules look for new series.", flag="metrics-relist-interval")
    ] = timedelta(minutes=10)

    keda_scaler_address: Annotated[
        str,
        Doc(
            "Where node signals are served to KEDA as an external scaler (gRPC over TLS), such as 0.0.0.0:9090. "
            "Empty: nowhere. Needs the extra agent.",
            flag="keda-scaler-address",
        ),
    ] = ""
    keda_client_ca_file: Annotated[
        str, Doc("CA of the clients that the scaler answers, a file. Empty: whoever asks.", flag="keda-client-ca-file")
    ] = ""

    client_ca_file: Annotated[
        str, Doc("CA of client certificates, a file, instead of the cluster's.", flag="client-ca-file")
    ] = ""
    requestheader_client_ca_file: Annotated[
        str, Doc("CA of the front proxy, a file, instead of the cluster's.", flag="requestheader-client-ca-file")
    ] = ""
    requestheader_allowed_names: Annotated[
        tuple[str, ...],
        Doc("Common names of the front proxy, instead of the cluster's.", flag="requestheader-allowed-names"),
    ] = ()
    token_cache_ttl: Annotated[
        timedelta, Doc("How long a reviewed token is believed.", flag="authentication-token-webhook-cache-ttl")
    ] = timedelta(seconds=10)
    authorized_ttl: Annotated[
        timedelta,
        Doc("How long a permission is believed.", flag="authorization-webhook-cache-authorized-ttl"),
    ] = timedelta(seconds=10)
    unauthorized_ttl: Annotated[
        timedelta,
        Doc("How long a missing permission is believed.", flag="authorization-webhook-cache-unauthorized-ttl"),
    ] = timedelta(seconds=10)

    def __post_init__(self) -> None:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise SettingsError("certificate and key go together", field="tls-cert-file")
        if bool(self.kubelet_client_certificate) != bool(self.kubelet_client_key):
            raise SettingsError("certificate and key go together", field="kubelet-client-certificate")

    @property
    def own_namespace(self) -> str:
        """Where the Service, the Secret and the ConfigMaps are."""
        return self.namespace or os.environ.get("NAMESPACE", "") or "kube-system"
