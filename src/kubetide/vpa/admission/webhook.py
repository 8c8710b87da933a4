"""The admission controller: an HTTPS webhook that registers itself and shows the updater that it works.

    start      copies of VPAs and controllers -> certificates -> HTTPS server -> (10 s) -> webhook configuration
    every 10 s certificates rotated where due, configuration brought up to date, a dry run as a probe, lease renewed

On an embedded API server in the same process the webhook is a function (`local://NAME`) instead of a server, so that
it works in virtual time.
"""

import asyncio
import base64
import random
import socket
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.admission import RegistrationCheck, replacement
from kubetide.api.objects.core import Lease
from kubetide.api.objects.scheme import LEASES, MUTATING_WEBHOOKS, PODS
from kubetide.api.values.codec import convert, decode_raw
from kubetide.clock import Clock
from kubetide.errors import KubetideError, SettingsError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict, NotFound
from kubetide.kube.client.tls import Certificate, Pem, openssl_ciphers
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.control.controller import Controller, PeriodicLoop
from kubetide.kube.control.lease import micro_time
from kubetide.kube.handover import compare_deployed
from kubetide.kube.webhook import LocalWebhooks, WebhookServer
from kubetide.kube.webhook_certificates import Certificates
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.admission.core.heartbeat import annotations, read_heartbeat
from kubetide.vpa.admission.core.registration import (
    CONFIGURATION,
    WITHOUT_CONDITIONS,
    ConditionTrial,
    Registration,
    WebhookAddress,
    conditions,
    configuration,
    made_by_another,
    parse_labels,
    probe_namespace,
)
from kubetide.vpa.admission.core.review import PROBE
from kubetide.vpa.admission.observer import AdmissionView
from kubetide.vpa.admission.reviewer import Reviewer
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.targets import own_namespace

log = get_logger("admission")

NEVER = timedelta(days=36500)
REVIEW_LIMIT = 5 * 1024 * 1024
TLS_VERSIONS = {"tls1_2": ssl.TLSVersion.TLSv1_2, "tls1_3": ssl.TLSVersion.TLSv1_3}

NOT_PATCHING = "the API server does not call the webhook: new pods are not patched"
DISPLACED = "another admission controller has registered: it is called instead"
EMBEDDED_VERSION = "+kubetide"


class AdmissionController(Controller):
    """Serves reviews, registers itself and keeps its lease. Replicas all work: there is no leader."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: AdmissionSettings,
        telemetry: Telemetry,
        recorder: object,
        rng: random.Random,
        *,
        local: LocalWebhooks | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings.checked()
        self._namespace = own_namespace(settings.namespace)
        self._lease_namespace = settings.lease_namespace or self._namespace
        self._local, self._limits = local, limits
        self._telemetry = telemetry
        self._view = AdmissionView(client, clock=clock, settings=settings, rng=rng)
        self.reviewer = Reviewer(self._view, settings, telemetry, clock=clock)
        self._holder = socket.gethostname()
        self.certificates: Certificates | None = None
        self.server: WebhookServer | None = None
        self._check = RegistrationCheck()
        self._trial = ConditionTrial(wanted=settings.webhook_match_conditions and local is None)
        self._probed_in = self._probe_namespace()
        self._patching: bool | None = None
        self._registered, self._displaced = "", False  # UID of the configuration that was ours; whether it is no more
        # Read here, so that an address that cannot be used is refused before anything starts.
        self._address = (
            WebhookAddress.parse(settings.webhook_address, settings.webhook_port) if settings.register_by_url else None
        )
        delay = settings.register_delay if local is None else timedelta()
        upkeep = PeriodicLoop("upkeep", self._keep, clock=clock, interval=settings.lease_period, first_after=delay)
        super().__init__("admission", clock=clock, caches=(self._view,), loops=(_Serving(self), upkeep))

    def ready(self) -> bool:
        """Whether reviews are answered."""
        return super().ready() and (self._local is not None or (self.server is not None and self.server.ready()))

    def healthy(self) -> bool:
        """As upstream: a webhook that is not asked is not ill."""
        return True

    def notes(self) -> Sequence[str]:
        """Report it where pods come back unpatched: the server cannot reach us, and nothing else would show it."""
        return (DISPLACED,) if self._displaced else (NOT_PATCHING,) if self._patching is False else ()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await super().run()
        finally:
            if self.certificates is not None:
                self.certificates.close()

    async def started_leading(self) -> None:
        """Make the server, or let the embedded API server call us, once the caches are synced."""
        settings = self._settings
        log.info("answering reviews", compat=settings.compat, feature_gates=list(settings.feature_gates))
        await compare_deployed(
            self._client,
            self.name,
            program="vpa-admission-controller",
            namespace=self._namespace,
            follows=str(settings.followed.version),
        )
        if self._local is not None:
            self._local.register_local(self._settings.local_name or self.name, self.reviewer.review_raw)
        else:
            self._address = self._address or await self._embedded_address()
            self.server = await self._make_server()

    async def _embedded_address(self) -> WebhookAddress | None:
        """Return loopback if the API server is an embedded one without our Service, which leads nowhere there."""
        path = f"/api/v1/namespaces/{self._namespace}/services/{self._settings.webhook_service}"
        try:
            version = decode_raw((await self._client.request("GET", "/version")).body, what="/version")
            if not str(version.get("gitVersion", "")).endswith(EMBEDDED_VERSION):
                return None
            await self._client.request("GET", path)
        except NotFound:
            log.info("registering by URL: the embedded API server has no such Service", service=path)
            return WebhookAddress("127.0.0.1")
        except KubetideError as error:
            log.debug("cannot tell which API server this is", error=str(error))
        return None

    async def _keep(self) -> None:
        """Bring certificates, configuration and lease up to date; what fails is tried again at the next interval."""
        for task in (self._refresh_certificates, self._register, self._renew_in_time):
            try:
                await task()
            except KubetideError as error:
                log.warning("will try again", task=task.__name__.strip("_"), error=str(error))

    async def _make_server(self) -> WebhookServer:
        settings = self._settings
        if settings.min_tls_version not in TLS_VERSIONS:
            raise SettingsError(f"{settings.min_tls_version!r} is neither tls1_2 nor tls1_3", field="min-tls-version")
        if settings.tls_cert_file.exists() or not settings.generate_certificates:
            files = Certificate(certificate=Pem(path=settings.tls_cert_file), key=Pem(path=settings.tls_private_key))
        else:
            service = f"{settings.webhook_service}.{self._namespace}.svc"
            address = self._address
            self.certificates = Certificates(
                self._client,
                clock=self._clock,
                namespace=self._namespace,
                secret=settings.tls_secret,
                dns_names=[service] if address is None or address.is_ip else [service, address.host],
                addresses=[address.host] if address is not None and address.is_ip else [],
                server_lifetime=settings.certificate_lifetime,
                ca_lifetime=settings.ca_lifetime,
                notice=settings.ca_notice,
                ca_name="vpa_webhook_ca",
            )
            await self.certificates.refresh()
            files = self.certificates.files
        return WebhookServer(
            {"/": self.reviewer.review},
            certificate=files,
            host=settings.host or "0.0.0.0",
            port=settings.port,
            reload_interval=settings.lease_period if settings.reload_cert else NEVER,
            min_version=TLS_VERSIONS[settings.min_tls_version],
            ciphers=openssl_ciphers(settings.tls_ciphers),
            name="vpa-webhook",
            stopwatch=self.reviewer.step,
            body_limit=REVIEW_LIMIT,
            too_large=self.reviewer.too_large,
            telemetry=self._telemetry,
            limits=self._limits,
        )

    async def _refresh_certificates(self) -> None:
        if self.certificates is not None and await self.certificates.refresh() and self.server is not None:
            self.server.tls.reload()

    async def _register(self) -> None:
        """Write the webhook configuration where it does not say what it should."""
        if not self._settings.register_webhook:
            return
        try:
            current: dict[str, Any] | None = await self._client.get_raw(MUTATING_WEBHOOKS, CONFIGURATION)
        except NotFound:
            current = None
        if current is not None and WITHOUT_CONDITIONS in (current["metadata"].get("annotations") or {}):
            # Another replica found out; two that disagree would undo each other's work for ever.
            self._trial.convict()
        wanted = configuration(await self._registration())
        if current is None:
            try:
                made = await self._client.create(MUTATING_WEBHOOKS, wanted)
            except AlreadyExists:
                return
            self._registered, self._displaced = made.metadata.uid or "", False
            log.info("registered the webhook")
            return
        if not self._check.same(current, wanted):
            if made_by_another(current, known=self._registered) and await self._lease_is_renewed():
                if not self._displaced:
                    log.warning(DISPLACED, fix="stop one of the two; whichever starts last is called")
                self._displaced, self._patching = True, None
                return
            # Replaced in one step: there is no moment without a webhook, as deleting and creating would leave.
            await self._client.update(MUTATING_WEBHOOKS, CONFIGURATION, replacement(current, wanted))
            log.info("updated the webhook configuration")
        self._registered, self._displaced = current["metadata"].get("uid") or "", False

    async def _registration(self) -> Registration:
        settings = self._settings
        return Registration(
            client=self._client_config(),
            ca_bundle=self._ca_bundle(),
            timeout_seconds=settings.webhook_timeout_seconds,
            fail_closed=settings.webhook_failure_policy_fail,
            labels=parse_labels(settings.webhook_labels),
            only_namespace=settings.vpa_object_namespace,
            ignored_namespaces=settings.ignored_vpa_object_namespaces,
            own_namespace=self._namespace,
            conditions=conditions(await self._view.selected()) if self._trial.used else (),
            annotations={WITHOUT_CONDITIONS: "true"} if self._trial.convicted else {},
        )

    def _client_config(self) -> dict[str, Any]:
        settings = self._settings
        if self._local is not None:
            return {"url": f"local://{settings.local_name or self.name}"}
        if self._address is not None:
            return {"url": self._address.url(self.server.port if self.server is not None else settings.port)}
        return {"service": {"namespace": self._namespace, "name": settings.webhook_service}}

    def _ca_bundle(self) -> str:
        if self._local is not None:
            return ""
        if self.certificates is not None and self.certificates.bundle is not None:
            text = self.certificates.bundle.trusted
        else:
            text = Pem(path=self._settings.client_ca_file).read()
        return base64.b64encode(text.encode()).decode()

    async def _renew_in_time(self) -> None:
        if self._displaced:
            # Whoever is called renews it; if nobody does for a minute, the configuration is ours again.
            return
        try:
            async with asyncio.timeout(self._settings.lease_period.total_seconds()):
                await self._renew()
        except TimeoutError as error:
            raise Unavailable("the lease could not be renewed within its update interval") from error

    async def _lease_is_renewed(self) -> bool:
        try:
            raw = await self._client.get_raw(LEASES, self._settings.lease_name, namespace=self._lease_namespace)
        except NotFound:
            return False
        return read_heartbeat(convert(raw, Lease, what="lease"), now=self._clock.now()).fresh

    async def _renew(self) -> None:
        """Renew the lease, and return whether pods come back patched."""
        patching = await self._probe()
        self._report(patching)
        name, namespace = self._settings.lease_name, self._lease_namespace
        now = self._clock.now()
        spec = {"holderIdentity": self._holder, "renewTime": micro_time(now)}
        try:
            raw = await self._client.get_raw(LEASES, name, namespace=namespace)
        except NotFound:
            notes = annotations(patching, now, self._holder)
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": name, "namespace": namespace, "annotations": _set(notes, {})},
                "spec": {**spec, "leaseDurationSeconds": max(1, int(self._settings.lease_period.total_seconds()))},
            }
            try:
                await self._client.create(LEASES, body, namespace=namespace)
            except AlreadyExists:
                log.debug("somebody else made the lease")
            return
        meta = raw.get("metadata") or {}
        notes = annotations(patching, self._patching_since(raw, now), self._holder)
        body = {
            **raw,
            "metadata": {**meta, "annotations": _set(notes, meta.get("annotations") or {})},
            "spec": {**(raw.get("spec") or {}), **spec},
        }
        try:
            await self._client.update(LEASES, name, body, namespace=namespace)
        except Conflict:
            log.debug("somebody else renewed the lease")

    def _report(self, patching: bool | None) -> None:
        """Publish an event when patching stops and when it works again; None is no news."""
        if patching is None:
            return
        # Made here: before the first probe there is nothing to show, and 0 would be an alarm.
        self._telemetry.gauge(
            "kubetide_admission_patching", "1 while the API server calls the webhook about new pods, else 0."
        ).set(int(patching))
        if patching is not self._patching:
            if not patching:
                log.warning(NOT_PATCHING, fix="check the Service, or --register-by-url --webhook-address=https://HOST")
            elif self._patching is False:
                log.info("pods are patched again")
        self._patching = patching

    def _patching_since(self, raw: dict[str, Any], now: datetime) -> datetime:
        """Return since when pods have come back patched: what the lease reports, unless it had lapsed."""
        known = read_heartbeat(convert(raw, Lease, what="lease"), now=now)
        return known.since if known.fresh and known.patching and known.since is not None else now

    def _probe_namespace(self) -> str | None:
        settings = self._settings
        if not settings.probe_webhook or settings.upstream_behavior or not settings.register_webhook:
            return None
        own = (self._namespace,) if settings.webhook_failure_policy_fail else ()
        found = probe_namespace(
            settings.probe_namespace,
            only=settings.vpa_object_namespace,
            exempt=(*settings.ignored_vpa_object_namespaces, *own),
        )
        if found is None:
            log.warning("the webhook is not probed: not asked about this namespace", namespace=settings.probe_namespace)
        return found

    async def _probe(self) -> bool | None:
        """Create a pod as a dry run; return whether the API server called us about it, None when it cannot be known."""
        if self._probed_in is None:
            return None
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "kubetide-probe-", "labels": {PROBE: "true"}},
            "spec": {"containers": [{"name": "probe", "image": "kubetide.invalid/probe"}]},
        }
        try:
            pod = await self._client.create(PODS, body, namespace=self._probed_in, dry_run=True)
        except Unavailable:
            return None
        except KubetideError as error:
            log.debug("cannot probe the webhook", error=str(error))
            return None
        patched = PROBE in (pod.metadata.annotations or {})
        self._trial.probed(patched)
        return patched


class _Serving:
    """The loop that serves reviews; with an embedded API server there is nothing to serve."""

    name = "webhook"

    def __init__(self, controller: AdmissionController) -> None:
        self._controller = controller

    def healthy(self) -> bool:
        """Return True: a webhook that is not asked is not ill."""
        return True

    async def run(self) -> None:
        """Serve until cancelled."""
        if self._controller.server is not None:
            await self._controller.server.run()


def _set(notes: dict[str, str | None], existing: dict[str, str]) -> dict[str, str]:
    merged: dict[str, str | None] = {**existing, **notes}
    return {key: value for key, value in merged.items() if value is not None}
