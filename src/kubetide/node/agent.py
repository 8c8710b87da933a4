"""The agent of one node: see, predict, decide, report; in this order at the start, and all at once afterwards.

    1 executor, samples      2 state (waits until all of it is known)      3 collectors (waits until each had a good
    sync)       4 prediction, reports, QoS strategies, hooks

A module that fails is started again with growing pauses while the others go on; what needs its data behaves as
without data. A barrier that waits reports what it waits for. At the end the strategies take back what would hurt
without the agent, and the history is closed.

Everything that may block runs on two workers: `kernel` owns the host's files, `disk` runs tools and writes what the
agent keeps. The loop only decides and answers, so a hanging host delays neither the container runtime nor a probe.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.clock import Clock
from kubetide.errors import TerminalError
from kubetide.kube.client.client import Client
from kubetide.kube.control.manager import Component
from kubetide.kube.handover import running, warn_of
from kubetide.log import get_logger
from kubetide.node.collectors.base import Collector, Context, Shared, close_all, collect_forever
from kubetide.node.collectors.registry import make_collectors
from kubetide.node.collectors.storage import StorageCollector
from kubetide.node.core import report
from kubetide.node.core.compat import HOST_APPS_WITH_PAGE_CACHE
from kubetide.node.core.features import HOOK_GATES, parse_gates
from kubetide.node.core.layout import Layout
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.core.status import node_status
from kubetide.node.executor.audit_log import open_audit
from kubetide.node.executor.kernel_writer import Auditor, Executor
from kubetide.node.explain import explain_pod, told_by, with_components
from kubetide.node.host.protocol import Commands, Host
from kubetide.node.host.worker import Inline, Worker, WorkerThread
from kubetide.node.prediction_trainer import PeakGauges as PredictionGauges
from kubetide.node.prediction_trainer import Prediction
from kubetide.node.roots import check_host, layout_of, missing_features, with_driver
from kubetide.node.runtime.nvml import GpuSource
from kubetide.node.settings import NodeSettings
from kubetide.node.state.audit_writer import AuditWriter
from kubetide.node.state.callbacks import Callbacks
from kubetide.node.state.devices import DeviceReporter
from kubetide.node.state.journal import DiskJournal
from kubetide.node.state.kubelet import Kubelet, TimedKubelet
from kubetide.node.state.lifecycle import Change, InotifyWatch
from kubetide.node.state.metric import MetricReporter
from kubetide.node.state.objects import NodeObjects
from kubetide.node.state.pods import NodePods
from kubetide.node.state.topology import TopologyReporter
from kubetide.node.supervisor import ModuleWatch
from kubetide.node.telemetry import SampleGauges
from kubetide.telemetry import Telemetry

log = get_logger("node")

_HOUSEKEEPING_SECONDS = 60.0
_UPSTREAM = "koordlet"
_CLOSE_SECONDS = 5.0


class NoNodeName(TerminalError):
    """The agent does not know which node it is on."""


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
        kernel: Worker | None = None,
        disk: Worker | None = None,
        inotify: bool = False,
        auditor: Auditor | None = None,
    ) -> None:
        """`auditor` is called with kernel writes instead of the audit log."""
        if not settings.node_name:
            raise NoNodeName("set NODE_NAME or --node-name to the name of this node's Node object")
        self.client, self.clock, self.settings, self.host, self.telemetry = client, clock, settings, host, telemetry
        self.node_name = settings.node_name
        self.compat = settings.version
        self.gates = parse_gates(settings.feature_gates, compat=self.compat)
        self.hook_gates = parse_gates(settings.runtime_hooks, HOOK_GATES, self.compat)
        self.layout = with_driver(layout or layout_of(settings, version=1), settings, host)
        self.modules = ModuleWatch(clock, client.rng, telemetry, self.node_name)
        self.commands = commands
        kubelet = TimedKubelet(kubelet, clock, telemetry, self.node_name) if kubelet is not None else None
        self.kernel, self.disk = kernel or Inline(), disk or Inline()

        audit = open_audit(settings, clock) if self.gates["AuditEvents"] else None
        self.audit = AuditWriter(audit, clock, self.disk) if audit is not None else None
        force = timedelta(seconds=settings.resource_force_update_seconds)
        watcher = auditor or self.audit
        self.executor = Executor(host, self.layout, clock, auditor=watcher, force_after=force, telemetry=telemetry)
        self.store = SeriesStore(Ring(settings.metric_memory_window.total_seconds()))
        self.journal = (
            DiskJournal(settings, self.store, clock, self.disk, telemetry, self.node_name)
            if settings.metric_history_path
            else None
        )
        self.callbacks = Callbacks()
        self.objects = NodeObjects(
            client,
            clock,
            self.node_name,
            self.callbacks,
            telemetry,
            claims=self.gates["BlkIOReconcile"],
            report=settings.enable_node_metric_report,
            compat=self.compat,
        )
        self.pods = NodePods(
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
            clock,
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
            telemetry=telemetry,
            query_kubelet=not settings.disable_query_kubelet_config,
            compat=self.compat,
            kernel=self.kernel,
        )
        self.shared = Shared()
        self.collectors = self._make_collectors(gpus)
        self.prediction = Prediction(settings, clock, self.store, self.pods.states, self.disk)
        self.reporter = MetricReporter(client, clock, self.objects, self.build_status, self.node_name, telemetry)
        self._watch = InotifyWatch(host, self.layout, self.kernel) if inotify else None
        late: list[Component] = list(modules(self)) if modules is not None else []
        if gpus is not None and self.gates["Accelerators"]:
            node = partial(getattr, self.objects, "node")
            late.append(DeviceReporter(client, host, self.layout, gpus, self.node_name, node, self.kernel))
        self._late = tuple(late)
        self.hand_over = ""
        self._running = False
        self._predicted = PredictionGauges(telemetry, self.node_name)
        self._kept = SampleGauges(telemetry, self.node_name, started=clock.now())

    def _make_collectors(self, gpus: GpuSource | None) -> tuple[Collector, ...]:
        context = Context(
            host=self.host,
            layout=self.layout,
            clock=self.clock,
            store=self.store,
            telemetry=self.telemetry,
            node_name=self.node_name,
            pods=self.pods.latest,
            host_applications=self.host_applications,
            counts_page_cache=self.counts_page_cache,
            shared=self.shared,
            worker=self.kernel,
        )
        return make_collectors(context, self.settings, self.gates, commands=self.commands, gpus=gpus)

    def host_applications(self) -> tuple[HostApplication, ...]:
        """Return the host applications of the NodeSLO; without one there are none."""
        slo = self.objects.slo
        return (slo.host_applications or ()) if slo is not None else ()

    def counts_page_cache(self) -> bool:
        """Whether host applications count with their page cache."""
        spec = self.objects.metric_spec
        return self.compat.has(HOST_APPS_WITH_PAGE_CACHE) and spec is not None and report.counts_page_cache(spec)

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
            layout=self.layout,
            collect_interval=self.collect_interval,
            topology_annotations=self.topology.annotations,
            processors=self.store.facts.processors,
            storage=self.store.facts.storage,
            claims=self.objects.volumes,
            gates=self.gates,
            compat=self.compat,
        )

    def build_status(self, spec: dict[str, Any]) -> report.Status:
        """Return the NodeMetric status of this moment."""
        predictor = self.prediction.predictor(self.objects.node)
        status = report.status(
            self.store,
            spec,
            now=self.clock.now(),
            pods=self.pods.states(),
            host_applications=self.host_applications(),
            gpus=self.store.facts.gpus,
            cold_started=self.shared.cold_memory_started,
            predictor=predictor,
            numa=[one.node for one in self.store.facts.numa],
            compat=self.compat,
        )
        self._predicted.show(predictor)
        return status

    # ---- running

    async def run(self) -> None:
        """Run all parts until cancelled."""
        await self.kernel.call(self.check_host, "looking at the host")
        missing = partial(missing_features, self.host, self.layout)
        for feature in await self.kernel.call(missing, "looking for kernel features"):
            log.info("kernel feature missing", feature=feature.name, effect=feature.without)
        self.executor.start()
        if self.journal is not None:
            await self.journal.open()
        try:
            async with asyncio.TaskGroup() as group:
                start = partial(self.modules.start, group)
                start("objects", self.objects.run)
                start("pods", self.pods.run)
                start("housekeeping", self._keep_house)
                for worker in (self.kernel, self.disk):
                    if isinstance(worker, WorkerThread):
                        start(f"{worker.name}-thread", worker.run)
                if self._watch is not None:
                    self._watch.lifecycle.add_handler(self._on_change)
                    start("lifecycle", self._watch.run)
                await self.modules.barrier("state", self._missing_state)
                self._compare_releases()
                start("callbacks", self.callbacks.run)
                for collector in self.collectors:
                    start(collector.name, partial(self._collect, collector))
                start("topology", self.topology.run)
                await self.modules.barrier("collectors", self._missing_collectors)
                start("prediction", self.prediction.run)
                if self.settings.enable_node_metric_report:
                    start("report", self.reporter.run)
                for component in self._late:
                    start(component.name, component.run)
                self._running = True
                log.info(
                    "agent runs",
                    node=self.node_name,
                    compat=str(self.compat),
                    pods=self.pods.source,
                    cgroup=self.layout.version,
                )
                await asyncio.Event().wait()
        finally:
            self._running = False
            await self._close()

    def _compare_releases(self) -> None:
        """Warn where upstream's agent is at work on this node and is of another release than the one followed."""
        found = running((state.pod for state in self.pods.states()), _UPSTREAM)
        self.hand_over = warn_of(found, "node", str(self.compat.version))

    def _missing_state(self) -> list[str]:
        missing = self.objects.waiting_for()
        return missing if self.pods.synced else [*missing, f"pods from the {self.pods.source}"]

    def _missing_collectors(self) -> list[str]:
        return [collector.name for collector in self.collectors if not collector.started]

    async def _collect(self, collector: Collector) -> None:
        worker = self.disk if isinstance(collector, StorageCollector) else self.kernel
        await collect_forever(collector, self.modules.states[collector.name], worker, self.pods.states)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            self.kernel.post(self._keep_host, "closing files that are gone")
            self.store.expire()
            self._kept.show(self.store)
            if self.journal is not None:
                self.journal.trim()
            if self.audit is not None:
                self.audit.keep_house()

    def _keep_host(self) -> None:
        self.executor.collect_garbage()
        sweep = getattr(self.host, "sweep", None)
        if sweep is not None:
            sweep()

    def _on_change(self, change: Change) -> None:
        if not change.container:
            self.pods.poke()

    def check_host(self) -> None:
        """Raise HostUnreadable if a root of the host cannot be read."""
        check_host(self.host, self.layout)

    async def _close(self) -> None:
        self.kernel.post(partial(close_all, self.collectors), "closing counters")
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self.journal is not None:
                    await self.journal.close()
                if self.audit is not None:
                    await self.audit.close()
        except TimeoutError:
            log.warning("history and audit log not closed: the disk hangs")

    # ---- what people see

    def ready(self) -> bool:
        """Whether everything has been started."""
        return self._running and all(component.ready() for component in self._late)

    def healthy(self) -> bool:
        """A failing part restarts by itself; restarting the process would not help it."""
        return True

    def notes(self) -> tuple[str, ...]:
        """Return what health answers report: where pods come from, who waits for what, who was restarted."""
        told = [f"{name}: {note}" for name, state in self.modules.states.items() if (note := state.note())]
        for name, problem in (
            ("host", self.kernel.hanging()),
            ("disk", self.disk.hanging()),
            ("history", self.journal.problem() if self.journal is not None else ""),
        ):
            if problem:
                told.append(f"{name}: {problem}")
        return (f"pods from the {self.pods.source}", *told)

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the state of the node or of one of its pods."""
        if kind == "node" and key == self.node_name:
            return self._explain_node()
        if kind == "status" and key in (self.node_name, "self"):
            return self.status()
        if kind == "pod":
            for pod in self.pods.states():
                if pod.key == key:
                    return explain_pod(pod, self.prediction.models)
        return None

    def _explain_node(self) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "node": self.node_name,
            "compat": str(self.compat),
            "podSource": self.pods.source,
            "modules": {name: state.shown() for name, state in self.modules.states.items()},
            "series": self.store.ring.series_count,
            "models": len(self.prediction.models),
            "report": {"writtenAt": self.reporter.written_at, "problem": self.reporter.problem},
            "topology": {"problem": self.topology.problem, "annotations": self.topology.annotations},
            **({"handOver": self.hand_over} if self.hand_over else {}),
        }
        return with_components(answer, told_by(self._late, self.node_name))

    def status(self) -> dict[str, Any]:
        """Return the table of pods that `kubetide node status` shows."""
        return node_status(
            self.node_name, self.store.ring, self.prediction.models, self.pods.states(), now=self.clock.now()
        )
