"""The image by its parts: its install steps into an empty prefix, run by another user on a tree nobody may write.

No base image can be had everywhere, and no container engine either; what the Dockerfile does can be done without both.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65532
SECONDS = 600


def anybodys_python() -> str | None:
    """Return a Python of this version that any user may run."""
    own = os.path.realpath(sys.executable)
    for candidate in (own, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        path = Path(candidate)
        parts = [path, *path.parents]
        if path.exists() and (os.getuid() != 0 or all(part.stat().st_mode & 0o005 == 0o005 for part in parts)):
            return candidate
    return None


PYTHON = anybodys_python()


def pip(*arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip("needs a package index that answers")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install as the Dockerfile does, then take the right to write away."""
    folder = tmp_path_factory.mktemp("image")
    installed, backend = folder / "install", folder / "backend"
    pinned = ("--require-hashes", "--only-binary", ":all:")
    pip(*pinned, "--target", str(installed), "-r", "requirements/image.lock")
    pip("--require-hashes", "--target", str(backend), "-r", "requirements/build.lock")
    wheel = folder / "wheel"
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(wheel),
        ".",
    ]
    environment = {**os.environ, "PYTHONPATH": str(backend)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=SECONDS)
    pip("--no-deps", "--target", str(installed), *map(str, wheel.glob("*.whl")))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(installed)], check=True, timeout=SECONDS)
    for path in [folder, *folder.parents]:
        # Everything below the place for temporary files was made for this run, and for its user alone.
        if path.is_relative_to(tempfile.gettempdir()) and path != Path(tempfile.gettempdir()):
            path.chmod(0o755)
    for path in installed.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return installed


def run(prefix: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run kubetide as the image would: nobody's rights, no writable place but the temporary one."""
    bare = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(prefix), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
    other = NOBODY if os.getuid() == 0 else None
    return subprocess.run(
        [str(PYTHON), "-m", "kubetide", *arguments],
        cwd="/",
        env=bare,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        user=other,
        group=other,
        extra_groups=[] if other else None,
    )


@pytest.mark.skipif(PYTHON is None, reason="needs a Python of this version outside private homes")
def test_what_the_image_runs_works_for_nobody_on_a_read_only_tree(prefix: Path) -> None:
    assert run(prefix, "version").returncode == 0
    shown = run(prefix, "manifests", "hpa")
    assert (shown.returncode, "kind: Deployment" in shown.stdout) == (0, True), shown.stderr
    # Every capability can be imported, the agent's included.
    for verb in (("run", "hpa", "--help"), ("node", "--help"), ("settings",)):
        done = run(prefix, *verb)
        assert done.returncode == 0, done.stderr
    simulated = run(prefix, "demo", "--duration", "5m", "--speed", "max")
    assert simulated.returncode == 0, simulated.stderr


def test_only_locked_packages_are_installed(prefix: Path) -> None:
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "image.lock").read_text(), re.MULTILINE))
    found = {path.name.split("-")[0].replace("_", "-").lower() for path in prefix.glob("*.dist-info")}
    assert found - {"kubetide"} <= {name.replace("_", "-") for name in locked}
    assert "kubetide" in found


def test_the_dockerfile_does_what_is_tested_here() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    for step in (
        "--require-hashes --only-binary :all:",
        "requirements/image.lock",
        "requirements/build.lock",
        f"USER {NOBODY}",
    ):
        assert step in text
