"""A release is made twice to the same bytes, and its parts say the same version."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

from kubetide import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_a_dry_run_of_a_release(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "tools" / "release.py"), "--into", str(tmp_path), "--no-demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {
        f"kubetide-{__version__}-py3-none-any.whl",
        f"kubetide-{__version__}.tar.gz",
        f"kubectl-tide-{__version__}.tar.gz",
        "kubetide.cdx.json",
        "tide.yaml",
    }
    bill = json.loads((tmp_path / "kubetide.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == __version__
    assert {"aiohttp", "msgspec", "grpcio"} <= {each["name"] for each in bill["components"]}
    assert all(each["hashes"] for each in bill["components"])
    manifest = yaml.safe_load((tmp_path / "tide.yaml").read_text())
    assert manifest["spec"]["version"] == f"v{__version__}"
    with tarfile.open(tmp_path / f"kubectl-tide-{__version__}.tar.gz") as archive:
        launcher = archive.extractfile("kubectl-tide")
        assert launcher is not None
        assert f"version={__version__}" in launcher.read().decode()
