"""The agent without the extra `agent`: it starts where no container runtime waits for its hooks, and says so."""

import sys
from pathlib import Path

import pytest

from kubetide.cli.main import Invocation
from kubetide.cli.node import runtime_proxy
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.kube.control.manager import Component
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry
from simulated.cluster import run

INSTALL = r"extra agent: pip install 'kubetide\[agent\]'"


@pytest.fixture(autouse=True)
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kubetide.node.runtime.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("grpc", "google"):
        monkeypatch.setitem(sys.modules, name, None)


def modules(config_path: str) -> list[str]:
    async def main(cluster: SimCluster) -> list[str]:
        host = cluster.hosts["node-1"]
        made: list[Component] = []

        def modules(agent: NodeAgent) -> list[Component]:
            made.extend(make_modules(agent))
            return made

        settings = NodeSettings(node_name="node-1", audit_log_dir="", runtime_hooks_config_path=config_path)
        layout = Layout(version=host.version, paths=host.paths)
        client, clock = cluster.client(), cluster.clock
        NodeAgent(client, clock, settings, host, Telemetry(), layout=layout, commands=host, modules=modules)
        return [module.name for module in made]

    return run(main, nodes=1)


def test_it_acts_without_hooks_where_none_is_waited_for(tmp_path: Path) -> None:
    assert "qos" in modules(str(tmp_path / "missing"))


def test_it_names_the_extra_where_a_runtime_waits(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=INSTALL):
        modules(str(tmp_path))


def test_the_proxy_names_the_extra(tmp_path: Path) -> None:
    callback = runtime_proxy.command.callback
    assert callback is not None
    with (
        pytest.raises(SettingsError, match=INSTALL),
        runtime_proxy.command.make_context("runtime-proxy", ["--hook-config", str(tmp_path)], obj=Invocation()) as ctx,
    ):
        runtime_proxy.command.invoke(ctx)
