"""`kubetide runtime-proxy`: stand between kubelet and container runtime and let hook servers change requests."""

import asyncio
import signal
from importlib.util import find_spec
from pathlib import Path

import click

from kubetide.cli.main import Invocation
from kubetide.errors import SettingsError

CONTAINERD = "Containerd"


@click.command("runtime-proxy", short_help="Stand between the kubelet and the container runtime.")
@click.option(
    "--koord-runtimeproxy-endpoint",
    "endpoint",
    type=click.Path(path_type=Path),
    default=Path("/var/run/koord-runtimeproxy/runtimeproxy.sock"),
    show_default=True,
    help="Socket that the kubelet is given.",
)
@click.option(
    "--remote-runtime-service-endpoint",
    "backend",
    type=click.Path(path_type=Path),
    default=Path("/var/run/containerd/containerd.sock"),
    show_default=True,
    help="Socket of the container runtime.",
)
@click.option(
    "--backend-runtime-mode", "mode", default=CONTAINERD, show_default=True, help="Containerd: any CRI runtime."
)
@click.option(
    "--runtime-hook-server-key",
    "skip_key",
    default="runtimeproxy.koordinator.sh/skip-hookserver",
    show_default=True,
    help="Pods with this label are left alone ...",
)
@click.option("--runtime-hook-server-val", "skip_value", default="true", show_default=True, help="... at this value.")
@click.option(
    "--hook-config",
    type=click.Path(path_type=Path),
    default=Path("/etc/runtime/hookserver.d"),
    show_default=True,
    help="Directory of the hook servers' registrations.",
)
@click.pass_obj
def command(
    invocation: Invocation, endpoint: Path, backend: Path, mode: str, skip_key: str, skip_value: str, hook_config: Path
) -> None:
    """Serve the container runtime interface and pass it on, with hooks."""
    if mode != CONTAINERD:
        raise SettingsError(f"runtime mode {mode!r} is not supported: only {CONTAINERD}", field="backend-runtime-mode")
    if find_spec("grpc") is None:
        raise SettingsError("the proxy needs the extra agent: pip install 'kubetide[agent]'")
    invocation.configure_logging()
    hook_config.mkdir(parents=True, exist_ok=True, mode=0o755)
    asyncio.run(_serve(endpoint, backend, (skip_key, skip_value), hook_config))


async def _serve(endpoint: Path, backend: Path, skip: tuple[str, str], hook_config: Path) -> None:
    from kubetide.node.runtime.proxy import RuntimeProxy
    from kubetide.node.runtime.proxy_config import HookDirectory

    proxy = RuntimeProxy(endpoint=endpoint, backend=backend, directory=HookDirectory(hook_config), skip_label=skip)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(proxy.run())
        stop = group.create_task(stopping.wait())
        await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        serving.cancel()
