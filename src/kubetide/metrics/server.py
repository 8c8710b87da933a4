"""The metrics server: an aggregated API server for metrics.k8s.io and its relatives, over HTTPS.

    start           caches synced -> certificates -> HTTPS server
    every resolution  kubelets of nodes without an agent's stream are scraped
    every 10 s      certificates rotated where due, the CA of our APIServices written, silent nodes forgotten

All replicas serve, scrape and take streams; there is nothing to elect. A replica is ready once it has heard of a node.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kubetide.api.objects.sample_frames import STREAM_CA
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.clock import Clock
from kubetide.errors import SettingsError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, NotFound
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import Certificate, ClientTls, Pem, ServerTrust, openssl_ciphers
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.control.controller import Controller, PeriodicLoop
from kubetide.kube.listener import listening
from kubetide.kube.server_tls import ServerTls, use_small_buffers
from kubetide.kube.webhook_certificates import Certificates
from kubetide.log import get_logger
from kubetide.metrics.agent_streams import AgentStreams
from kubetide.metrics.authentication import Authenticator
from kubetide.metrics.authorization import Authorizer
from kubetide.metrics.cluster_view import ClusterView
from kubetide.metrics.core.identity import TrustedProxies
from kubetide.metrics.core.readings import Readings
from kubetide.metrics.core.requests import CUSTOM, EXTERNAL, USAGE, VERSIONS
from kubetide.metrics.core.usage_forecasts import STEP
from kubetide.metrics.forecast_source import CpuForecasts
from kubetide.metrics.front import Front
from kubetide.metrics.http_api import HttpApi
from kubetide.metrics.kubelets import KubeletScraper
from kubetide.metrics.prometheus_source import PrometheusSource
from kubetide.metrics.registration import Registration
from kubetide.metrics.settings import MetricsSettings
from kubetide.metrics.signals_api import SignalsApi
from kubetide.metrics.usage_api import UsageApi
from kubetide.metrics.value_sources import MergedValues, NodeSignals, ValueSource
from kubetide.telemetry import Telemetry

if TYPE_CHECKING:
    from kubetide.metrics.keda_scaler import SignalScaler

log = get_logger("metrics")

_TLS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
_STOP_SECONDS = 2.0
_NAMED = 10
"""Nodes of many that a line of the log names."""


class MetricsServer(Controller):
    """Serves the metrics APIs and keeps what they answer from."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: MetricsSettings,
        telemetry: Telemetry,
        rng: random.Random,
        *,
        access: Access | None = None,
        serve: bool = True,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """Without `access` kubelets are not asked; `serve` is off where the cluster lives in this process."""
        self._client = client
        self._clock = clock
        self._settings = settings
        self._namespace = settings.own_namespace
        self._limits = replace(limits or ConnectionLimits(), connections=settings.max_connections)
        self._certificates = None if _given(settings) is not None else self._own_certificates()
        self.port = settings.secure_port
        self._serves = serve
        self.scaler: SignalScaler | None = None
        self._up = asyncio.Event()
        self._serving = False
        self.view = ClusterView(client, clock, rng, namespace=self._namespace, config_name=settings.metrics_config)
        self.readings = Readings()
        self._forecasts = CpuForecasts(self.view, self.readings, clock)
        authenticator = Authenticator(client, clock, self._proxies, token_ttl=settings.token_cache_ttl)
        authorizer = Authorizer(
            client, clock, allowed_ttl=settings.authorized_ttl, denied_ttl=settings.unauthorized_ttl
        )
        self.streams = AgentStreams(authenticator, authorizer, self.view, self.readings, clock, telemetry, rng)
        self._closing: list[PrometheusSource | Front] = []
        self.api = HttpApi(
            authenticator,
            authorizer,
            UsageApi(self.view, self.readings, clock),
            SignalsApi(self.view, self.readings, clock),
            self.readings,
            telemetry,
            ready=self.ready,
            values={group: MergedValues(group, self._sources(access)) for group in (CUSTOM, EXTERNAL)},
            streams=self.streams,
        )
        self._tls = ServerTls(
            self._certificate(),
            name="metrics",
            min_version=_TLS[settings.tls_min_version],
            ciphers=openssl_ciphers(settings.tls_cipher_suites),
            client_ca=lambda: self._proxies().trusted(),
            require_client=False,
            telemetry=telemetry,
        )
        self.registration = Registration(
            client,
            names=[f"{version}.{group}" for group, versions in VERSIONS.items() for version in versions],
            required=[f"{version}.{USAGE}" for version in VERSIONS[USAGE]],
            service=settings.service,
            namespace=self._namespace,
        )
        self._scraper = None if access is None else self._make_scraper(access, telemetry, rng)
        self._known_nodes = telemetry.gauge("kubetide_metrics_nodes", "Nodes by what is known of them.", ("state",))
        super().__init__(
            "metrics",
            clock=clock,
            caches=(self.view,),
            loops=self._make_loops(telemetry),
            background=self._servers() if serve else (),
        )

    def ready(self) -> bool:
        """Return whether questions are answered: a replica that has heard of no node yet would call all missing."""
        heard = len(self.readings) > 0 or (self.view.has_synced and len(self.view.nodes.store) == 0)
        return super().ready() and self._serving and heard

    def notes(self) -> Sequence[str]:
        """Return what people should know: APIServices that lead elsewhere, kubelets that do not answer."""
        told = [f"{name}: {problem}" for name, problem in self.registration.problems.items()]
        silent = len(self._scraper.problems()) if self._scraper is not None else 0
        return (*told, *([f"{silent} kubelets cannot be scraped"] if silent else []))

    async def run(self) -> None:
        """Serve until cancelled, and give back what was opened for it."""
        try:
            await super().run()
        finally:
            if self._certificates is not None:
                self._certificates.close()
            if self._scraper is not None:
                await self._scraper.close()
            for source in self._closing:
                await source.close()

    def _servers(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        settings = self._settings
        if not settings.keda_scaler_address:
            return (self._serve,)
        if not has_grpc():
            raise SettingsError("needs the extra agent: pip install 'kubetide[agent]'", field="keda-scaler-address")
        return (self._serve, self._serve_keda)

    async def _serve_keda(self) -> None:
        from kubetide.metrics.keda_scaler import SignalScaler

        await self._up.wait()
        given = self._settings.keda_client_ca_file
        self.scaler = SignalScaler(
            self.view,
            self.readings,
            self._forecasts,
            self._clock,
            address=self._settings.keda_scaler_address,
            certificate=self._certificate(),
            client_ca=Pem(path=Path(given)).read() if given else "",
            limits=self._limits,
        )
        await self.scaler.run()

    def _sources(self, access: Access | None) -> list[ValueSource]:
        """Return who answers for custom and external metrics, in the order in which they are asked."""
        settings = self._settings
        found: list[ValueSource] = [NodeSignals(self.view, self.readings, self._clock), self._forecasts]
        if settings.prometheus_url:
            queries = PrometheusSource(self.view, self._clock, settings, lambda: self.view.rules)
            self._closing.append(queries)
            found.append(queries)
        if has_grpc():
            from kubetide.metrics.keda_scaler import ExternalScalers

            found.append(ExternalScalers(self._clock, lambda: self.view.scalers))
        if access is not None:
            identity = f"{self._namespace}/{settings.service}"
            front = Front(self._clock, lambda: self.view.backends, access, identity=identity)
            self._closing.append(front)
            found.append(front)
        return found

    def _make_loops(self, telemetry: Telemetry) -> list[PeriodicLoop]:
        settings = self._settings
        refresh = PeriodicLoop(
            "metrics-registration",
            self._refresh,
            clock=self._clock,
            interval=settings.refresh_period,
            first_after=timedelta(0),
            telemetry=telemetry,
        )
        forecasts = PeriodicLoop("metrics-forecasts", self._forecasts.learn_all, clock=self._clock, interval=STEP)
        if self._scraper is None:
            return [refresh, forecasts]
        scrape = PeriodicLoop(
            "metrics-scrape",
            self._scraper.scrape_all,
            clock=self._clock,
            interval=settings.metric_resolution,
            first_after=timedelta(0),
            telemetry=telemetry,
        )
        return [refresh, forecasts, scrape]

    async def _serve(self) -> None:
        """Serve until cancelled, from the moment the caches are synced and there is a certificate."""
        await self.wait_synced()
        try:
            if self._certificates is not None:
                await self._certificates.refresh()
            self._tls.load()
            use_small_buffers()
            runner = self._limits.runner(self.api.application(), shutdown_seconds=_STOP_SECONDS)
            where = self._settings.bind_address
            async with listening(runner, where, self.port, tls=self._tls.context, limits=self._limits) as self.port:
                self._serving = True
                self._up.set()
                log.info("serving", server=self.name, port=self.port)
                await asyncio.Event().wait()
        finally:
            self._serving = False

    async def _refresh(self) -> None:
        """Bring certificates and registration up to date, and forget what is too old."""
        now = self._clock.now()
        known = [node.metadata.name for node in self.view.nodes.store]
        silent = self.readings.expire(known, now=now)
        if silent:
            log.warning("nodes fell silent, their metrics are missing", count=len(silent), nodes=silent[:_NAMED])
        for source in ("agent", "kubelet"):
            self._known_nodes.labels(source).set(sum(one.source == source for one in self.readings.live(now=now)))
        self._known_nodes.labels("missing").set(max(0, len(known) - len(self.readings)))
        if self._serves:
            # Both make the first certificates otherwise, and nothing is registered that does not answer yet.
            await self._up.wait()
        if self._certificates is not None:
            await self._certificates.refresh()
        if self._serving:
            self._tls.reload()
        trusted = self._trusted()
        if trusted and self._settings.register:
            await self.registration.refresh(trusted)
            await self._publish(trusted)

    async def _publish(self, trusted: str) -> None:
        """Publish the CA of this server's certificate for agents."""
        wanted = {"ca.crt": trusted}
        try:
            current = await self._client.get_raw(CONFIG_MAPS, STREAM_CA, namespace=self._namespace)
        except NotFound:
            metadata = {"name": STREAM_CA, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": wanted}
            try:
                await self._client.create(CONFIG_MAPS, body, namespace=self._namespace)
            except AlreadyExists:
                return
            log.info("published the CA for agents", name=STREAM_CA)
            return
        if current.get("data") != wanted:
            body = {**current, "data": wanted}
            await self._client.update(CONFIG_MAPS, STREAM_CA, body, namespace=self._namespace)
            log.info("published the CA for agents", name=STREAM_CA)

    def _proxies(self) -> TrustedProxies:
        """Return whom to trust: what the flags name, else what the cluster publishes."""
        settings, found = self._settings, self.view.proxies
        if settings.client_ca_file:
            found = replace(found, client_ca=Pem(path=Path(settings.client_ca_file)).read())
        if settings.requestheader_client_ca_file:
            found = replace(found, proxy_ca=Pem(path=Path(settings.requestheader_client_ca_file)).read())
        if settings.requestheader_allowed_names:
            found = replace(found, allowed_names=settings.requestheader_allowed_names)
        return found

    def _own_certificates(self) -> Certificates:
        settings = self._settings
        service = f"{settings.service}.{self._namespace}"
        return Certificates(
            self._client,
            clock=self._clock,
            namespace=self._namespace,
            secret=settings.tls_secret,
            dns_names=[f"{service}.svc", service, settings.service, "localhost"],
            server_lifetime=settings.certificate_lifetime,
            ca_lifetime=settings.ca_lifetime,
            ca_name="kubetide_metrics_ca",
        )

    def _certificate(self) -> Certificate:
        if self._certificates is not None:
            return self._certificates.files
        given = _given(self._settings)
        assert given is not None
        return given

    def _trusted(self) -> str:
        if self._certificates is not None:
            bundle = self._certificates.bundle
            return bundle.trusted if bundle is not None else ""
        folder = Path(self._settings.cert_dir) if self._settings.cert_dir else None
        ca = folder / "ca.crt" if folder is not None else None
        return Pem(path=ca).read() if ca is not None and ca.exists() else ""

    def _make_scraper(self, access: Access, telemetry: Telemetry, rng: random.Random) -> KubeletScraper:
        settings = self._settings
        authority = settings.kubelet_certificate_authority
        trust = ServerTrust(
            ca=Pem(path=Path(authority)) if authority else access.trust.ca, insecure=settings.kubelet_insecure_tls
        )
        identity = None
        if settings.kubelet_client_certificate:
            identity = Certificate(
                certificate=Pem(path=Path(settings.kubelet_client_certificate)),
                key=Pem(path=Path(settings.kubelet_client_key)),
            )
        return KubeletScraper(
            self.view,
            self.readings,
            self._clock,
            settings,
            telemetry,
            rng,
            credentials=access.credentials,
            tls=ClientTls(trust),
            identity=identity,
        )


def has_grpc() -> bool:
    """Whether the packages are installed that talking to KEDA takes."""
    return all(find_spec(name) is not None for name in ("grpc", "google"))


def _given(settings: MetricsSettings) -> Certificate | None:
    """Return the certificate that the settings name; None where kubetide makes its own."""
    if settings.tls_cert_file:
        certificate, key = Path(settings.tls_cert_file), Path(settings.tls_private_key_file)
    elif settings.cert_dir:
        certificate, key = (Path(settings.cert_dir) / name for name in ("apiserver.crt", "apiserver.key"))
    else:
        return None
    return Certificate(certificate=Pem(path=certificate), key=Pem(path=key))
