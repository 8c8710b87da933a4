"""The autoscalers as they are now, beside a past that Prometheus knows: it does not keep objects."""

from typing import Any

import msgspec

from kubetide.api.objects.scheme import HPAS, VPAS, Resource
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.recording.core.amounts import pruned
from kubetide.recording.core.sanitize import sanitized
from kubetide.recording.writer import Writer
from kubetide.stats.instants import microseconds

log = get_logger("record")


async def write_objects(client: Client, clock: Clock, writer: Writer, namespace: str | None) -> None:
    """Write the autoscalers as they are now; what cannot be listed is noted."""
    now = microseconds(clock.now())
    followed: tuple[Resource[Any], ...] = (HPAS, VPAS)
    for resource in followed:
        try:
            listed = await client.list(resource, namespace=namespace)
        except KubetideError as error:
            log.warning("objects cannot be listed", kind=resource.kind, error=str(error))
            writer.note("kinds that could not be listed")
            continue
        for each in listed.items:
            kept = sanitized(resource.kind, pruned(msgspec.to_builtins(each)))
            meta = each.metadata
            writer.row(
                "objects",
                time=now,
                event="ADDED",
                kind=resource.kind,
                namespace=meta.namespace,
                name=meta.name,
                object=kept,
            )
