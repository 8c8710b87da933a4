"""The YAML file of settings: what it may hold, and what is refused with its name."""

import re
from pathlib import Path

import pytest

from kubetide.cli.main import EXIT_USAGE, run_cli
from kubetide.cli.settings import reference
from kubetide.cli.settings_file import read_file, read_process
from kubetide.config import load
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings
from kubetide.settings import SECTIONS


def written(folder: Path, text: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(text)
    return str(path)


def test_flags_beat_the_environment_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "process: {listen: ':1', explain-token: file}\nhpa: {workers: 9}\nnode:\n")
    own, sections = read_process({"config": path}, {"KUBETIDE_PROCESS_EXPLAIN_TOKEN": "env"})
    assert (own.listen, own.explain_token) == (":1", "env")
    own, _ = read_process({"config": path, "listen": ":2"}, {})
    assert own.listen == ":2"
    assert load(HpaSettings, file=sections["hpa"]).workers == 9
    assert sections["node"] == {}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("hap: {workers: 9}", "hap", id="unknown-section"),
        pytest.param("hpa: 9", "hpa", id="a-section-that-is-a-number"),
        pytest.param("- hpa", "sections", id="a-list"),
        pytest.param("hpa: {", "line 2, column 1: is not YAML", id="no-yaml"),
        pytest.param("process: {listne: ':1'}", "listne", id="unknown-setting"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        read_process({"config": written(tmp_path, text)}, {})


def test_a_file_that_is_not_there_is_named() -> None:
    assert read_file("") == {}
    with pytest.raises(SettingsError, match=r"/no/such\.yaml"):
        read_file("/no/such.yaml")


def test_a_bad_file_is_a_usage_error_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "slo: {wrokers: 3}")
    assert run_cli(["run", "slo", f"--config={path}"]) == EXIT_USAGE
    assert "wrokers" in capsys.readouterr().err


def test_the_example_of_the_reference_page_works(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(.*?)```", reference(), flags=re.DOTALL)
    assert found is not None
    sections = read_file(written(tmp_path, found.group(1)))
    assert set(sections) == {"process", "kube", "hpa", "slo"}
    for name, values in sections.items():
        load(SECTIONS[name], file=values)
