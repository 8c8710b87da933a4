"""The metrics APIs of the simulated cluster, with the delays and gaps that real ones have.

Every `interval` all counters are scraped; the scrape is served `delay` later and until the next one. A container's CPU
is the difference of two scrapes over their distance, so a new container shows up after the second. With `gaps` above
zero a pod is missing from that share of scrapes, the same ones for the same seed.

    metrics.k8s.io            pods, nodes: usage from the kernel model
    custom.metrics.k8s.io     pods: http_requests_per_second, http_request_duration_seconds; anything set by hand
    external.metrics.k8s.io   curves of the scenario and values set by hand
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import numpy as np
import numpy.typing as npt

from kubetide.api.objects.metrics import UsagePages
from kubetide.api.objects.metrics_answers import number_text, usage_text
from kubetide.api.values.selectors import parse_selector
from kubetide.embedded.apiserver.rest.status import Raw, not_found, unavailable
from kubetide.embedded.apiserver.rest.strategy import timestamp
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.load.curves import Curve, unit_hash
from kubetide.embedded.sim.load.model import LoadModel
from kubetide.embedded.sim.metrics_pages import Page, Scraped, Watched, pages_of, template
from kubetide.embedded.sim.node.kernel import Kernel
from kubetide.embedded.sim.node.kubelet import Kubelets
from kubetide.embedded.sim.world import NODES, PODS, World

RATE_METRICS = ("http_requests_per_second", "http_requests", "requests_per_second")
LATENCY_METRICS = ("http_request_duration_seconds",)
KEPT_SCRAPES = 4


@dataclass(slots=True)
class _Scrape:
    """The counters at one moment, by row, and which container had which row."""

    number: int
    second: float
    at: datetime
    usage: npt.NDArray[np.float64]
    memory: npt.NDArray[np.float64]
    pods: list[Watched]
    pages: dict[str, Page]
    ids: frozenset[str]
    nodes: dict[str, tuple[float, float]]
    shown: Scraped | None = None
    """What is served of it, once somebody asked."""


@dataclass(slots=True)
class _Manual:
    """Values that a test or a scenario set."""

    objects: dict[tuple[str, str, str, str], float] = field(default_factory=dict)
    external: dict[tuple[str, str], list[tuple[dict[str, str], float | Curve]]] = field(default_factory=dict)


class SimMetrics:
    """Scrapes the model and answers the three APIs."""

    def __init__(
        self,
        world: World,
        kernel: Kernel,
        kubelets: Kubelets,
        model: LoadModel,
        *,
        seed: int,
        interval: float,
        delay: float,
        gaps: float,
        week_start: float,
        elapsed: Callable[[], float],
    ) -> None:
        self._world = world
        self._kernel = kernel
        self._kubelets = kubelets
        self._model = model
        self._seed = seed
        self.interval = interval
        self.delay = delay
        self.gaps = gaps
        self._week_start = week_start
        self._elapsed = elapsed
        self._scrapes: deque[_Scrape] = deque(maxlen=KEPT_SCRAPES)
        self._count = 0
        self._version = -1
        self._pods: list[Watched] = []
        self._pages: dict[str, Page] = {}
        self._ids: frozenset[str] = frozenset()
        self._manual = _Manual()
        self.down = False
        """Set during an outage: every request is answered 503 and no scrape is taken."""

    # -- scraping

    def scrape(self, now: float) -> None:
        """Take the counters as they are. The kernel must have been brought up to `now`."""
        if self.down:
            return
        if not self.up_to_date:
            self._version = self._kubelets.version
            self._pods = self._watched()
            self._pages = pages_of(self._pods)
            self._ids = frozenset(each for pod in self._pods for each, _ in pod.containers)
        self.take(now, self.now())

    @property
    def up_to_date(self) -> bool:
        """Whether the containers are those of the last scrape."""
        return self._version == self._kubelets.version

    def now(self) -> datetime:
        """Return the date."""
        return self._world.now()

    def pass_over(self, scrapes: int) -> None:
        """Count scrapes that nobody can ask for any more."""
        self._count += scrapes

    def take(self, now: float, at: datetime, used: npt.NDArray[np.float64] | None = None) -> None:
        """Keep the counters of the containers of the last scrape; `used` are those of CPU time if time has gone on."""
        self._count += 1
        kernel = self._kernel
        usage = kernel.usage.copy()
        if used is not None:
            usage[: len(used)] = used
        nodes = {
            machine.name: (usage, anon + file / 2 + machine.kernel_memory)
            for machine, (usage, anon, file) in zip(kernel.machines, kernel.totals(usage), strict=True)
        }
        self._scrapes.append(
            _Scrape(
                number=self._count,
                second=now,
                at=at,
                usage=usage,
                memory=kernel.anon + kernel.file / 2,
                pods=self._pods,
                pages=self._pages,
                ids=self._ids,
                nodes=nodes,
            )
        )

    def _watched(self) -> list[Watched]:
        pods: list[Watched] = []
        for run in self._kubelets.runs():
            running = [(c.name, c.container_id, c.row) for c in run.containers if c.row is not None]
            pod = self._world.get(PODS, run.key)
            if running and len(running) == len(run.containers) and pod is not None:
                metadata: Raw = {"name": run.key.name, "namespace": run.key.namespace}
                labels = pod["metadata"].get("labels") or None
                if labels:
                    metadata["labels"] = labels
                names = tuple(name for name, _, _ in running)
                containers = tuple((each, row) for _, each, row in running)
                text = template(metadata, names)
                pods.append(Watched(run.uid, run.key.namespace, run.key.name, labels, text, containers, names))
        pods.sort(key=lambda each: (each.namespace, each.name))
        return pods

    def _served(self) -> tuple[_Scrape, _Scrape] | None:
        """Return the newest scrape that is old enough to be served, and the one before it."""
        self._kernel.catch_up()
        horizon = self._elapsed() - self.delay + 1e-6
        scrapes = list(self._scrapes)
        for index in range(len(scrapes) - 1, 0, -1):
            if scrapes[index].second <= horizon:
                return scrapes[index - 1], scrapes[index]
        return None

    # -- metrics.k8s.io

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        """Return PodMetrics of a namespace, or of all."""
        items: list[Raw] = msgspec.json.decode(self.pod_items(namespace))
        if name:
            items = [item for item in items if item["metadata"]["name"] == name]
        if selector:
            parsed = parse_selector(selector)
            items = [item for item in items if parsed.matches(item["metadata"].get("labels") or {})]
        return items

    def pod_items(self, namespace: str = "") -> bytes:
        """Return PodMetrics of a namespace, or of all, as a JSON list; made once for all who read the same scrape."""
        scraped = self._scraped()
        if scraped is None or namespace:
            return scraped.items(namespace) if scraped is not None else b"[]"
        return b"[%s]" % b",".join([scraped.items(each)[1:-1] for each in scraped.pages])

    def pod_columns(self, namespace: str = "") -> UsagePages:
        """Return the same as columns."""
        scraped = self._scraped()
        found = UsagePages()
        if scraped is not None:
            for each in [namespace] if namespace else scraped.pages:
                if each in scraped.pages:
                    found[each] = scraped.columns(each)
        return found

    def _scraped(self) -> Scraped | None:
        self._check()
        served = self._served()
        if served is None:
            return None
        before, scrape = served
        if scrape.shown is None:
            scrape.shown = self._show(before, scrape)
        return scrape.shown

    def _show(self, before: _Scrape, scrape: _Scrape) -> Scraped:
        window = scrape.second - before.second
        shared = min(len(before.usage), len(scrape.usage))
        cores = np.zeros(len(scrape.usage))
        cores[:shared] = (scrape.usage[:shared] - before.usage[:shared]) / window
        text = f"{window:g}s"
        return Scraped(
            at=scrape.at,
            window=text,
            stamp=f'"timestamp":"{timestamp(scrape.at)}","window":"{text}"'.encode(),
            numbers=np.rint([cores * 1e9, scrape.memory / 1024]).astype(np.int64),
            pages=scrape.pages if before.ids is scrape.ids and not self.gaps else pages_of(self._seen(before, scrape)),
        )

    def _seen(self, before: _Scrape, scrape: _Scrape) -> list[Watched]:
        """Return the pods of a scrape that were there before and did not fall into a gap."""
        return [
            pod
            for pod in scrape.pods
            if all(each in before.ids for each, _ in pod.containers)
            and not (self.gaps and unit_hash(self._seed, scrape.number, hash_text(pod.uid)) < self.gaps)
        ]

    def node_metrics(self, selector: str = "", name: str = "") -> list[Raw]:
        """Return NodeMetrics of metrics.k8s.io."""
        self._check()
        served = self._served()
        if served is None:
            return []
        before, scrape = served
        window = scrape.second - before.second
        at = timestamp(scrape.at)
        parsed = parse_selector(selector) if selector else None
        items: list[Raw] = []
        for node, (usage, memory) in scrape.nodes.items():
            obj = self._world.get(NODES, StoreKey("", node))
            if obj is None or node not in before.nodes or (name and node != name):
                continue
            labels = obj["metadata"].get("labels") or {}
            if parsed is not None and not parsed.matches(labels):
                continue
            cpu = (usage - before.nodes[node][0]) / window
            items.append(
                {
                    "metadata": {"name": node, "creationTimestamp": at, "labels": labels},
                    "timestamp": at,
                    "window": f"{window:g}s",
                    "usage": usage_text(cpu, memory),
                }
            )
        return items

    # -- custom and external

    def set_object_metric(self, resource: str, namespace: str, name: str, metric: str, value: float) -> None:
        """Set a custom metric of one object by hand; `resource` is a plural such as `services` or `pods`."""
        self._manual.objects[resource.partition(".")[0], namespace, name, metric] = value

    def set_external_metric(
        self, namespace: str, metric: str, value: float | Curve, labels: dict[str, str] | None = None
    ) -> None:
        """Set an external metric; an empty namespace serves all. The same labels replace the value."""
        series = self._manual.external.setdefault((namespace, metric), [])
        wanted = labels or {}
        series[:] = [(old, known) for old, known in series if old != wanted] + [(wanted, value)]

    def custom(self, namespace: str, resource: str, name: str, metric: str, selector: str = "") -> list[Raw]:
        """Return the values of a custom metric: one per object, `name` may be `*`."""
        self._check()
        plural = resource.partition(".")[0]
        if name != "*":
            names = [name]
        elif plural == "pods":
            parsed = parse_selector(selector)
            pods = self._world.all(PODS, namespace)
            names = [p["metadata"]["name"] for p in pods if parsed.matches(p["metadata"].get("labels") or {})]
        else:
            names = sorted({key[2] for key in self._manual.objects if key[:2] == (plural, namespace)})
        values = self._model_values(namespace, plural, metric)
        found = []
        for each in names:
            value = self._manual.objects.get((plural, namespace, each, metric), values.get(each))
            if value is not None:
                found.append(self._value(namespace, plural, each, metric, value))
        if not found and name != "*":
            raise not_found("custom.metrics.k8s.io", resource, f"{name}/{metric}")
        return found

    def _model_values(self, namespace: str, plural: str, metric: str) -> dict[str, float]:
        if metric not in RATE_METRICS and metric not in LATENCY_METRICS:
            return {}
        if plural != "pods":
            if metric not in RATE_METRICS:
                return {}
            return {name: level for (space, name), level in self._model.levels().items() if space == namespace}
        values: dict[str, float] = {}
        for workload in self._model.levels():
            if workload[0] == namespace:
                for work in self._model.work_of(workload):
                    values[work.pod] = work.rate if metric in RATE_METRICS else work.latency
        return values

    def _value(self, namespace: str, plural: str, name: str, metric: str, value: float) -> Raw:
        kind, version = _KINDS.get(plural, (plural.rstrip("s").capitalize(), "v1"))
        described: Raw = {"kind": kind, "name": name, "apiVersion": version}
        if namespace:
            described["namespace"] = namespace
        return {
            "describedObject": described,
            "metric": {"name": metric, "selector": None},
            "timestamp": self._world.stamp(),
            "value": number_text(value),
        }

    def external(self, namespace: str, metric: str, selector: str = "") -> list[Raw]:
        """Return the series of an external metric that match a selector."""
        self._check()
        parsed = parse_selector(selector)
        series = self._manual.external.get((namespace, metric)) or self._manual.external.get(("", metric)) or []
        now = self._elapsed()
        found = []
        for labels, value in series:
            if parsed.matches(labels):
                level = value if isinstance(value, int | float) else value.level(now, self._week_start + now)
                found.append(
                    {
                        "metricName": metric,
                        "metricLabels": labels,
                        "timestamp": self._world.stamp(),
                        "value": number_text(level),
                    }
                )
        return found

    def custom_names(self) -> list[tuple[str, str]]:
        """Return (resource, metric) pairs that have values, for discovery."""
        names = {("pods", metric) for metric in (*RATE_METRICS, *LATENCY_METRICS)}
        names |= {(plural, metric) for plural, _, _, metric in self._manual.objects}
        return sorted(names)

    def external_names(self) -> list[str]:
        """Return the external metrics that have values, for discovery."""
        return sorted({metric for _, metric in self._manual.external})

    def _check(self) -> None:
        if self.down:
            raise unavailable("the metrics server is currently unable to handle the request")


_KINDS = {
    "pods": ("Pod", "v1"),
    "services": ("Service", "v1"),
    "namespaces": ("Namespace", "v1"),
    "nodes": ("Node", "v1"),
    "deployments": ("Deployment", "apps/v1"),
    "statefulsets": ("StatefulSet", "apps/v1"),
    "ingresses": ("Ingress", "networking.k8s.io/v1"),
}


def hash_text(text: str) -> int:
    """Return a number for a uid that is the same in every process."""
    return int.from_bytes(text.encode()[:8].ljust(8, b"\0"))
