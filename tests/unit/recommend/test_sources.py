"""What is read beside a cluster: price lists, installed estimators, the contexts of a kubeconfig."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kubetide.api.objects.core import Node
from kubetide.api.objects.meta import ObjectMeta
from kubetide.cli.main import run_cli
from kubetide.cli.offline.usage_sources import Progress
from kubetide.clock import SystemClock
from kubetide.errors import InvalidInput
from kubetide.kube.client.kubeconfig import context_names
from kubetide.recommend import Options
from kubetide.recommend import installed as installed_module
from kubetide.recommend.core.money import Price
from kubetide.recommend.installed import installed_estimators
from kubetide.recommend.price_list import read_prices
from unit.recommend.test_rows import WEB, amounts, one, usage

EXAMPLE = Path(__file__).parents[3] / "examples" / "estimator" / "weekday.py"


def test_a_price_list_goes_by_the_labels_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("default: {cpu: 1, gib: 2}\nnodes:\n- match: {size: big}\n  cpu: 3\n  gib: 4\n")
    found = read_prices(str(file))
    assert found is not None
    nodes = [Node(metadata=ObjectMeta(name=name, labels={"size": name})) for name in ("big", "small")]
    prices = found.prices({"": nodes})
    assert prices.default == Price(1.0, 2.0)
    assert prices.by_node == {("", "big"): Price(3.0, 4.0)}


@pytest.mark.parametrize(
    "text", ["cpu=1", "cpu=x,gib=1", "cpu=1,gib=1,gpu=3", "cpu=-1,gib=1", "cpu=1,gib=nan", "/no/such/file"]
)
def test_a_price_that_cannot_be_read_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match="--price"):
        read_prices(text)
    assert run_cli(["recommend", "--price", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--estimator", "nope"],
        ["--headroom", "much"],
        ["--fail-over", "-3%"],
        ["--min", "gpu=1"],
        ["--max", "cpu=x"],
        ["--prometheus", "localhost:9090"],
        ["--prometheus", "http://127.0.0.1:1", "--prometheus-header", "x"],
        ["--prometheus", "https://127.0.0.1:1", "--prometheus-ca", __file__],
        ["-l", "a=b=c"],
        ["-l", "a in ("],
        ["--min", "cpu=2", "--max", "cpu=1"],
        ["--step", "0s"],
        ["--step", "often"],
        ["--diff", str(EXAMPLE.parent / "pyproject.toml")],
        ["--prometheus-token", "x"],
        ["--prometheus", "auto", "--prometheus-header", "X-Scope-OrgID=a"],
        ["--prometheus", "http://127.0.0.1:1", "--prometheus-user", "me"],
        ["--prometheus", "https://127.0.0.1:1", "--prometheus-sigv4", "eu-west-1"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_mistake_is_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    config = tmp_path / "config"
    config.write_text("contexts: []\n")
    assert run_cli(["--kubeconfig", str(config), "recommend", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("kubetide: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "patches"],
        ["--out", "somewhere"],
        ["--layout", "kustomize"],
        ["--keep-ratio", "--limits", "none"],
        ["--diff", __file__, "-o", "csv"],
        ["--repo", ".", "-o", "csv"],
        ["--repo", ".", "--diff", __file__],
    ],
    ids=" ".join,
)
def test_options_that_would_be_passed_over_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["recommend", *arguments]) == 2
    assert arguments[0] in capsys.readouterr().err.splitlines()[-1]


def test_a_token_in_the_environment_is_for_whoever_gives_a_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBETIDE_PROMETHEUS_TOKEN", "x")
    (tmp_path / "config").write_text("contexts: []\n")
    assert run_cli(["--kubeconfig", str(tmp_path / "config"), "recommend"]) == 2
    assert "--prometheus-token" not in capsys.readouterr().err


def weekday() -> ModuleType:
    spec = importlib.util.spec_from_file_location("weekday", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Point:
    """An entry point."""

    name, value = "weekday", "weekday:WeekdayPeak"

    def __init__(self, module: ModuleType | None) -> None:
        self._module = module

    def load(self) -> object:
        if self._module is None:
            raise ImportError("no module named weekday")
        return self._module.WeekdayPeak


def test_the_example_estimator_is_found_and_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_module, "entry_points", lambda *, group: [Point(weekday())])
    given = usage(8)  # begins on a Thursday
    given.cpu[2 * 288 + 5] = 9.0
    options = Options(estimator="weekday", estimators=installed_estimators())
    cpu, _ = amounts(one(WEB, given, options))
    working = np.r_[0 : 2 * 288, 4 * 288 : 8 * 288]
    assert cpu == int(np.ceil(given.cpu[working].max() * 1000))


def test_an_estimator_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_module, "entry_points", lambda *, group: [Point(None)])
    with pytest.raises(InvalidInput, match=r"weekday of weekday:WeekdayPeak cannot be loaded"):
        one(WEB, usage(1), Options(estimator="weekday", estimators=installed_estimators()))


def test_contexts_come_from_the_files_in_force(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"contexts:\n- name: {name}\n  context: {{cluster: x}}\n")
    both = {"KUBECONFIG": f"{tmp_path / 'b'}:{tmp_path / 'a'}"}
    assert context_names(environment=both) == ["a", "b"]
    assert context_names(path=tmp_path / "b", environment=both) == ["b"]
    assert context_names(environment={}, home=tmp_path) == []


def test_progress_has_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter((7.0, 9.0))

    class Ticking(SystemClock):
        def monotonic(self) -> float:
            return next(times)

    show = Progress(Ticking())
    show("queries", 1, 10)
    show("queries", 5, 10)
    shown = capsys.readouterr().err
    assert shown.count("\r") == 2
    assert shown.endswith("5/10 2.5/s")
