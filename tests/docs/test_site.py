"""The documentation builds as a web site, and no link in it leads nowhere."""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def build(pages: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(pages), str(site)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert loaded == [], page.name


def test_a_broken_link_would_be_noticed(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "conf.py").write_text((DOCS / "conf.py").read_text().split("def setup")[0])
    (pages / "README.md").write_text("# Start\n\n[there](nowhere.md) and [here](#nothing)\n")
    done = build(pages, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stderr
    assert "nothing" in done.stderr
