"""The composition root: which component is built from what, and how a process runs a set of them.

A component gets everything through its constructor; nothing here is global. Controllers are imported when they are
built, so that a process pays only for what it runs. The same builders serve a real cluster, the embedded one and the
simulation: they differ in the client and the clock that they are given.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.config import Settings
from kubetide.errors import SettingsError
from kubetide.kube.client.client import Client
from kubetide.kube.client.dry_run import DryRunTransport, HeldWrite
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.control.announcement import Announcement
from kubetide.kube.control.core.ranges import ShardMode
from kubetide.kube.control.manager import Component, Manager
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.endpoints import Endpoints
from kubetide.settings import ALL, COMPONENTS, ProcessSettings
from kubetide.telemetry import Telemetry


class DryRun(Protocol):
    """Who hears what components would do, instead of the cluster."""

    def decided(self, key: ObjectKey, decision: Any) -> None:
        """Hear a decision of the horizontal autoscaler."""
        ...

    async def judged(self, traces: Iterable[dict[str, Any]], problem: str) -> None:
        """Hear what the updater would do to every pod, and why it would do nothing."""
        ...

    def holder(self, component: str) -> Callable[[HeldWrite], None]:
        """Return who hears of the writes that a component's transport holds back."""
        ...


WITHOUT_DRY_RUN = ("admission", "colocation", "metrics")
"""Servers: unregistered they are asked nothing, and registering is a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What every component of a process shares, and its own client."""

    client: Client
    clock: Clock
    telemetry: Telemetry
    rng: random.Random
    local_webhooks: Any = None
    """In-process webhooks of the embedded API server, where there is one."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """What a client may cost the servers that components open."""
    dry_run: DryRun | None = None
    """With one, nothing is written and no Lease is taken."""
    access: Access | None = None
    """How the cluster is reached, for components that talk to more of it than its API server."""


Builder = Callable[[Dependencies, Any], list[Component]]


def build(name: str, deps: Dependencies, settings: Settings) -> list[Component]:
    """Build one component with what it needs beside it, in the order in which they start."""
    if name not in _BUILDERS:
        raise SettingsError(f"unknown component {name!r} (known: {', '.join(_BUILDERS)})")
    if deps.dry_run is not None:
        deps, settings = _without_writes(name, deps, settings, deps.dry_run)
    return _BUILDERS[name](deps, settings)


def _without_writes(
    name: str, deps: Dependencies, settings: Settings, dry_run: DryRun
) -> tuple[Dependencies, Settings]:
    """Return what a component gets that must not write: a transport that holds writes back, and no election."""
    if name in WITHOUT_DRY_RUN:
        raise SettingsError(f"{name} has no dry run: a server that is not registered is asked nothing")
    transport = DryRunTransport(deps.client.transport, dry_run.holder(name))
    changes = {"leader_elect": False, "shards": ShardMode.OFF, "dry_run": True}
    known = {field: value for field, value in changes.items() if hasattr(settings, field)}
    return replace(deps, client=deps.client.over(transport)), msgspec.structs.replace(settings, **known)


def default_address(name: str) -> str:
    """Return where a component that runs alone serves its metrics: the port of upstream."""
    return _ADDRESSES[name]


def parse_names(text: str) -> tuple[str, ...]:
    """Read `hpa,recommender,…`; `all` stands for every component that takes no API over from another server."""
    names = ALL if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in names if name not in COMPONENTS]
    if unknown or not names:
        known = ", ".join(COMPONENTS)
        raise SettingsError(f"unknown component {unknown[0]!r} (known: {known})" if unknown else f"name one of {known}")
    if len(set(names)) < len(names):
        raise SettingsError("a component is named twice")
    return names


def process(
    parts: Mapping[str, list[Component]],
    telemetry: Telemetry,
    *,
    address: str,
    health_address: str = "",
    explain_token: str = "",
    limits: ConnectionLimits | None = None,
    announcement: Announcement | None = None,
) -> Manager:
    """Return the manager of a process: its endpoints first, so that health can be asked from the start.

    With a `health_address` the same is served there too, for probes that look for health on a port of its own. The
    `announcement` learns where it is served.
    """
    manager = Manager(name="kubetide")
    work = Manager(name="components")
    for components in parts.values():
        for component in components:
            work.add(component)
    for where in (address, health_address):
        if not where:
            continue
        host, port = parse_address(where)
        endpoints = Endpoints(
            telemetry,
            healthy=work.healthy,
            ready=work.ready,
            explain=work.explain,
            notes=work.notes,
            host=host,
            port=port,
            explain_token=explain_token,
            limits=limits,
        )
        manager.add(endpoints, wait_ready=True)
        if announcement is not None and where is address:
            announcement.serving(endpoints)
    manager.add(work)
    return manager


def connection_limits(own: ProcessSettings) -> ConnectionLimits:
    """Return what a client may cost the servers of this process."""
    return ConnectionLimits(
        header_seconds=own.header_timeout.total_seconds(),
        body_seconds=own.body_timeout.total_seconds(),
        idle_seconds=own.idle_timeout.total_seconds(),
        connections=own.max_connections,
    )


def parse_address(text: str) -> tuple[str, int]:
    """Split `:8080` or `127.0.0.1:9000` into host and port."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{text!r} is not an address such as :8080 or 127.0.0.1:9000")
    return host.strip("[]") or "0.0.0.0", int(port)


def _with_recorder(deps: Dependencies, component: str, make: Callable[[EventRecorder], Component]) -> list[Component]:
    """Build a component and, before it, the recorder that publishes its events."""
    recorder = EventRecorder(deps.client, clock=deps.clock, component=component)
    return [recorder, make(recorder)]


def _hpa(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.hpa.controller import HpaController

    def make(recorder: EventRecorder) -> Component:
        past = _past_loads(deps, settings) if settings.prometheus else None
        controller = HpaController(deps.client, deps.clock, settings, deps.telemetry, recorder, deps.rng, past)
        if deps.dry_run is not None:
            controller.on_decision(deps.dry_run.decided)
        return controller

    return _with_recorder(deps, "horizontal-pod-autoscaler", make)


def _past_loads(deps: Dependencies, settings: Any) -> Any:
    """Return what reads past load, from the Prometheus that the horizontal autoscaler is told of."""
    from kubetide.hpa.headroom.past_loads import PastLoads
    from kubetide.vpa.recommender.prometheus import PrometheusHttp, trusting
    from kubetide.vpa.recommender.settings import RecommenderSettings

    asked = RecommenderSettings(
        prometheus_address=settings.prometheus,
        prometheus_bearer_token_file=settings.prometheus_token_file,
        prometheus_query_timeout="1m",
    )
    tls = trusting(settings.prometheus_ca_file, "hpa-prometheus-ca-file") if settings.prometheus_ca_file else None
    # Its telemetry is the recommender's by name, so it has one of its own.
    prometheus = PrometheusHttp(asked, Telemetry(), deps.clock, tls=tls)
    return PastLoads(prometheus, deps.clock, deps.rng, settings.headroom_history)


def _recommender(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.vpa.recommender.loop import Recommender

    return _with_recorder(
        deps,
        "vpa-recommender",
        lambda recorder: Recommender(deps.client, deps.clock, settings, deps.telemetry, recorder, deps.rng),
    )


def _updater(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.vpa.updater.loop import Updater

    judged = None if deps.dry_run is None else deps.dry_run.judged
    return _with_recorder(
        deps,
        "vpa-updater",
        lambda recorder: Updater(deps.client, deps.clock, settings, deps.telemetry, recorder, deps.rng, judged=judged),
    )


def _admission(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.vpa.admission.webhook import AdmissionController

    return _with_recorder(
        deps,
        "vpa-admission-controller",
        lambda recorder: AdmissionController(
            deps.client,
            deps.clock,
            settings,
            deps.telemetry,
            recorder,
            deps.rng,
            local=deps.local_webhooks,
            limits=deps.limits,
        ),
    )


def _policy(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.vpa.policies.controller import PolicyController

    return _with_recorder(
        deps,
        "vpa-policy",
        lambda recorder: PolicyController(deps.client, deps.clock, settings, deps.telemetry, recorder, deps.rng),
    )


def _plan(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.plan.controller import PlanController

    return _with_recorder(
        deps,
        "workload-plan",
        lambda recorder: PlanController(deps.client, deps.clock, settings, deps.telemetry, recorder, deps.rng),
    )


def _slo(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.slo.controller import SloController
    from kubetide.slo.webhook import webhook_server

    components = _with_recorder(
        deps,
        "nodeslo-controller",
        lambda recorder: SloController(deps.client, deps.clock, settings, deps.telemetry, recorder, deps.rng),
    )
    server = webhook_server(deps.client, settings, telemetry=deps.telemetry, limits=deps.limits)
    return components if server is None else [*components, server]


def _colocation(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.slo.colocation.pending_pods import PendingPods
    from kubetide.slo.colocation.webhook import ColocationWebhook

    components = _with_recorder(
        deps,
        "colocation-webhook",
        lambda recorder: ColocationWebhook(
            deps.client,
            deps.clock,
            settings,
            deps.telemetry,
            recorder,
            deps.rng,
            local=deps.local_webhooks,
            limits=deps.limits,
        ),
    )
    if not settings.gate("ColocationProfileController"):
        return components
    return [
        *components,
        *_with_recorder(
            deps,
            "colocation-profiles",
            lambda recorder: PendingPods(deps.client, deps.clock, settings, deps.telemetry, recorder, deps.rng),
        ),
    ]


def _metrics(deps: Dependencies, settings: Any) -> list[Component]:
    from kubetide.metrics.server import MetricsServer

    return [
        MetricsServer(
            deps.client,
            deps.clock,
            settings,
            deps.telemetry,
            deps.rng,
            access=deps.access,
            # The embedded API server answers for these groups itself.
            serve=deps.local_webhooks is None,
            limits=deps.limits,
        )
    ]


_BUILDERS: dict[str, Builder] = {
    "hpa": _hpa,
    "recommender": _recommender,
    "updater": _updater,
    "admission": _admission,
    "policy": _policy,
    "plan": _plan,
    "slo": _slo,
    "colocation": _colocation,
    "metrics": _metrics,
}
_ADDRESSES = {
    "hpa": ":8941",
    "recommender": ":8942",
    "updater": ":8943",
    "admission": ":8944",
    "slo": ":8080",
    "colocation": ":8946",
    "policy": ":8947",
    "metrics": ":8948",
    "plan": ":8949",
}
