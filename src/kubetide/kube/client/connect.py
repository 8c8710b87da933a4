"""From settings to a client that is ready to be used."""

import random
from collections.abc import Callable

from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access, load
from kubetide.kube.client.settings import KubeSettings


def connect(
    settings: KubeSettings,
    *,
    clock: Clock,
    rng: random.Random | None = None,
    observe: Callable[[str, int, float], None] | None = None,
    announce: Callable[[object], None] | None = None,
) -> tuple[Client, Access]:
    """Return a client of the cluster that the settings name, and the access it uses (its namespace, its context)."""
    access = load(clock=clock, path=settings.kubeconfig, context=settings.context)
    client = Client(
        HttpTransport(access, body_limit=settings.body_limit),
        clock=clock,
        concurrency=settings.concurrency,
        qps=settings.qps or None,
        burst=settings.burst or None,
        rng=rng,
        timeout=settings.request_timeout.total_seconds(),
        cache_check=settings.cache_check_interval,
        observe=observe,
        announce=announce,
    )
    return client, access
