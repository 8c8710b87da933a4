"""The command line: verbs, exit codes, lazy imports."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete, shell_complete

from kubetide import __version__
from kubetide.cli.main import EXIT_FAILED, EXIT_USAGE, VERBS, cli, run_cli, tell_group
from kubetide.cli.run import read_flags
from kubetide.errors import SettingsError
from kubetide.install.objects import COMPONENTS as INSTALLED
from kubetide.settings import SECTIONS
from kubetide.wiring import parse_address, parse_names


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_version_imports_nothing_heavy() -> None:
    code = "import sys; from kubetide.cli.main import run_cli; run_cli(['version']); print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    for heavy in ("aiohttp", "numpy", "yaml", "cryptography", "msgspec", "rich"):
        assert f"'{heavy}'" not in out


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_helps(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([verb, "--help"]) == 0
    assert "Usage: kubetide" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["run", "hpa", "--help"], "--horizontal-pod-autoscaler-sync-period", id="run"),
        pytest.param(["run", "hpa", "-h"], "--horizontal-pod-autoscaler-sync-period", id="run-short"),
        pytest.param(["run", "hpa,slo", "--workers", "3", "-h"], "Flags of slo", id="run-behind-other-flags"),
        pytest.param(["node", "-h"], "--cgroup-root-dir", id="node"),
        pytest.param(["node", "--addr=:1", "--help"], "--cgroup-root-dir", id="node-behind-other-flags"),
        pytest.param(["manifests", "-h"], "--replicas", id="any-verb"),
    ],
)
def test_help_stands_anywhere_and_shows_the_flags(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(words) == 0
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["check", "manifests", "settings"])
def test_help_names_every_choice(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([verb, "--help"]) == 0
    told = capsys.readouterr().out
    choices = SECTIONS if verb == "settings" else INSTALLED
    assert all(choice in told for choice in choices)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["completion", shell]) == 0
    assert "_KUBETIDE_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        pytest.param([], "ma", ["manifests"], id="a-verb"),
        pytest.param(["check"], "s", ["slo"], id="a-component"),
        pytest.param(["run"], "up", ["updater"], id="the-first-of-a-list"),
        pytest.param(
            ["run"],
            "hpa,",
            [
                "hpa,recommender",
                "hpa,updater",
                "hpa,admission",
                "hpa,policy",
                "hpa,plan",
                "hpa,slo",
                "hpa,colocation",
                "hpa,metrics",
            ],
            id="the-next",
        ),
        pytest.param(["run"], "al", ["all"], id="all"),
        pytest.param(["explain"], "h", ["hpa"], id="a-kind"),
        pytest.param(["explain", "hpa", "web"], "--rec", ["--recompute"], id="an-option"),
        pytest.param(["run", "slo"], "--grad", ["--gradual-release"], id="a-flag-of-the-component"),
        pytest.param(["run", "hpa"], "--grad", [], id="not-of-another-component"),
        pytest.param(["run", "slo", "--workers", "3"], "--growth", ["--growth-limit-percent"], id="after-other-flags"),
        pytest.param(["run", "hpa,slo"], "-slo.grad", ["--slo.gradual-release"], id="with-its-component"),
        pytest.param(["run", "slo"], "--growth_l", ["--growth-limit-percent"], id="underscores"),
        pytest.param(["run", "slo"], "--rest-config-q", ["--rest-config-qps"], id="another-name-if-nothing-else-fits"),
        pytest.param(["run", "slo"], "--kubeconf", ["--kubeconfig"], id="a-flag-of-the-connection"),
        pytest.param(["run", "nonsense"], "--grad", [], id="an-unknown-component"),
        pytest.param(["run", "slo", "--gradual-release", "="], "f", ["false"], id="a-value-behind-an-equals-sign"),
        pytest.param(["run", "slo", "--gradual-release"], "", [], id="a-switch-needs-no-value"),
        pytest.param(["run", "slo", "--kubeconfig"], "/et", ["/et"], id="a-file"),
        pytest.param(["node"], "--cgroup-ro", ["--cgroup-root-dir"], id="a-flag-of-the-agent"),
        pytest.param(["node"], "sta", ["status"], id="a-subcommand-of-the-agent"),
        pytest.param(["node", "--kubeconfig"], "", [""], id="a-file-for-the-agent"),
    ],
)
def test_the_shell_completes_verbs_components_and_options(
    words: list[str], incomplete: str, offered: list[str]
) -> None:
    completer = ShellComplete(cli, {}, "kubetide", "_KUBETIDE_COMPLETE")
    assert [found.value for found in completer.get_completions(words, incomplete)] == offered


@pytest.mark.parametrize(("shell", "told"), [("bash", False), ("zsh", True), ("fish", True)])
def test_each_shell_gets_flags_in_its_own_form(
    shell: str, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["kubetide", "run", "slo", "--gradual"]
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words) - 1))
    assert shell_complete(cli, {}, "kubetide", "_KUBETIDE_COMPLETE", f"{shell}_complete") == 0
    printed = capsys.readouterr().out
    assert "--gradual-release" in printed
    assert ("high-priority pod" in printed) is told, "bash shows no descriptions"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param(["no-such-verb"], EXIT_USAGE, "No such command", id="unknown-verb"),
        pytest.param(["run", "scaler"], EXIT_USAGE, "unknown component 'scaler'", id="unknown-component"),
        pytest.param(["run", "hpa", "--sync-peroid=1s"], EXIT_USAGE, "did you mean", id="unknown-flag"),
        pytest.param(["run", "hpa", "--sync-period=soon"], EXIT_USAGE, "sync-period", id="bad-value"),
        pytest.param(
            ["--kubeconfig", "/does/not/exist", "run", "hpa"], EXIT_USAGE, "/does/not/exist", id="missing-kubeconfig"
        ),
    ],
)
def test_errors_are_one_line_with_an_exit_code(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(arguments) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def test_what_keeps_a_process_from_starting_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    given = ["--kubeconfig", str(kubeconfig), "run", "slo", "--health-probe-addr="]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_cli([*given, f"--metrics-addr=127.0.0.1:{port}"]) == EXIT_FAILED
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("kubetide: ")
    assert str(port) in said[-1]
    webhook = ["--feature-gates=ConfigMapValidatingWebhook=true", f"--webhook-cert-dir={tmp_path}"]
    assert run_cli([*given, "--metrics-addr=127.0.0.1:0", *webhook]) == EXIT_FAILED
    text = capsys.readouterr().err
    assert f"kubetide: cannot read {tmp_path}/tls.crt" in text
    assert "Traceback" not in text


def test_a_fault_of_our_own_is_not_hidden() -> None:
    with pytest.raises(ExceptionGroup):
        tell_group(ExceptionGroup("all", [OSError("outside"), ExceptionGroup("some", [ValueError("ours")])]))


def test_flags_of_the_connection_belong_to_every_component() -> None:
    parsed = read_flags(("hpa", "updater"), ("--kube-api-qps=7", "--updater.kube-api-burst=9", "--listen=:1"))
    assert parsed.by_section["hpa"] == {"kube-api-qps": "7"}
    assert parsed.by_section["updater"] == {"kube-api-qps": "7", "kube-api-burst": "9"}
    assert parsed.by_section["process"] == {"listen": ":1"}


def test_names_and_addresses_are_checked() -> None:
    assert parse_names("all")[0] == "hpa"
    assert parse_names("hpa, slo") == ("hpa", "slo")
    assert parse_address(":8080") == ("0.0.0.0", 8080)
    assert parse_address("127.0.0.1:9") == ("127.0.0.1", 9)
    for text in ("8080", ":x", ":70000"):
        with pytest.raises(SettingsError):
            parse_address(text)
    for text in ("", "hpa,hpa"):
        with pytest.raises(SettingsError):
            parse_names(text)


@pytest.mark.parametrize(("typed", "meant"), [("explian", "explain"), ("chek", "check"), ("setings", "settings")])
def test_a_mistyped_verb_gets_a_suggestion(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([typed]) == EXIT_USAGE
    assert f"Did you mean {meant}?" in capsys.readouterr().err


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--version"]) == 0
    assert capsys.readouterr().out == f"kubetide {__version__}\n"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["version", "-o", "json"], {"kubetide": __version__}),
        (["settings", "hpa", "-o", "json"], {"name": "sync_period", "section": "hpa", "default": "15s"}),
        (["check", "hpa", "-o", "json"], {"kind": "cluster", "id": "server-unreachable", "severity": "unknown"}),
        (["doctor", "hpa", "-o", "json"], {"kind": "cluster", "remedy": "kubectl cluster-info"}),
    ],
)
def test_what_is_printed_for_people_is_printed_for_programs_too(
    words: list[str],
    part: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    kubeconfig.chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    run_cli(words)
    told = json.loads(capsys.readouterr().out)
    rows = told if isinstance(told, list) else [told]
    assert any(part.items() <= row.items() for row in rows)


@pytest.mark.parametrize("verb", [["explain", "hpa", "web"], ["check", "hpa"]])
@pytest.mark.parametrize("option", [["--kubeconfig", "/nowhere"], ["--context", "nowhere"]])
@pytest.mark.parametrize("behind", [False, True])
def test_options_about_the_cluster_stand_before_or_behind_the_verb(
    verb: list[str],
    option: list[str],
    behind: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    kubeconfig.chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert run_cli([*verb, *option] if behind else [*option, *verb]) == EXIT_USAGE
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-n", "shop", "explain", "hpa", "web"], ["explain", "hpa", "web", "-n", "shop"]])
def test_the_namespace_stands_before_or_behind_the_verb(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def get_json(address: str, path: str, **_: object) -> dict[str, str]:
        asked.append(path)
        return {"told": "all"}

    monkeypatch.setattr("kubetide.cli.explain.numbers.get_json", get_json)
    assert run_cli([*words, "--address", "127.0.0.1:1", "-o", "json"]) == 0
    assert asked == ["/explain/hpa/shop/web"]
