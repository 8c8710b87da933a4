"""The import contracts hold, and they bite."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    return subprocess.run(
        [*command, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=300, env={"PYTHONPATH": "src"}
    )


def test_the_contracts_hold() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        pytest.param("kube/cache/store.py", "import kubetide.hpa.core.decide", "Imports go downward only", id="upward"),
        pytest.param(
            "hpa/core/decide.py", "import kubetide.vpa.core.policy", "Imports go downward only", id="sideways"
        ),
        pytest.param("hpa/core/decide.py", "import asyncio", "Cores are pure", id="io-in-a-decision"),
        pytest.param(
            "vpa/core/policy.py", "import kubetide.kube.client.client", "Cores are pure", id="client-in-a-decision"
        ),
        pytest.param(
            "embedded/apiserver/rest/verbs.py",
            "import kubetide.slo.core.config",
            "The embedded cluster",
            id="no-control-plane",
        ),
        pytest.param(
            "slo/core/validate.py", "import kubetide.slo.controller", "Shells are imported", id="shell-in-a-decision"
        ),
        pytest.param("utils.py", '"""Odds and ends."""', "Imports go downward only", id="a-name-without-a-place"),
    ],
)
def test_a_violation_is_found(module: str, line: str, contract: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "src" / "kubetide" / module
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    result = lint(tmp_path)
    assert result.returncode != 0
    assert contract in result.stdout


def test_no_file_is_a_place_for_odds_and_ends() -> None:
    forbidden = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in (ROOT / "src").rglob("*.py") if path.stem in forbidden] == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        path
        for path in (ROOT / "src").rglob("*.py")
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
        and not path.read_text().lstrip().startswith(('"""', "# "))
    ]
    assert silent == []
