"""The colocation webhook: `/mutate-pod` and `/validate-pod` over HTTPS, registered by itself.

    start          caches synced -> certificates -> HTTPS server
    every 10 s     certificates rotated where due, configurations written once the server answers

All replicas serve and register; there is nothing to elect.

On an embedded API server in the same process the webhooks are functions (`local://NAME`), so that they work in
virtual time.
"""

import base64
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

from kubetide.api.objects.admission import RegistrationCheck, replacement
from kubetide.api.objects.scheme import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, NotFound
from kubetide.kube.client.tls import Certificate, Pem
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.control.controller import Controller, PeriodicLoop
from kubetide.kube.control.recorder import Recorder
from kubetide.kube.handover import compare_deployed
from kubetide.kube.webhook import LocalWebhooks, WebhookServer
from kubetide.kube.webhook_certificates import Certificates
from kubetide.log import get_logger
from kubetide.slo.colocation.cluster_view import ColocationView
from kubetide.slo.colocation.core.registration import (
    MUTATE_PATH,
    RESERVATION_PATH,
    VALIDATE_PATH,
    Registration,
    mutating,
    validating,
)
from kubetide.slo.colocation.reviewer import PodReviewer
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.telemetry import Telemetry

log = get_logger("colocation")

Raw = dict[str, Any]
_LOCAL = {
    MUTATE_PATH: "colocation-mutate",
    VALIDATE_PATH: "colocation-validate",
    RESERVATION_PATH: "colocation-mutate-reservation",
}


class ColocationWebhook(Controller):
    """Serves the reviews of pods and keeps their registration up to date."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: ColocationSettings,
        telemetry: Telemetry,
        recorder: Recorder,
        rng: random.Random,
        *,
        local: LocalWebhooks | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._telemetry = telemetry
        self._local = local
        self._limits = limits
        self._namespace = settings.own_namespace
        self._view = ColocationView(client, clock=clock, settings=settings, rng=rng)
        self.reviewer = PodReviewer(self._view, settings, telemetry, recorder, rng, clock=clock)
        self._certificates: Certificates | None = None
        self._checks = {resource.plural: RegistrationCheck() for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
        self.server: WebhookServer | None = None
        served = settings.gate("WebhookFramework")
        self._mutates = served and settings.gate("PodMutatingWebhook")
        self._validates = served and settings.gate("PodValidatingWebhook")
        self._reserves = served and settings.gate("ReservationMutatingWebhook")
        registration = PeriodicLoop(
            "registration",
            self._refresh,
            clock=clock,
            interval=settings.refresh_period,
            first_after=timedelta(0),
            telemetry=telemetry,
        )
        super().__init__(
            "colocation",
            clock=clock,
            caches=(self._view,),
            loops=(registration,),
            background=() if local is not None else (self._serve,),
        )

    def ready(self) -> bool:
        """Return whether reviews are answered."""
        return super().ready() and self._answers()

    async def started_leading(self) -> None:
        """Hand the webhooks to an API server in the same process, if there is one."""
        settings = self._settings
        log.info("following Koordinator", version=settings.compat)
        await compare_deployed(
            self._client,
            self.name,
            program="koord-manager",
            namespace=settings.validator_config_namespace,
            follows=str(settings.version),
        )
        for warning in self._settings.gate_warnings():
            log.warning("feature gate", problem=warning)
        if self._local is not None:
            self._local.register_local(_LOCAL[MUTATE_PATH], self.reviewer.mutate_local)
            self._local.register_local(_LOCAL[VALIDATE_PATH], self.reviewer.validate_local)
            self._local.register_local(_LOCAL[RESERVATION_PATH], self.reviewer.mutate_reservation_local)

    def _answers(self) -> bool:
        return self._local is not None or (self.server is not None and self.server.ready())

    async def _serve(self) -> None:
        """Serve reviews until cancelled, from the moment the caches are synced."""
        await self.wait_synced()
        try:
            self.server = await self._make_server()
            await self.server.run()
        finally:
            if self._certificates is not None:
                self._certificates.close()

    async def _refresh(self) -> None:
        """Bring certificates and configurations up to date; nothing is registered that does not answer yet."""
        if not self._answers():
            return
        if self._certificates is not None and await self._certificates.refresh() and self.server is not None:
            self.server.tls.reload()
        if self._settings.register_webhook:
            await self._register()

    async def _make_server(self) -> WebhookServer:
        settings = self._settings
        if settings.webhook_cert_dir:
            folder = Path(settings.webhook_cert_dir)
            files = Certificate(certificate=Pem(path=folder / "tls.crt"), key=Pem(path=folder / "tls.key"))
        else:
            address = settings.webhook_address
            is_ip = ":" in address or address.replace(".", "").isdigit()
            self._certificates = Certificates(
                self._client,
                clock=self._clock,
                namespace=self._namespace,
                secret=settings.tls_secret,
                dns_names=[
                    f"{settings.webhook_service}.{self._namespace}.svc",
                    *([address] if address and not is_ip else []),
                ],
                addresses=[address] if address and is_ip else [],
                server_lifetime=settings.certificate_lifetime,
                ca_lifetime=settings.ca_lifetime,
                ca_name="kubetide_colocation_ca",
            )
            await self._certificates.refresh()
            files = self._certificates.files
        return WebhookServer(
            {
                MUTATE_PATH: self.reviewer.mutate,
                VALIDATE_PATH: self.reviewer.validate,
                RESERVATION_PATH: self.reviewer.mutate_reservation,
            },
            certificate=files,
            host=settings.host or "0.0.0.0",
            port=settings.port,
            reload_interval=settings.refresh_period,
            name="colocation-webhook",
            telemetry=self._telemetry,
            limits=self._limits,
        )

    async def _register(self) -> None:
        """Write the configurations where they do not say what they should; take away those that are switched off."""
        given = Registration(
            client={path: self._client_config(path) for path in _LOCAL},
            own_namespace=self._namespace,
            fail_closed=self._settings.webhook_failure_policy_fail,
            timeout_seconds=self._settings.webhook_timeout_seconds,
        )
        hooks = mutating(given, pods=self._mutates, reservations=self._reserves)
        await self._configure(MUTATING_WEBHOOKS, hooks, wanted=self._mutates or self._reserves)
        await self._configure(VALIDATING_WEBHOOKS, validating(given), wanted=self._validates)

    async def _configure(self, resource: Resource[Any], body: Raw, *, wanted: bool) -> None:
        name = body["metadata"]["name"]
        try:
            current: Raw | None = await self._client.get_raw(resource, name)
        except NotFound:
            current = None
        if not wanted:
            if current is not None:
                await self._client.delete(resource, name)
                log.info("removed the webhook configuration", kind=resource.kind)
        elif current is None:
            try:
                await self._client.create(resource, body)
            except AlreadyExists:
                return
            log.info("registered the webhook", kind=resource.kind)
        elif not self._checks[resource.plural].same(current, body):
            await self._client.update(resource, name, replacement(current, body))
            log.info("updated the webhook configuration", kind=resource.kind)

    def _client_config(self, path: str) -> Raw:
        if self._local is not None:
            return {"url": f"local://{_LOCAL[path]}"}
        trusted = {"caBundle": base64.b64encode(self._trusted().encode()).decode()}
        if address := self._settings.webhook_address:
            port = self.server.port if self.server is not None else self._settings.port
            return {"url": f"https://{f'[{address}]' if ':' in address else address}:{port}{path}", **trusted}
        service = {"namespace": self._namespace, "name": self._settings.webhook_service, "path": path, "port": 443}
        return {"service": service, **trusted}

    def _trusted(self) -> str:
        if self._certificates is not None and self._certificates.bundle is not None:
            return self._certificates.bundle.trusted
        return Pem(path=Path(self._settings.webhook_cert_dir) / "ca.crt").read()
