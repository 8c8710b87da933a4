"""What a user can get wrong on the command line: one line that names it, an exit code, and never a traceback."""

import socket
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from kubetide.cli.main import VERBS, run_cli

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: x
"""
SCENARIO = str(resources.files("kubetide.embedded.sim.scenarios") / "webshop.yaml")


@pytest.fixture(autouse=True)
def unreachable_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty directory, with a kubeconfig that leads nowhere."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    kubeconfig.chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def taken() -> Iterator[str]:
    """Hold a port."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        yield str(held.getsockname()[1])


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the last line on standard error, after making sure that nothing there is a traceback."""
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["up", "--port", "TAKEN"], id="up"),
        pytest.param(["up", "--sim", SCENARIO, "--port", "TAKEN"], id="up-sim"),
        pytest.param(["up", "--sim", SCENARIO, "--port", "0", "--agents", "--agents-port", "TAKEN"], id="agents"),
        pytest.param(["demo", "--plain", "--http", "--port", "TAKEN"], id="demo"),
        pytest.param(["demo", "--plain", "--http", "--port", "0", "--status-port", "TAKEN"], id="demo-status"),
        pytest.param(["run", "hpa", "--listen", "127.0.0.1:TAKEN"], id="run"),
    ],
)
def test_a_taken_port_is_named_in_one_line(words: list[str], taken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([word.replace("TAKEN", taken) for word in words]) == 1
    assert last_line(capsys) == f"kubetide: cannot listen on 127.0.0.1:{taken}: Address already in use"


MISTAKES = [
    (["replay", "--stdio", "usage", "--policy", "crystal-ball"], "crystal-ball"),
    (["compat", "nonsense"], "nonsense"),
    (["up", "--data", "/proc/nowhere"], "/proc/nowhere"),
    (["up", "--port", "0", "--kubeconfig", "/proc/nowhere"], "/proc/nowhere"),
    (["up", "--port", "0", "--audit", "/proc/nowhere/log"], "/proc/nowhere/log"),
    (["up", "--event-ttl", "soon"], "soon"),
    (["up", "--feature-gates", "Nonsense=true"], "Nonsense"),
    (["up", "--host", "192.0.2.1", "--allow-remote"], "192.0.2.1"),
    (["up", "--speed", "0"], "--speed"),
    (["demo", "--duration", "long"], "long"),
    (["demo", "--scenario", "/etc/hostname"], "hostname"),
    (["demo", "--speed", "fast"], "fast"),
    (["run", "nothing"], "nothing"),
    (["run", "hpa", "--listen", "here"], "here"),
    (["run", "hpa", "--config", "/nowhere"], "/nowhere"),
    (["run", "hpa", "--kubeconfig", "/nowhere"], "/nowhere"),
    (["explain", "hpa", "web", "--address", "::nonsense::"], "::nonsense::"),
    (["explain", "vpa", "web"], "127.0.0.1:1"),
    (["explain", "service", "web"], "service"),
    (["check", "nothing"], "nothing"),
    (["doctor", "nothing"], "nothing"),
    (["doctor", "-o", "nothing"], "nothing"),
    (["verdicts", "nothing"], "nothing"),
    (["run", "hpa", "-n"], "-n"),
    (["run", "hpa", "--dry-run", "-o", "nothing"], "nothing"),
    (["run", "hpa", "--dry-run=perhaps"], "perhaps"),
    (["run", "hpa", "--dry-run", "--compare"], "--compare"),
    (["run", "admission", "--dry-run"], "admission"),
    (["run", "slo", "--compare"], "slo"),
    (["run", "hpa", "--once"], "--once"),
    (["run", "hpa", "-o", "json"], "-o"),
    (["run", "hpa", "--status-port", "here"], "here"),
    (["run", "hpa", "--status-port", "70000"], "70000"),
    (["node", "--once"], "--once"),
    (["node", "--compare"], "--compare"),
    (["node", "--dry-run", "--cgroup-root-dir=/nowhere"], "/nowhere"),
    (["node", "-o"], "-o"),
    (["node", "status", "--node", "nowhere"], "nowhere"),
    (["node", "audit", "--node", "nowhere"], "nowhere"),
    (["manifests", "colocation", "--dry-run"], "colocation"),
    (["manifests", "slo", "--dry-run", "--slo-webhook"], "--slo-webhook"),
    (["doctor", "-o", "xml"], "xml"),
    (["explain", "hpa", "web", "--since", "soon"], "soon"),
    (["explain", "hpa", "web", "-A"], "-A"),
    (["verdicts", "--format", "xml"], "xml"),
    (["manifests", "nothing"], "nothing"),
    (["manifests", "slo", "--watch-namespace", "team"], "--watch-namespace"),
    (["uninstall", "--kubeconfig", "/nowhere"], "/nowhere"),
    (["settings", "nothing"], "nothing"),
    (["completion", "tcsh"], "tcsh"),
    (["node"], "NODE_NAME"),
    (["node", "--cgroup-root-dir=/nowhere"], "/nowhere"),
    (["node", "--feature-gates=Nonsense=true"], "Nonsense"),
    (["node", "status", "--address", "127.0.0.1:1"], "127.0.0.1:1"),
    (["node", "audit", "--address", "127.0.0.1:1"], "127.0.0.1:1"),
    (["node", "audit", "--directory", "/nowhere"], "/nowhere"),
    (["runtime-proxy", "--hook-config", "/proc/nowhere"], "/proc/nowhere"),
    (["dashboard", "--host", "0.0.0.0"], "0.0.0.0"),
    (["top", "-o", "json"], "--once"),
    (["plot", "shop/web", "--since", "soon"], "soon"),
    (["recommend", "--estimator", "guess"], "guess"),
    (["enable", "shop", "--mode", "sometimes"], "sometimes"),
    (["record", "-o", "x.tide", "--live", "soon"], "soon"),
    (["simulate", "/nowhere.yaml"], "/nowhere.yaml"),
    (["simulate", "webshop", "--slo", "soon"], "soon"),
    (["simulate", "hpa", "shop/web", "--load", "zigzag:base=1"], "zigzag"),
    (["tune", "/nowhere.tide"], "/nowhere.tide"),
    (["version", "now"], "now"),
]


@pytest.mark.parametrize(("words", "named"), [pytest.param(*case, id=" ".join(case[0])) for case in MISTAKES])
def test_a_bad_value_is_named_without_a_traceback(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(words) in (1, 2)
    assert named in last_line(capsys)


def test_every_verb_is_tried_with_a_bad_value() -> None:
    assert {case[0][0] for case in MISTAKES} == set(VERBS)
