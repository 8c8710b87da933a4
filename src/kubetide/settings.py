"""All settings, section by section: what `kubetide run` understands and what the reference page shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.api.objects import hpa_compat
from kubetide.api.values.compat import rule_rows
from kubetide.config import Doc, Settings
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.settings import KubeSettings
from kubetide.metrics.settings import MetricsSettings
from kubetide.node.core import compat as node_compat
from kubetide.node.settings import NodeSettings
from kubetide.plan.settings import PlanSettings
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.slo.core import compat as slo_compat
from kubetide.slo.settings import SloSettings
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.core import compat as vpa_compat
from kubetide.vpa.policies.settings import PolicySettings
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings


class ProcessSettings(Settings, frozen=True, kw_only=True):
    """The process around the components."""

    section: ClassVar[str] = "process"

    listen: Annotated[
        str,
        Doc(
            "Where metrics, health and explain are served, such as :8080, 127.0.0.1:9000 or just a port. "
            "Empty: the address of the component, or of the first one named when several share the process.",
            aliases=("status-port",),
        ),
    ] = ""
    explain_token: Annotated[
        str,
        Doc("A bearer token that opens /explain, and /events of the agent, beyond loopback. Empty: loopback only."),
    ] = ""
    header_timeout: Annotated[
        timedelta,
        Doc(
            "How long a client may take from its connection to the end of the headers of its first request, "
            "TLS handshake included, on every port that is served. Then it is cut off."
        ),
    ] = timedelta(seconds=10)
    body_timeout: Annotated[timedelta, Doc("How long a client may take to send the body of a request.")] = timedelta(
        seconds=30
    )
    idle_timeout: Annotated[
        timedelta,
        Doc(
            "How long a connection may wait for its next request. Shorter than a client's own limit (90 s in Go), "
            "and it may send one into a connection that is just being closed."
        ),
    ] = timedelta(seconds=120)
    max_connections: Annotated[
        int,
        Doc(
            "Connections per port at most. The next one takes the place of the one that has waited longest for a "
            "request; if all are being answered, it is closed.",
            minimum=1,
        ),
    ] = 512
    tracing_endpoint: Annotated[
        str,
        Doc(
            "An OpenTelemetry collector that gets a span per decision, OTLP over HTTP, such as http://collector:4318. "
            "Empty: nothing is traced. Needs the extra otel; the SDK's OTEL_* variables hold."
        ),
    ] = ""
    tracing_ratio: Annotated[float, Doc("Which part of the decisions is traced.", maximum=1.0)] = 1.0
    config: Annotated[str, Doc("A YAML file with settings, one section per component.")] = ""
    dry_run: Annotated[
        bool,
        Doc(
            "Decide as always, print what would be done and why (-o json: as JSON lines), and write nothing: "
            "no object, no event, no Lease, no kernel file. Reading is all the permission it needs."
        ),
    ] = False
    compare: Annotated[
        bool,
        Doc(
            "Run hpa, recommender or updater beside the upstream controller, report every decision in which kubetide "
            "would differ, and write nothing."
        ),
    ] = False
    once: Annotated[bool, Doc("With --dry-run of the node agent: end after every strategy has decided once.")] = False


COMPONENTS: dict[str, type[Settings]] = {
    "hpa": HpaSettings,
    "recommender": RecommenderSettings,
    "updater": UpdaterSettings,
    "admission": AdmissionSettings,
    "policy": PolicySettings,
    "plan": PlanSettings,
    "slo": SloSettings,
    "colocation": ColocationSettings,
    "metrics": MetricsSettings,
}
"""What `kubetide run` can run."""

ALL = tuple(name for name in COMPONENTS if name not in ("metrics", "plan"))
"""What `all` stands for: the metrics server would take metrics.k8s.io over from the one that is there, and plans are an
API that nobody has to have."""

SECTIONS: dict[str, type[Settings]] = {
    "process": ProcessSettings,
    "kube": KubeSettings,
    **COMPONENTS,
    "node": NodeSettings,
}
"""Every group of settings, in the order of the reference page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatTable:
    """What `--compat` means for one component, for people."""

    upstream: str
    versions: tuple[str, ...]
    default: str
    rules: Sequence[tuple[str, str, str, str]]
    """Rule, the release that brought it, when it holds, meaning."""
    gates: Sequence[tuple[str, str, str, str, str]] = ()
    """Gate, the release from which it exists, is on, and is final; meaning."""


COMPAT: dict[str, CompatTable] = {
    "hpa": CompatTable(
        upstream="the horizontal autoscaler of Kubernetes",
        versions=tuple(map(str, hpa_compat.VERSIONS)),
        default=str(hpa_compat.DEFAULT_VERSION),
        rules=rule_rows(hpa_compat.RULES),
        gates=hpa_compat.gate_rows(),
    ),
    "vpa": CompatTable(
        upstream="the Vertical Pod Autoscaler (recommender, updater, admission)",
        versions=tuple(map(str, vpa_compat.VERSIONS)),
        default=str(vpa_compat.DEFAULT),
        rules=rule_rows(vpa_compat.RULES),
    ),
    "slo": CompatTable(
        upstream="the manager of Koordinator (slo, colocation)",
        versions=tuple(map(str, slo_compat.VERSIONS)),
        default=str(slo_compat.VERSIONS[-1]),
        rules=rule_rows(slo_compat.RULES),
    ),
    "node": CompatTable(
        upstream="the agent of Koordinator",
        versions=tuple(map(str, node_compat.VERSIONS)),
        default=str(node_compat.VERSIONS[-1]),
        rules=rule_rows(node_compat.RULES),
    ),
}
"""Components that follow a release of choice, in the order of the reference page."""
