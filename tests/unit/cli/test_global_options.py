"""-n, -A, --context, --kubeconfig and -o stand before and behind every verb, as people type them for kubectl."""

import json
from pathlib import Path

import pytest

from kubetide.cli import run
from kubetide.cli.main import EXIT_USAGE, VERBS, Invocation, cli, run_cli

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
REST = {
    "completion": ["bash"],
    "dashboard": ["--interval", "nonsense"],
    "demo": ["--duration", "nonsense"],
    "explain": ["hpa", "web"],
    "replay": ["--stdio", "usage", "--policy", "nonsense"],
    "run": ["hpa"],
    "runtime-proxy": ["--backend-runtime-mode", "nonsense"],
    "up": ["--event-ttl", "nonsense"],
}
"""What else a verb needs, and a value that ends those which would go on for ever."""
OPTIONS = [
    pytest.param(["-n", "shop"], id="namespace"),
    pytest.param(["--namespace=shop"], id="long-namespace"),
    pytest.param(["-A"], id="all-namespaces"),
    pytest.param(["--context", "x"], id="context"),
    pytest.param(["--kubeconfig", "KUBECONFIG"], id="kubeconfig"),
]


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty directory, with a kubeconfig that leads nowhere."""
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    path.chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("NODE_NAME", "")
    monkeypatch.chdir(tmp_path)

    async def nothing(*_: object) -> None:
        """Stand for the controllers, which would run until they are told to stop."""

    monkeypatch.setattr("kubetide.cli.run._run", nothing)
    return path


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_takes_the_options_about_the_cluster(
    verb: str, option: list[str], behind: bool, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.replace("KUBECONFIG", str(kubeconfig)) for word in option]
    words = [verb, *REST.get(verb, [])]
    run_cli([*words, *given] if behind else [*given, *words])
    said = capsys.readouterr().err
    assert "No such option" not in said
    assert "unknown flag" not in said
    assert "unexpected" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize(
    "words", [["version"], ["settings", "hpa"], ["compat", "hpa"], ["check", "hpa"], ["manifests", "hpa"]]
)
def test_the_form_of_the_output_stands_before_or_behind(
    words: list[str], behind: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli([*words, "-o", "json"] if behind else ["-o", "json", *words])
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("verb", ["completion", "demo", "runtime-proxy", "up"])
def test_a_verb_without_another_form_says_so(verb: str, behind: bool, capsys: pytest.CaptureFixture[str]) -> None:
    words = [verb, *REST.get(verb, [])]
    assert run_cli([*words, "-o", "json"] if behind else ["-o", "json", *words]) == EXIT_USAGE
    assert "'-o'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "shop", "run", "hpa"],
        ["run", "-n", "shop", "hpa"],
        ["run", "hpa", "-n", "shop"],
        ["run", "hpa", "--sync-period=15s", "-n=shop"],
        ["run", "hpa", "--hpa-namespace=shop"],
    ],
)
def test_the_namespace_narrows_what_a_component_looks_at(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def look(parts: dict[str, run._Part], *_: object) -> None:
        seen.append(parts["hpa"].settings.namespace)  # type: ignore[attr-defined]

    monkeypatch.setattr("kubetide.cli.run._run", look)
    assert run_cli(words) == 0
    assert seen == ["shop"]


def test_all_namespaces_win_over_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def look(parts: dict[str, run._Part], *_: object) -> None:
        seen.append(parts["hpa"].settings.namespace)  # type: ignore[attr-defined]

    monkeypatch.setattr("kubetide.cli.run._run", look)
    assert run_cli(["run", "hpa", "-n", "shop", "-A"]) == 0
    assert seen == [""]


def test_a_component_of_the_whole_cluster_says_that_it_has_no_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", "slo", "-n", "shop"]) == 0
    assert "-n is ignored" in capsys.readouterr().err


def test_a_value_must_follow(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", "hpa", "-n"]) == EXIT_USAGE
    assert "a value must follow" in capsys.readouterr().err


def test_every_verb_is_known_to_the_list() -> None:
    assert set(REST) <= set(VERBS)
    assert {"-n", "-A", "-o", "--context", "--kubeconfig"} <= {name for param in cli.params for name in param.opts}
    assert Invocation().with_options({"namespace": "a"}).with_options({}).namespace == "a"
