"""Certificates of a webhook that are replaced before their time, by a replica that wants them to live longer."""

from datetime import timedelta

from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.kube.webhook_certificates import Certificates
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.targets import own_namespace

LONGER = 4
"""With lives four times as long, what is new by the webhook's own settings has lived three quarters of its life."""


async def renew_server(client: Client, clock: Clock, settings: AdmissionSettings, host: str) -> None:
    """Replace the server certificate in the Secret."""
    await _refresh(client, clock, settings, host, server=LONGER * settings.certificate_lifetime)


async def stage_ca(client: Client, clock: Clock, settings: AdmissionSettings, host: str) -> None:
    """Put a new CA into the Secret, to be trusted first and used later."""
    await _refresh(client, clock, settings, host, ca=LONGER * settings.ca_lifetime)


async def _refresh(
    client: Client,
    clock: Clock,
    settings: AdmissionSettings,
    host: str,
    *,
    server: timedelta | None = None,
    ca: timedelta | None = None,
) -> None:
    other = Certificates(
        client,
        clock=clock,
        namespace=own_namespace(settings.namespace),
        secret=settings.tls_secret,
        dns_names=[],
        addresses=[host],
        server_lifetime=server or settings.certificate_lifetime,
        ca_lifetime=ca or settings.ca_lifetime,
        notice=settings.ca_notice,
    )
    try:
        await other.refresh()
    finally:
        other.close()
