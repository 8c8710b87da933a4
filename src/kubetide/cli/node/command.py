"""`kubetide node`: the agent of one node; `kubetide node status`: what it sees.

The flags are those of the upstream agent, in Go's syntax. Flags that mean nothing here are accepted and named once.
"""

import asyncio
import importlib
import os
import random
from functools import partial
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from kubetide import tracing
from kubetide.cli.completion import Known, complete_flag, complete_value
from kubetide.cli.dry_run import Report
from kubetide.cli.go_flags import asks_for_help, describe_flags, take_globals
from kubetide.cli.main import Invocation, accept_globals
from kubetide.cli.run import dry_form, run_until_signal
from kubetide.cli.settings_file import read_process
from kubetide.clock import SystemClock
from kubetide.config import load, options
from kubetide.errors import SettingsError
from kubetide.flags import parse_flags
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.settings import KubeSettings
from kubetide.kube.control.manager import Manager
from kubetide.log import get_logger
from kubetide.node.core.features import HOOK_GATES, parse_gates, unsupported
from kubetide.node.settings import IGNORED_FLAGS, NodeSettings, PodSource
from kubetide.settings import ProcessSettings
from kubetide.telemetry import Telemetry
from kubetide.wiring import connection_limits, parse_address

log = get_logger("node")

_SUBCOMMANDS = {
    "status": ("kubetide.cli.node.status", "Pods by QoS class with usage, limits, throttling, pressure, predictions."),
    "audit": ("kubetide.cli.node.audit", "What the agent wrote and whom it evicted."),
}
_MOUNTED_ROOTS = {
    "cgroup_root_dir": "/host-cgroup/",
    "sys_root_dir": "/host-sys/",
    "sys_fs_root_dir": "/host-sys-fs/",
    "var_run_root_dir": "/host-var-run/",
    "run_root_dir": "/host-run/",
    "runtime_hooks_addr": "/host-var-run-koordlet/koordlet.sock",
    "runtime_hooks_config_path": "/host-etc-hookserver/",
}
_DEFAULT_QPS, _DEFAULT_BURST = 20.0, 30


class _AgentGroup(click.Group):
    """Runs a subcommand if the first word names one; everything else is flags of the agent."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in _SUBCOMMANDS:
            return super().parse_args(ctx, args)
        ctx.meta["kubetide.flags"] = tuple(args)
        return super().parse_args(ctx, [])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return complete_flag(known_flags(), incomplete)
        flags: tuple[str, ...] = ctx.meta.get("kubetide.flags", ())
        return complete_value(known_flags(), flags, incomplete) if flags else super().shell_complete(ctx, incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SUBCOMMANDS:
            return None
        found: click.Command = importlib.import_module(_SUBCOMMANDS[cmd_name][0]).command
        return accept_globals(found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_SUBCOMMANDS.items())])


@click.group("node", cls=_AgentGroup, invoke_without_command=True, short_help="The agent of one node.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run the agent of this node, or look at a running one.

    Flags are those of the upstream agent (--feature-gates=…, --cgroup-root-dir=…); `kubetide settings` lists them.
    """
    if ctx.invoked_subcommand is not None:
        return
    invocation: Invocation = ctx.obj or Invocation()
    flags: tuple[str, ...] = ctx.meta.get("kubetide.flags", ())
    if asks_for_help(flags):
        click.echo(ctx.get_help())
        click.echo(describe_flags(known_flags()), nl=False)
        return
    invocation, flags = take_globals(invocation, flags, known_flags())
    kept, ignored = drop_ignored(flags)
    parsed = parse_flags(kept, known_flags())
    if parsed.words:
        raise SettingsError(f"unexpected word {parsed.words[0]!r}")
    invocation.configure_logging(parsed.verbosity)
    if ignored:
        log.warning("flags without meaning here were ignored", flags=", ".join(ignored))
    given = dict(parsed.by_section["node"])
    own, file = read_process(parsed.by_section["process"], os.environ)
    settings = complete(load(NodeSettings, flags=given, env=os.environ, file=file.get("node")), dict(os.environ))
    if invocation.kubeconfig is not None:
        given.setdefault("kubeconfig", str(invocation.kubeconfig))
    if invocation.context:
        given.setdefault("context", invocation.context)
    connection = load(KubeSettings, flags=given, env=os.environ, file=file.get("kube"))
    if not connection.qps:
        connection = msgspec.structs.replace(connection, qps=_DEFAULT_QPS, burst=_DEFAULT_BURST)
    refuse_unknown_names(settings)
    if own.compare:
        raise SettingsError("is for run hpa, recommender and updater", field="flag --compare")
    if own.once and not own.dry_run:
        raise SettingsError("goes with --dry-run", field="flag --once")
    with tracing.exporting(own.tracing_endpoint, own.tracing_ratio):
        asyncio.run(_run(settings, connection, own, dry_form(invocation, own)))


def refuse_unknown_names(settings: NodeSettings) -> None:
    """Raise SettingsError for gates, extensions and targets that do not exist, before a cluster is asked."""
    from kubetide.node.core.qos.extensions import switched_on
    from kubetide.node.enforcement import best_effort_target, installed_extensions

    best_effort_target(settings)
    version = settings.version
    gates = parse_gates(settings.feature_gates, compat=version)
    hooks = parse_gates(settings.runtime_hooks, HOOK_GATES, version)
    without = [*unsupported(gates), *unsupported(hooks)]
    if without:
        log.warning("feature gates without effect here", gates="; ".join(without))
    switched_on(settings.qos_extension_plugins, installed_extensions())


def known_flags() -> Known:
    """Return the flags of the agent, of its connection and of the process."""
    return {"node": (*options(NodeSettings), *options(KubeSettings)), "process": options(ProcessSettings)}


def drop_ignored(flags: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Split off the flags of the upstream agent that mean nothing here, with their values."""
    kept: list[str] = []
    ignored: list[str] = []
    rest = list(flags)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.lstrip("-").replace("_", "-").partition("=")
        if word.startswith("-") and name in IGNORED_FLAGS:
            ignored.append(name)
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        kept.append(word)
    return kept, ignored


def complete(settings: NodeSettings, environment: dict[str, str], *, exists: Any = os.path.exists) -> NodeSettings:
    """Fill in what the surroundings say: the node's name, and the mounted roots inside a container."""
    changes: dict[str, Any] = {}
    if not settings.node_name:
        changes["node_name"] = environment.get("NODE_NAME", "")
    if environment.get("agent_mode") != "hostMode" and exists(_MOUNTED_ROOTS["cgroup_root_dir"]):
        defaults = NodeSettings()
        changes |= {
            name: mounted
            for name, mounted in _MOUNTED_ROOTS.items()
            if getattr(settings, name) == getattr(defaults, name)
        }
        changes["host_mode"] = False
    return msgspec.structs.replace(settings, **changes) if changes else settings


async def _run(settings: NodeSettings, connection: KubeSettings, own: ProcessSettings, form: str = "text") -> None:
    from kubetide.cli.node.dry_run import DryRunAgent
    from kubetide.kube.control.instruments import Instruments
    from kubetide.node.agent import NodeAgent
    from kubetide.node.endpoints import NodeEndpoints
    from kubetide.node.enforcement import make_modules
    from kubetide.node.host.linux import LinuxHost, cgroup_version
    from kubetide.node.host.worker import WorkerThread
    from kubetide.node.roots import HostUnreadable, layout_of
    from kubetide.node.runtime.nvml import open_gpus
    from kubetide.node.state.driver import find_driver

    clock = SystemClock()
    telemetry = Telemetry()
    rng = random.Random()
    instruments = Instruments(telemetry)
    client, access = connect(
        connection, clock=clock, rng=rng, observe=instruments.request, announce=instruments.of("node")
    )
    nsenter = "" if settings.host_mode else f"{settings.proc_root_dir.rstrip('/')}/1/ns/mnt"
    roots = (settings.cgroup_root_dir.rstrip("/"), settings.proc_root_dir.rstrip("/") + "/stat")
    host = LinuxHost(nsenter=nsenter, keep_open=(*roots, settings.proc_root_dir.rstrip("/") + "/meminfo"))
    kernel, disk = WorkerThread("host"), WorkerThread("disk")
    kubelet = None
    dry_run = None
    if own.dry_run:
        dry_run = DryRunAgent(Report(click.echo, clock, telemetry, form == "json"), kernel)
        client, settings = dry_run.client(client), dry_run.settings(settings)
    try:
        await _check_identity(client, settings)
        try:
            version = await kernel.call(partial(cgroup_version, settings.cgroup_root_dir), "looking at the cgroups")
            layout = layout_of(settings, version=version)
        except OSError as error:
            raise HostUnreadable(f"no cgroups at {settings.cgroup_root_dir}: {error.strerror}") from error
        if not settings.cgroup_driver and settings.node_name:
            driver = await find_driver(client, clock, host, layout, settings.node_name, kernel)
            settings = msgspec.structs.replace(settings, cgroup_driver=str(driver))
        kubelet = await _kubelet(client, access, settings)
        gates = parse_gates(settings.feature_gates, compat=settings.version)
        gpus = open_gpus if gates["Accelerators"] else lambda: None

        def made() -> NodeAgent:
            return NodeAgent(
                client,
                clock,
                settings,
                host if dry_run is None else dry_run.host(host),
                telemetry,
                layout=layout,
                commands=host,
                kubelet=kubelet,
                gpus=gpus(),
                modules=make_modules if dry_run is None else dry_run.modules,
                kernel=kernel,
                disk=disk,
                inotify=True,
                auditor=dry_run,
            )

        # Which collectors and modules there are depends on what the host has, so they are made where it is read.
        agent = await kernel.call(made, "looking at the host")
        await kernel.call(agent.check_host, "looking at the host")
        address, port = parse_address(settings.addr)
        endpoints = NodeEndpoints(
            telemetry,
            audit=agent.audit if agent.gates["AuditEventsHTTPHandler"] else None,
            healthy=agent.healthy,
            ready=agent.ready,
            explain=agent.explain,
            notes=agent.notes,
            host=address,
            port=port,
            explain_token=own.explain_token,
            limits=connection_limits(own),
        )
        manager = Manager(name="node")
        manager.add(endpoints, wait_ready=True)
        manager.add(agent)
        if dry_run is None:
            await run_until_signal(manager)
        else:
            done = partial(dry_run.decided, agent) if own.once else None
            await run_until_signal(manager, done=done, stopping=dry_run.stop)
    finally:
        if kubelet is not None:
            await kubelet.close()
        ended = [await worker.close() for worker in (kernel, disk)]
        if ended[0]:
            host.close()
        await client.close()


async def _check_identity(client: Client, settings: NodeSettings) -> None:
    """Raise if the API server does not let this agent in; that it cannot be reached now is no reason to give up."""
    from kubetide.api.objects.scheme import NODES
    from kubetide.errors import KubetideError
    from kubetide.kube.client.errors import Forbidden, Unauthorized

    if not settings.node_name:
        return
    try:
        await client.get_raw(NODES, settings.node_name)
    except (Unauthorized, Forbidden):
        raise
    except KubetideError as error:
        log.info("node not read yet", node=settings.node_name, error=str(error))


async def _kubelet(client: Client, access: Access, settings: NodeSettings) -> Any:
    """Return the kubelet to ask for pods, or None for the API server; the choice stays for the life of the process."""
    from kubetide.api.objects.scheme import NODES
    from kubetide.errors import KubetideError
    from kubetide.kube.client.http import HttpTransport
    from kubetide.kube.client.tls import ServerTrust
    from kubetide.node.state.kubelet import HttpKubelet, kubelet_address, kubelet_port

    if settings.pod_source is PodSource.API_SERVER or not settings.node_name:
        return None
    try:
        node = await client.get_raw(NODES, settings.node_name)
        address = kubelet_address(node, settings.kubelet_preferred_address_type)
        if address is None:
            raise SettingsError(f"the node has no {settings.kubelet_preferred_address_type} address")
        if settings.kubelet_insecure_tls:
            server = f"http://{address}:{settings.kubelet_read_only_port}"
        else:
            server = f"https://{address}:{kubelet_port(node)}"
        target = Access(server=server, trust=ServerTrust(insecure=True), credentials=access.credentials)
        kubelet = HttpKubelet(HttpTransport(target), settings.kubelet_sync_timeout.total_seconds())
        try:
            await kubelet.pods()
        except KubetideError:
            await kubelet.close()
            raise
    except KubetideError as error:
        if settings.pod_source is PodSource.KUBELET:
            raise
        log.info("kubelet not used, pods come from the API server", reason=str(error))
        return None
    log.info("pods come from the kubelet", server=server)
    return kubelet
