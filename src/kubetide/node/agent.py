"""The agent of one node: see, predict, decide, report; in this order at the start, and all at once afterwards.

    1 executor, samples      2 state (waits until all of it is known)      3 collectors (waits until each had a good
    round)      4 prediction, reports, QoS strategies, hooks

A module that fails is started again with growing pauses while the others go on; what needs its data behaves as
without data. A barrier that waits says for what. At the end the strategies take back what would hurt without the
agent, and the history is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from kubetide.api.cgroups import CgroupDriver, CgroupPaths
from kubetide.api.slo_strategies import HostApplication
from kubetide.clock import Clock
from kubetide.errors import KubetideError, SettingsError, TerminalError
from kubetide.kube.backoff import Backoff
from kubetide.kube.client import Client
from kubetide.kube.manager import Component
from kubetide.log import get_logger
from kubetide.node import report
from kubetide.node.collectors.base import Collector, Context, Shared
from kubetide.node.collectors.registry import make_collectors
from kubetide.node.executor.audit import Audit
from kubetide.node.executor.writer import Executor
from kubetide.node.features import HOOK_GATES, parse_gates
from kubetide.node.host import detect
from kubetide.node.host.layout import Layout
from kubetide.node.host.protocol import Commands, Host
from kubetide.node.host.readers import CgroupReader
from kubetide.node.prediction.reclaimable import MinPredictor, NoPrediction, Predictor, Reclaimable
from kubetide.node.prediction.reconciler import Prediction
from kubetide.node.runtime.nvml import GpuSource
from kubetide.node.series.history import History
from kubetide.node.series.ring import Ring
from kubetide.node.series.store import SeriesStore
from kubetide.node.settings import NodeSettings
from kubetide.node.snapshot import PodState, Snapshot
from kubetide.node.state.callbacks import Callbacks
from kubetide.node.state.devices import DeviceReporter
from kubetide.node.state.kubelet import Kubelet
from kubetide.node.state.lifecycle import Change, InotifyWatch
from kubetide.node.state.metric import MetricReporter
from kubetide.node.state.objects import NodeObjects
from kubetide.node.state.pods import Pods
from kubetide.node.state.topology import TopologyReporter
from kubetide.node.status import node_status
from kubetide.telemetry import Telemetry

log = get_logger("node")

_POLL_SECONDS = 0.1
_TELL_EVERY = 30.0
_HOUSEKEEPING_SECONDS = 60.0
_RESTART = Backoff(base=1.0, factor=2.0, cap=60.0, jitter=0.5)
_HEALTHY_AFTER = 60.0


class NoNodeName(TerminalError):
    """The agent does not know which node it is on."""


class HostUnreadable(TerminalError):
    """A root of the host cannot be read."""


@dataclass(slots=True)
class ModuleState:
    """How a part of the agent is doing."""

    status: str = "waiting"
    restarts: int = 0
    error: str = ""
    waiting_for: list[str] = field(default_factory=list)


ModuleFactory = Callable[["NodeAgent"], Sequence[Component]]


class NodeAgent:
    """All parts of the agent, put together for one node."""

    name = "node-agent"

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: NodeSettings,
        host: Host,
        telemetry: Telemetry,
        *,
        layout: Layout | None = None,
        commands: Commands | None = None,
        kubelet: Kubelet | None = None,
        gpus: GpuSource | None = None,
        modules: ModuleFactory | None = None,
        inotify: bool = False,
    ) -> None:
        if not settings.node_name:
            raise NoNodeName("set NODE_NAME or --node-name to the name of this node's Node object")
        self.client, self.clock, self.settings, self.host, self.telemetry = client, clock, settings, host, telemetry
        self.node_name = settings.node_name
        self.gates = parse_gates(settings.feature_gates)
        self.hook_gates = parse_gates(settings.runtime_hooks, HOOK_GATES)
        self.layout = self._with_driver(layout or layout_of(settings, version=1))
        self.states: dict[str, ModuleState] = {}
        self.commands = commands
        self.kubelet = kubelet

        self.audit = self._make_audit()
        force_after = timedelta(seconds=settings.resource_force_update_seconds)
        self.executor = Executor(host, self.layout, clock, auditor=self.audit, force_after=force_after)
        self.store = SeriesStore(Ring(settings.metric_memory_window.total_seconds()))
        self._history: History | None = None
        self.callbacks = Callbacks()
        self.objects = NodeObjects(
            client,
            clock,
            self.node_name,
            self.callbacks,
            telemetry,
            claims=self.gates["BlkIOReconcile"],
            report=settings.enable_node_metric_report,
        )
        self.pods = Pods(
            client,
            clock,
            self.node_name,
            lambda: self.layout,
            self.callbacks,
            telemetry,
            sync_interval=settings.kubelet_sync_interval,
            kubelet=kubelet,
        )
        self.topology = TopologyReporter(
            client,
            host,
            self.store.facts,
            self.callbacks,
            self.node_name,
            node=lambda: self.objects.node,
            pods=lambda: tuple(state.pod for state in self.pods.states()),
            interval=settings.node_topology_sync_interval,
            report=self.gates["NodeTopologyReport"],
            huge_pages=self.gates["HugePageReport"],
            kubelet=None if settings.disable_query_kubelet_config else kubelet,
            kubelet_root=self.layout.kubelet_root,
        )
        self.shared = Shared()
        self.collectors = self._make_collectors(gpus)
        self.prediction = Prediction(settings, clock, self.store, self.pods.states)
        self.reporter = MetricReporter(client, clock, self.objects, self.build_status, self.node_name, telemetry)
        self._watch = InotifyWatch(host, self.layout) if inotify else None
        late: list[Component] = list(modules(self)) if modules is not None else []
        if gpus is not None and self.gates["Accelerators"]:
            node = partial(getattr, self.objects, "node")
            late.append(DeviceReporter(client, host, self.layout, gpus, self.node_name, node))
        self._late = tuple(late)
        self._running = False
        self._predicted = telemetry.gauge(
            "koordlet_node_predicted_resource_reclaimable",
            "What each predictor says could be lent out.",
            ("node", "predictor", "resource", "unit"),
        )
        self._series = telemetry.gauge("kubetide_node_series", "Series with recent samples.", ("node",))
        self._dropped = telemetry.gauge("kubetide_node_samples_dropped", "Samples that were not numbers.", ("node",))
        telemetry.gauge("koordlet_start_time", "Unix time at which the agent started.", ("node",)).labels(
            self.node_name
        ).set(clock.now().timestamp())

    def _make_audit(self) -> Audit | None:
        if not self.gates["AuditEvents"] or not self.settings.audit_log_dir:
            return None
        try:
            return Audit(
                Path(self.settings.audit_log_dir),
                self.clock,
                verbosity=self.settings.audit_verbose,
                max_bytes=self.settings.audit_max_disk_space_mb * 1024 * 1024,
                max_readers=self.settings.audit_max_concurrent_readers,
                max_page=self.settings.audit_max_events_limit,
            )
        except OSError as error:
            log.warning("no audit log", directory=self.settings.audit_log_dir, error=str(error))
            return None

    def _with_driver(self, layout: Layout) -> Layout:
        """Return the layout with the driver that the flag or the directories say; systemd if neither does."""
        prefix = self.settings.cgroup_prefix
        named = self.settings.cgroup_driver
        if named:
            if named not in list(CgroupDriver):
                raise SettingsError(f"{named!r} is neither systemd nor cgroupfs", field="cgroup-driver")
            return replace(layout, paths=CgroupPaths(CgroupDriver(named), prefix))
        layout = replace(layout, paths=CgroupPaths(layout.paths.driver, prefix or layout.paths.prefix))
        found = detect.driver_by_directories(self.host, layout)
        if found is None:
            return layout
        return replace(layout, paths=CgroupPaths(found, layout.paths.prefix))

    def _make_collectors(self, gpus: GpuSource | None) -> tuple[Collector, ...]:
        context = Context(
            host=self.host,
            layout=self.layout,
            clock=self.clock,
            store=self.store,
            telemetry=self.telemetry,
            node_name=self.node_name,
            pods=self.pods.states,
            host_applications=self.host_applications,
            shared=self.shared,
        )
        return make_collectors(context, self.settings, self.gates, commands=self.commands, gpus=gpus)

    def host_applications(self) -> tuple[HostApplication, ...]:
        """Return the host applications of the NodeSLO; without one there are none."""
        return (self.objects.slo.host_applications or ()) if self.objects.slo else ()

    @property
    def collect_interval(self) -> float:
        """Seconds between two samples of usage."""
        return self.settings.collect_res_used_interval.total_seconds()

    def snapshot(self) -> Snapshot:
        """Return the node as it is now, for strategies."""
        now = self.clock.now()
        return Snapshot(
            now=now,
            node=self.objects.node,
            pods=self.pods.states(),
            slo=self.objects.slo,
            metrics=self.store.view(lambda: now, self.collect_interval),
            cgroups=CgroupReader(self.host, self.layout),
            collect_interval=self.collect_interval,
            topology_annotations=self.topology.annotations,
            processors=self.store.facts.processors,
            storage=self.store.facts.storage,
            claims=self.objects.volumes,
            gates=self.gates,
        )

    def build_status(self, spec: dict[str, Any]) -> report.Status:
        """Return the NodeMetric status of this moment."""
        predictor = self.prediction.predictor()
        status = report.status(
            self.store,
            spec,
            now=self.clock.now(),
            pods=self.pods.states(),
            host_applications=self.host_applications(),
            gpus=self.store.facts.gpus,
            cold_started=self.shared.cold_memory_started,
            predictor=predictor,
        )
        self._show_predicted(predictor)
        return status

    def _show_predicted(self, predictor: Predictor) -> None:
        """Set what each predictor says, for people who want to know which one was the careful one."""
        parts: dict[str, Predictor] = {"minPredictor": predictor}
        if isinstance(predictor, MinPredictor):
            parts |= {
                "podReclaimablePredictor": predictor.pods,
                "priorityReclaimablePredictor": predictor.priorities,
            }
        for name, part in parts.items():
            try:
                found = part.result()
            except NoPrediction:
                found = Reclaimable(0, 0)
            self._predicted.labels(self.node_name, name, "cpu", "core").set(found.cpu_millis / 1000)
            self._predicted.labels(self.node_name, name, "memory", "byte").set(found.memory_bytes)

    # ---- running

    async def run(self) -> None:
        """Run all parts until cancelled."""
        self.check_host()
        self._tell_features()
        self.executor.start()
        self._open_history()
        try:
            async with asyncio.TaskGroup() as group:
                self._start(group, "objects", self.objects.run)
                self._start(group, "pods", self.pods.run)
                self._start(group, "housekeeping", self._keep_house)
                if self._watch is not None:
                    self._watch.lifecycle.add_handler(self._on_change)
                    self._start(group, "lifecycle", self._watch.run)
                await self._barrier("state", self._missing_state)
                self._start(group, "callbacks", self.callbacks.run)
                for collector in self.collectors:
                    self._start(group, collector.name, partial(self._collect, collector))
                self._start(group, "topology", self.topology.run)
                await self._barrier("collectors", self._missing_collectors)
                self._start(group, "prediction", self.prediction.run)
                if self.settings.enable_node_metric_report:
                    self._start(group, "report", self.reporter.run)
                for component in self._late:
                    self._start(group, component.name, component.run)
                self._running = True
                log.info("agent runs", node=self.node_name, pods=self.pods.source, cgroup=self.layout.version)
                await asyncio.Event().wait()
        finally:
            self._running = False
            self._close()

    def _start(self, group: asyncio.TaskGroup, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self.states[name] = ModuleState()
        group.create_task(self._supervise(name, run), name=f"node/{name}")

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a module; start it again when it fails."""
        state = self.states[name]
        failures = 0
        while True:
            began = self.clock.monotonic()
            state.status = "running"
            try:
                await run()
                state.status = "ended"
                return
            except Exception as error:
                if self.clock.monotonic() - began > _HEALTHY_AFTER:
                    failures = 0
                state.status, state.error = "restarting", f"{type(error).__name__}: {error}"
                state.restarts += 1
                log.exception("module failed, starting it again", module=name)
            self.telemetry.counter(
                "kubetide_node_module_restarts_total", "Restarts of parts of the agent.", ("node", "module")
            ).labels(self.node_name, name).inc()
            await asyncio.sleep(_RESTART.delay(failures, self.client.chance))
            failures += 1

    async def _barrier(self, name: str, missing: Callable[[], list[str]]) -> None:
        """Wait until nothing is missing, and say what is."""
        state = self.states[f"barrier/{name}"] = ModuleState(status="waiting")
        told = self.clock.monotonic()
        while waiting := missing():
            state.waiting_for = waiting
            if self.clock.monotonic() - told >= _TELL_EVERY:
                told = self.clock.monotonic()
                log.info("still waiting", barrier=name, missing=", ".join(waiting))
            await asyncio.sleep(_POLL_SECONDS)
        state.status, state.waiting_for = "passed", []

    def _missing_state(self) -> list[str]:
        missing = self.objects.waiting_for()
        return missing if self.pods.synced else [*missing, f"pods from the {self.pods.source}"]

    def _missing_collectors(self) -> list[str]:
        return [collector.name for collector in self.collectors if not collector.started]

    async def _collect(self, collector: Collector) -> None:
        """Run a collector: at once, then one interval after each round ended."""
        problem = ""
        while True:
            try:
                if collector.collect():
                    collector.started = True
                problem = ""
            except (OSError, KubetideError) as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("collector round failed", collector=collector.name, error=problem)
            self.states[collector.name].error = problem
            rest = getattr(collector, "pause", None)
            await asyncio.sleep(collector.interval if rest is None else rest())

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            self.executor.collect_garbage()
            self.store.ring.expire()
            self._series.labels(self.node_name).set(self.store.ring.series_count)
            self._dropped.labels(self.node_name).set(self.store.dropped)
            if self._history is not None:
                self._history.trim(int(self.clock.now().timestamp() * 1000))
            if self.audit is not None:
                self.audit.flush()
            sweep = getattr(self.host, "sweep", None)
            if sweep is not None:
                sweep()

    def _on_change(self, change: Change) -> None:
        if not change.container:
            self.pods.poke()

    def check_host(self) -> None:
        """Raise HostUnreadable if a root of the host cannot be read: nothing the agent does would work."""
        for path in (self.layout.proc("stat"), self.layout.proc("meminfo")):
            try:
                self.host.read(path)
            except OSError as error:
                raise HostUnreadable(f"cannot read {path}: {error}") from error
        if not self.host.exists(self.layout.cgroup_dir("cpu", "")):
            raise HostUnreadable(f"no cgroups at {self.layout.cgroup_dir('cpu', '')}")

    def _tell_features(self) -> None:
        try:
            cpuinfo = self.host.read(self.layout.proc("cpuinfo"))
        except OSError:
            cpuinfo = ""
        for feature in detect.kernel_features(self.host, self.layout, cpuinfo):
            if not feature.present:
                log.info("kernel feature missing", feature=feature.name, effect=feature.without)

    def _open_history(self) -> None:
        path = self.settings.metric_history_path
        if not path:
            return
        self._history = History(
            Path(path) / "samples.sqlite",
            retention=self.settings.metric_history_retention,
            max_bytes=self.settings.metric_history_max_mb * 1024 * 1024,
        )
        restored = self._history.restore(self.store.ring, int(self.clock.now().timestamp() * 1000))
        self.store.journal = self._history
        log.info("sample history opened", path=path, batches=restored)

    def _close(self) -> None:
        if self._history is not None:
            self._history.close()
            self._history = None
            self.store.journal = None
        if self.audit is not None:
            self.audit.close()
        for collector in self.collectors:
            close = getattr(collector, "close", None)
            if close is not None:
                close()

    # ---- what people see

    def ready(self) -> bool:
        """Whether everything has been started."""
        return self._running and all(component.ready() for component in self._late)

    def healthy(self) -> bool:
        """A failing part restarts by itself; restarting the process would not help it."""
        return True

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the state of the node or of one of its pods."""
        if kind == "node" and key == self.node_name:
            answer: dict[str, Any] = {
                "node": self.node_name,
                "podSource": self.pods.source,
                "modules": {name: _shown(state) for name, state in self.states.items()},
                "series": self.store.ring.series_count,
                "models": len(self.prediction.models),
                "report": {"writtenAt": self.reporter.written_at, "problem": self.reporter.problem},
                "topology": {"problem": self.topology.problem, "annotations": self.topology.annotations},
            }
            for component in self._late:
                ask = getattr(component, "explain", None)
                if ask is not None and (more := ask(kind, key)) is not None:
                    answer[component.name] = more
                    answer.setdefault("strategies", []).extend(_strategies(more))
            return answer
        if kind == "status" and key in (self.node_name, "self"):
            return self.status()
        if kind == "pod":
            for pod in self.pods.states():
                if pod.key == key:
                    return self._explain_pod(pod)
        return None

    def status(self) -> dict[str, Any]:
        """Return the table of pods that `kubetide node status` shows."""
        return node_status(
            self.node_name, self.store.ring, self.prediction.models, self.pods.states(), now=self.clock.now()
        )

    def _explain_pod(self, pod: PodState) -> dict[str, Any]:
        peaks = self.prediction.models.predict(pod.uid) or {}
        return {
            "pod": pod.key,
            "qos": {"label": pod.raw_qos, "used": pod.qos, "kubernetes": pod.kube_qos},
            "priority": pod.priority,
            "cgroup": pod.directory,
            "predicted": {
                name: {"cpuMillis": peak.cpu_millis, "memoryBytes": peak.memory_bytes} for name, peak in peaks.items()
            },
        }


def _strategies(explained: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the last decision of every strategy in one line each."""
    decided: dict[str, dict[str, Any]] = explained.get("strategies") or {}
    return [
        {"name": name, "reason": str(decision.get("reason") or decision.get("state") or "decided"), "trace": decision}
        for name, decision in decided.items()
    ]


def _shown(state: ModuleState) -> dict[str, Any]:
    fields = {
        "status": state.status,
        "restarts": state.restarts,
        "error": state.error,
        "waitingFor": state.waiting_for,
    }
    return {name: value for name, value in fields.items() if value}


def layout_of(settings: NodeSettings, *, version: int) -> Layout:
    """Return the layout that the settings describe."""
    return Layout(
        version=version,
        paths=CgroupPaths(CgroupDriver.SYSTEMD, settings.cgroup_prefix),
        cgroup_root=settings.cgroup_root_dir,
        sys_root=settings.sys_root_dir,
        sys_fs_root=settings.sys_fs_root_dir,
        proc_root=settings.proc_root_dir,
        var_run_root=settings.var_run_root_dir,
        run_root=settings.run_root_dir,
        kubelet_root=settings.kubelet_root_dir,
    )
