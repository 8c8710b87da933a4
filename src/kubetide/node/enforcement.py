"""What the agent does beyond seeing: QoS strategies, evictions and runtime hooks, put together for one agent.

    modules = make_modules(agent)      ->  events, strategies, hook reconciler [, NRI plugin] [, hook server]

The parts that need sockets of this machine are left out in simulation.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from kubetide.errors import SettingsError
from kubetide.kube.control.manager import Component
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.node.agent import NodeAgent
from kubetide.node.core.evictions.evictors import CpuEvict, MemoryEvict
from kubetide.node.core.evictions.features import CPU_FEATURES, MEMORY_FEATURES
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import CORE_SCHED, RESCTRL, Plugins
from kubetide.node.core.hooks.stages import Stage, failure_policy
from kubetide.node.core.plan import Eviction
from kubetide.node.core.qos.blkio import BlkIo
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.extensions import GROUP, Extension, Extensions, Factory, switched_on
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.resctrl import Resctrl
from kubetide.node.core.qos.share_control import ShareControl
from kubetide.node.core.qos.share_target import BadTarget, ShareTarget, parse_target
from kubetide.node.core.qos.strategy import Strategy
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.qos.system import SystemConfig
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.executor.evictor import NodeEvictor
from kubetide.node.hook_reconciler import HookReconciler
from kubetide.node.host.readers import CgroupReader
from kubetide.node.kernel_reader import KernelReader
from kubetide.node.runtime.core_sched import PrctlCookies, enable_core_sched
from kubetide.node.runtime.resctrl import ResctrlFilesystem
from kubetide.node.runtime.terway import GATE as TERWAY_QOS
from kubetide.node.runtime.terway import TerwayFiles
from kubetide.node.runtime.traffic import GATE as TC_QOS
from kubetide.node.runtime.traffic import TrafficShaper
from kubetide.node.sample_stream import SampleStream
from kubetide.node.settings import NodeSettings
from kubetide.node.state.callbacks import News
from kubetide.node.strategy_runner import QosController

log = get_logger("node")

COMPONENT = "kubetide-node"


def make_strategies(
    settings: NodeSettings, agent: NodeAgent, rng: random.Random, extensions: Extensions
) -> list[Strategy]:
    """Return all strategies with their intervals, those of extensions last."""
    reconcile = timedelta(seconds=settings.reconcile_interval_seconds)
    cpu_evict = [feature for feature in CPU_FEATURES if agent.gates[feature]]
    memory_evict = [feature for feature in MEMORY_FEATURES if agent.gates[feature]]
    evictors: list[Strategy] = []
    if cpu_evict:
        evictors.append(
            CpuEvict(
                agent.clock.now(),
                interval=timedelta(seconds=settings.cpu_evict_interval_seconds),
                cool=timedelta(seconds=settings.cpu_evict_cool_time_seconds),
                features=cpu_evict,
            )
        )
    if memory_evict:
        evictors.append(
            MemoryEvict(
                interval=timedelta(seconds=settings.memory_evict_interval_seconds),
                cool=timedelta(seconds=settings.memory_evict_cool_time_seconds),
                features=memory_evict,
            )
        )
    return [
        CpuSuppress(
            interval=timedelta(seconds=settings.cpu_suppress_interval_seconds),
            share=ShareControl(best_effort_target(settings), settings.best_effort_max_percent),
        ),
        CpuBurst(Limiters(rng.random), interval=reconcile, extensions=extensions),
        *evictors,
        MemoryQos(interval=reconcile, extensions=extensions),
        BlkIo(interval=reconcile),
        Resctrl(interval=reconcile),
        SystemConfig(interval=reconcile),
        *extensions.strategies(),
    ]


def best_effort_target(settings: NodeSettings) -> ShareTarget | None:
    """Return the target that the threshold of CPU suppress follows, if there is one; raise SettingsError."""
    try:
        return parse_target(settings.best_effort_target)
    except BadTarget as error:
        raise SettingsError(str(error), field="best-effort-target") from error


def installed_extensions() -> dict[str, Factory]:
    """Return the extensions that installed packages offer; none is imported before it is switched on."""
    return {point.name: partial(_load, point) for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> Extension:
    make: Factory = point.load()
    return make()


def make_modules(
    agent: NodeAgent,
    *,
    sockets: bool = True,
    rng: random.Random | None = None,
    extensions: Mapping[str, Factory] | None = None,
) -> Sequence[Component]:
    """Return the acting parts of an agent; without `sockets` those that talk to a container runtime are left out.

    `extensions` are those that --qos-extension-plugins may name; by default the ones that are installed.
    """
    settings = agent.settings
    chosen = switched_on(settings.qos_extension_plugins, installed_extensions() if extensions is None else extensions)
    recorder = EventRecorder(agent.client, clock=agent.clock, component=COMPONENT, instance=agent.node_name)
    evictor = NodeEvictor(
        agent.client,
        clock=agent.clock,
        node_name=agent.node_name,
        publish=recorder.publish,
        telemetry=agent.telemetry,
        audit=agent.audit,
        stop_containers=container_stopper(agent) if sockets else None,
    )
    gates = {**agent.gates, **agent.hook_gates}

    def snapshot() -> Snapshot:
        return replace(agent.snapshot(), gates=gates, evicted=evictor.evicted())

    resctrl = ResctrlFilesystem(agent.layout, agent.clock)
    read = KernelReader(agent.host, agent.layout).read
    strategies = QosController(
        make_strategies(settings, agent, rng or random.Random(), chosen),
        snapshot=snapshot,
        read=read,
        executor=agent.executor,
        evictor=evictor,
        clock=agent.clock,
        telemetry=agent.telemetry,
        node_name=agent.node_name,
        gates=gates,
        collect_interval=agent.collect_interval,
        prepare={"resctrl": resctrl.prepare} if sockets else None,
        kernel=agent.kernel,
    )
    plugins = Plugins(
        gates=gates,
        policy=failure_policy(settings.runtime_hooks_plugin_failure_policy),
        disabled=_stages(settings.runtime_hooks_disable_stages),
        bvt_ready=False,
        compat=agent.compat,
        keep_quota=settings.disable_unset_cpu_quota,
    )
    hooks = HookReconciler(
        HookDecider(plugins),
        snapshot=snapshot,
        read=read,
        kernel=agent.kernel,
        executor=agent.executor,
        clock=agent.clock,
        telemetry=agent.telemetry,
        node_name=agent.node_name,
        cookies=_cookies(agent) if sockets and gates.get(CORE_SCHED, False) else None,
        interval=settings.runtime_hooks_reconcile_interval,
    )
    for news in News:
        agent.callbacks.register(news, hooks.name, hooks.wake)
    modules: list[Component] = [recorder, strategies, hooks]
    if sockets and gates[TERWAY_QOS]:
        directory = Path("/var/lib/terway/qos" if settings.host_mode else "/host-var-lib/terway/qos")
        modules.append(TerwayFiles(directory, snapshot, agent.disk))
    if agent.commands is not None and gates[TC_QOS]:
        modules.append(
            TrafficShaper(
                snapshot,
                host=agent.host,
                commands=agent.commands,
                executor=agent.executor,
                kernel=agent.kernel,
                disk=agent.disk,
                node_name=agent.node_name,
            )
        )
    if sockets and settings.metrics_stream:
        modules.append(
            SampleStream(
                agent.client,
                agent.clock,
                settings,
                agent.telemetry,
                CgroupReader(agent.host, agent.layout),
                agent.kernel,
                agent.pods.states,
                lambda: agent.store.view(agent.clock.now, agent.collect_interval),
            )
        )
    if sockets:
        modules += _runtime_modules(agent, plugins, resctrl if gates[RESCTRL] else None)
    return modules


def _runtime_modules(agent: NodeAgent, plugins: Plugins, resctrl: ResctrlFilesystem | None) -> list[Component]:
    """Return the ways in for container runtimes; gRPC and protobuf are needed only here."""
    settings = agent.settings
    if not has_extra():
        _do_without_extra(agent)
        return []
    from kubetide.node.runtime.hook_server import HookServer
    from kubetide.node.runtime.hook_service import HookService
    from kubetide.node.runtime.nri import NriPlugin

    service = HookService(
        plugins,
        agent.executor,
        agent.layout,
        default_runtime=settings.default_runtime_type,
        kernel=agent.kernel,
        resctrl=resctrl,
        telemetry=agent.telemetry,
        clock=agent.clock,
    )
    modules: list[Component] = []
    if settings.enable_nri_runtime_hook:
        modules.append(
            NriPlugin(
                service,
                Path(agent.layout.var_run_root) / settings.runtime_hooks_nri_socket_path,
                name=settings.runtime_hooks_nri_plugin_name,
                index=settings.runtime_hooks_nri_plugin_index,
                backoff=Backoff(
                    base=settings.runtime_hooks_nri_backoff_duration.total_seconds(),
                    factor=settings.runtime_hooks_nri_backoff_factor,
                    cap=settings.runtime_hooks_nri_backoff_cap.total_seconds(),
                ),
                good_after=settings.runtime_hooks_nri_connect_timeout.total_seconds(),
            )
        )
    config = Path(settings.runtime_hooks_config_path)
    if settings.runtime_hooks_config_path and config.is_dir():
        if settings.runtime_hooks_network != "unix":
            raise SettingsError("the hook server is served on unix sockets only", field="runtime-hooks-network")
        modules.append(
            HookServer(
                service,
                socket=Path(settings.runtime_hooks_addr),
                host_endpoint=settings.runtime_hooks_host_endpoint,
                config_directory=config,
                failure_policy=failure_policy(settings.runtime_hooks_failure_policy),
            )
        )
    return modules


def has_extra() -> bool:
    """Whether the packages are installed that talking to a container runtime takes."""
    return all(find_spec(name) is not None for name in ("grpc", "google"))


def _do_without_extra(agent: NodeAgent) -> None:
    """Report what is missing; raise where a runtime waits for this agent's hooks, for they would silently not act."""
    settings = agent.settings
    wanted = [Path(settings.runtime_hooks_config_path)] if settings.runtime_hooks_config_path else []
    if settings.enable_nri_runtime_hook:
        wanted.append(Path(agent.layout.var_run_root) / "nri/nri.sock")
    if found := [path for path in wanted if path.exists()]:
        raise SettingsError(f"runtime hooks ({found[0]}) need the extra agent: pip install 'kubetide[agent]'")
    log.warning("no runtime hooks, no stopping of containers at once", missing="pip install 'kubetide[agent]'")


def container_stopper(agent: NodeAgent) -> Callable[[Eviction], Awaitable[None]] | None:
    """Return what stops the containers of an evicted pod; with --only-evict-by-api nothing ever does."""
    if agent.settings.only_evict_by_api or not has_extra():
        return None
    from kubetide.node.runtime.stopper import ContainerStopper

    stopper = ContainerStopper(Path(agent.layout.var_run_root))

    async def stop(eviction: Eviction) -> None:
        pod = agent.snapshot().pod(eviction.uid)
        if pod is not None:
            await stopper.stop(pod)

    return stop


def _cookies(agent: NodeAgent) -> PrctlCookies | None:
    kernel = PrctlCookies()
    if enable_core_sched(agent.host, agent.layout) or kernel.usable():
        return kernel
    log.warning("no core scheduling on this machine: the gate CoreSched sets cpu.idle only")
    return None


def _stages(names: tuple[str, ...]) -> frozenset[Stage]:
    known = {str(stage): stage for stage in Stage}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SettingsError(f"unknown stage {unknown[0]!r}", field="runtime-hooks-disable-stages")
    return frozenset(known[name] for name in names)
