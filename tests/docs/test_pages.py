"""Pages that are generated are current, links lead somewhere, and the two commands come first."""

import re
from pathlib import Path

import pytest

from kubetide.cli.compat import reference as releases
from kubetide.cli.doctor.verdicts import reference as verdicts
from kubetide.cli.settings import reference
from kubetide.install.grafana import grafana_files
from kubetide.install.objects import ALL, manifests
from kubetide.install.packaging import as_yaml, chart_files, kustomize_files, permissions_text

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_the_settings_reference_is_current() -> None:
    assert (ROOT / "docs" / "reference" / "settings.md").read_text() == reference(), "run `make docs`"


def test_the_reference_of_releases_is_current() -> None:
    assert (ROOT / "docs" / "reference" / "compat.md").read_text() == releases(), "run `make docs`"


def test_the_reference_of_verdicts_is_current() -> None:
    assert (ROOT / "docs" / "reference" / "verdicts.md").read_text() == verdicts(), "run `make docs`"


def test_the_manifests_in_deploy_are_current() -> None:
    objects = manifests(ALL, namespace="kube-system", image="kubetide:latest")
    assert (ROOT / "deploy" / "kubetide.yaml").read_text() == as_yaml(objects), "run `make docs`"


def test_the_chart_and_the_bases_are_made_of_the_manifests() -> None:
    generated = {
        "permissions.txt": permissions_text(),
        **{f"helm/kubetide/{path}": text for path, text in chart_files().items()},
        **{f"kustomize/{path}": text for path, text in kustomize_files("kubetide:latest").items()},
        **{f"grafana/{path}": text for path, text in grafana_files().items()},
    }
    kept = {path: (ROOT / "deploy" / path).read_text() for path in generated if (ROOT / "deploy" / path).exists()}
    assert kept == generated, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_two_commands_come_first_in_the_readme() -> None:
    first = re.search(r"```(?:sh|shell|bash)?\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert first is not None
    assert "make demo" in first[1]
    assert "make test" in first[1]


def test_the_index_names_every_page() -> None:
    folder = ROOT / "docs"
    listed = {(folder / target).resolve() for target in LINK.findall((folder / "README.md").read_text())}
    assert {page for page in folder.rglob("*.md") if page != folder / "README.md"} <= listed


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:3]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_walks_lead_through_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text))
    assert len(named) > 30
    assert [
        path for path in sorted(named) if not (ROOT / "src" / "kubetide" / path).exists() and not (ROOT / path).exists()
    ] == []
