"""How a component may act, by its settings: alone while it leads, or beside other replicas on what it owns."""

import random
from datetime import timedelta
from typing import Protocol

from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.kube.control.core.ranges import ShardMode
from kubetide.kube.control.leader_election import ElectionSettings, Leadership
from kubetide.kube.control.shards import ShardMembership


class SharingSettings(ElectionSettings, Protocol):
    """The settings of a component whose replicas may share the work."""

    @property
    def shards(self) -> ShardMode: ...


def leadership_of(
    client: Client,
    settings: SharingSettings,
    *,
    clock: Clock,
    rng: random.Random,
    lease_name: str = "",
    slots: int = 0,
    slot_rest: timedelta = timedelta(0),
) -> Leadership | ShardMembership:
    """Return how a component may act by its settings: alone while it leads, or on what it owns."""
    if settings.shards is ShardMode.OFF:
        return Leadership.from_settings(client, settings, clock=clock, rng=rng, lease_name=lease_name)
    return ShardMembership(
        client,
        clock=clock,
        group=lease_name or settings.leader_elect_resource_name,
        namespace=settings.leader_elect_resource_namespace,
        rng=rng,
        lease_duration=settings.leader_elect_lease_duration,
        renew_deadline=settings.leader_elect_renew_deadline,
        retry_period=settings.leader_elect_retry_period,
        slots=slots,
        slot_rest=slot_rest,
    )
