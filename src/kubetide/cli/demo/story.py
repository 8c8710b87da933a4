"""The read model of a simulated day: reads the cluster, the ledger and the controllers, and changes none of them.

It may be asked at any moment and any number of times; a day that nobody looks at is the same day.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.quantity import quantity_float
from kubetide.cli.demo.cluster_view import ClusterViews
from kubetide.cli.demo.controls import Controls
from kubetide.cli.demo.verdict import Facts, verdict_of
from kubetide.dashboard.core.model import Amounts, Banner, Entry, Node, State, Workload
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.ledger import Ledger, WorkloadRow
from kubetide.embedded.sim.load.profile import WorkloadKey
from kubetide.embedded.sim.load.scenario_events import Announcement
from kubetide.embedded.sim.narration import Line
from kubetide.embedded.sim.node.resizes import held_by
from kubetide.embedded.sim.world import NODES, PODS, condition_of, is_active
from kubetide.simulate.controllers import Controllers
from kubetide.verdicts.core.judge import about
from kubetide.verdicts.core.verdict import Finding
from kubetide.verdicts.core.view import KIND_WORDS, ClusterView

HPAS = ResourceKey("autoscaling", "horizontalpodautoscalers")
VPAS = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalers")
_SHORT = {"horizontalpodautoscaler": "hpa", "deployment": "deploy"}
_KEPT_LINES = 1000
_KEPT_BANNERS = 50
_NEWS = timedelta(minutes=15)
"""How long a scenario event that was over at once stays on the screen, in simulated time."""


@dataclass(slots=True)
class Story:
    """What has happened so far, and how things are."""

    cluster: SimCluster
    ledger: Ledger
    controllers: Controllers
    length: timedelta
    begun: datetime
    log: deque[Line] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    _views: ClusterViews = field(init=False)
    events: deque[tuple[datetime, Announcement]] = field(default_factory=lambda: deque(maxlen=_KEPT_BANNERS))

    def __post_init__(self) -> None:
        self._views = ClusterViews(self.cluster)

    def state(self, controls: Controls) -> State:
        """Return everything a screen shows."""
        workloads = self.workloads()
        selected = controls.selected if controls.selected is not None and workloads else None
        if selected is not None:
            selected %= len(workloads)
        scenario = self.cluster.scenario
        return State(
            title=scenario.name,
            start=self.begun,
            now=self.cluster.clock.now(),
            end=self.begun + self.length,
            pace=controls.pace.text(),
            workloads=tuple(workloads),
            nodes=tuple(self._nodes()),
            banners=tuple(self._banners()),
            log=tuple(self._entries()),
            selected=selected,
            explanation=tuple(self._explanation(workloads[selected])) if selected is not None else (),
            filter=controls.filter,
            keys=controls.hint(),
        )

    def workloads(self) -> list[Workload]:
        """Return every workload as it is, with its verdict."""
        hpas, vpas = self._by_target(HPAS, "scaleTargetRef"), self._by_target(VPAS, "targetRef")
        waiting = self._waiting()
        view = self._views.now()
        return [
            self._workload(seen, hpas.get(key), vpas.get(key), waiting[key], _findings(view, key))
            for key, seen in self.ledger.latest.items()
        ]

    def _workload(
        self, seen: WorkloadRow, hpa: Raw | None, vpa: Raw | None, waiting: int, findings: Sequence[Finding]
    ) -> Workload:
        namespace, name = seen.workload
        best = _recommended(vpa)
        pods = max(seen.pods, 1)
        cpu = Amounts(used=seen.used_cores, asked=seen.asked_cores, recommended=_times(best.get("cpu"), pods))
        memory = Amounts(used=seen.used_memory, asked=seen.asked_memory, recommended=_times(best.get("memory"), pods))
        verdict = verdict_of(
            Facts(
                key=f"{namespace}/{name}",
                ready=seen.ready,
                pods=seen.pods,
                rate=seen.rate,
                latency=seen.latency,
                oom_kills=self.ledger.recent_kills(seen.workload),
                batch_cores=seen.batch_cores,
                cpu=cpu,
                memory=memory,
                hpa=hpa,
                vpa=vpa,
            ),
            findings,
        )
        spec = (hpa or {}).get("spec") or {}
        return Workload(
            namespace=namespace,
            name=name,
            ready=seen.ready,
            pods=seen.pods + waiting,
            bounds=(int(spec.get("minReplicas") or 1), int(spec["maxReplicas"])) if hpa is not None else None,
            usage=_usage(hpa) if hpa is not None else f"{seen.rate:.0f} req/s" if seen.rate else "",
            rate=seen.rate,
            latency=seen.latency,
            cpu=cpu,
            memory=memory,
            trend=tuple(self.ledger.trends.get(seen.workload, ())),
            restarts=seen.restarts,
            verdict=verdict,
        )

    def _by_target(self, resource: ResourceKey, field_name: str) -> dict[WorkloadKey, Raw]:
        return {
            (obj["metadata"]["namespace"], (obj["spec"].get(field_name) or {}).get("name", "")): obj
            for obj in self.cluster.world.all(resource)
        }

    def _waiting(self) -> Counter[WorkloadKey]:
        """Return how many pods of each workload no node has taken."""
        pods = self.cluster.world.all(PODS)
        waiting = (pod for pod in pods if not pod["spec"].get("nodeName") and is_active(pod))
        return Counter(self.cluster.world.workload_of(pod) for pod in waiting)

    def _nodes(self) -> list[Node]:
        nodes = []
        for name in self.cluster.hosts:
            obj = self.cluster.world.get(NODES, StoreKey("", name)) or {}
            allocatable = (obj.get("status") or {}).get("allocatable") or {}
            runs = self.cluster.kubelets.runs_on(name)
            held = [held_by(run.containers) for run in runs]
            rows = [c.row for run in runs for c in run.containers if c.row is not None]
            nodes.append(
                Node(
                    name=name,
                    ready=condition_of(obj, "Ready") == "True",
                    pods=len(runs),
                    cpu=quantity_float(allocatable.get("cpu", "0")),
                    asked=sum(each.get("cpu", 0) for each in held) / 1000,
                    used=float(self.cluster.kernel.granted[rows].sum()),
                    batch=quantity_float(allocatable.get("kubernetes.io/batch-cpu", "0")) / 1000,
                    batch_asked=sum(each.get("kubernetes.io/batch-cpu", 0) for each in held) / 1000,
                )
            )
        return nodes

    def _banners(self) -> list[Banner]:
        now = self.cluster.clock.now()
        over = {event.subject: at for at, event in self.events if event.over}
        banners = []
        for at, event in self.events:
            lasts = timedelta(seconds=event.seconds) if event.seconds else _NEWS
            if event.over or now >= at + lasts or over.get(event.subject, at) > at:
                continue
            left = at + lasts - now if event.seconds else None
            banners.append(Banner(at=at, text=f"{event.subject}: {event.text}", left=left))
        return banners

    def _entries(self) -> list[Entry]:
        names = sorted(self.ledger.latest, key=lambda key: -len(key[1]))
        return [
            Entry(at=line.at, subject=_short(line.subject), text=line.text, tone=line.tone, workload=_of(line, names))
            for line in self.log
        ]

    def _explanation(self, each: Workload) -> list[str]:
        from kubetide.hpa.explain import render as render_hpa
        from kubetide.vpa.recommender.explain import render as render_vpa

        lines: list[str] = []
        key = (each.namespace, each.name)
        hpa = self._by_target(HPAS, "scaleTargetRef").get(key)
        vpa = self._by_target(VPAS, "targetRef").get(key)
        for kind, obj, render in (("hpa", hpa, render_hpa), ("vpa", vpa, render_vpa)):
            if obj is not None:
                trace = self.controllers.explain(kind, f"{each.namespace}/{obj['metadata']['name']}")
                lines += render(trace).splitlines() if trace else [f"The {kind} {each.key} has not been looked at yet."]
        return lines or ["It has no autoscaler: its replicas and requests are those of its manifest."]


def _findings(view: ClusterView, workload: WorkloadKey) -> Sequence[Finding]:
    """Return what there is to say about a workload and its autoscalers, worst first."""
    key = ObjectKey(*workload)
    return next((found for word in KIND_WORDS.values() if (found := about(view, word, key))), [])


def _recommended(vpa: Raw | None) -> dict[str, float]:
    """Return what a VPA recommends for one pod."""
    total: dict[str, float] = {}
    recommendation = ((vpa or {}).get("status") or {}).get("recommendation") or {}
    for container in recommendation.get("containerRecommendations") or ():
        for name, value in (container.get("target") or {}).items():
            total[name] = total.get(name, 0.0) + quantity_float(value)
    return total


def _times(value: float | None, pods: int) -> float | None:
    return None if value is None else value * pods


def _usage(hpa: Raw) -> str:
    """Return the first metric of an autoscaler, its value and its target."""
    specs = hpa["spec"].get("metrics") or []
    seen = (hpa.get("status") or {}).get("currentMetrics") or []
    if not specs:
        return ""
    kind = str(specs[0].get("type", ""))
    part = kind[:1].lower() + kind[1:]
    target = (specs[0].get(part) or {}).get("target") or {}
    current = ((seen[0].get(part) or {}).get("current") or {}) if seen else {}
    name = (specs[0].get(part) or {}).get("name") or "load"
    if target.get("averageUtilization") is not None:
        return f"{name} {current.get('averageUtilization', '?')}/{target['averageUtilization']} %"
    wanted = target.get("averageValue") or target.get("value")
    value = current.get("averageValue") or current.get("value")
    text = "?" if value is None else f"{quantity_float(value):.0f}"
    return f"{name} {text}/{quantity_float(wanted or 0):.0f}"


def _short(subject: str) -> str:
    """Return a subject as kubectl users type it."""
    kind, _, name = subject.partition("/")
    return f"{_SHORT.get(kind, kind)}/{name}" if name else subject


def _of(line: Line, names: list[WorkloadKey]) -> str:
    """Return the workload that a line is about; the names of pods begin with it."""
    name = line.subject.partition("/")[2]
    for namespace, workload in names:
        if namespace == line.namespace and (name == workload or name.startswith(f"{workload}-")):
            return f"{namespace}/{workload}"
    return ""
