"""Make a release below a folder, and prove what can be proved without publishing it: `make release`.

Wheel and sdist are built twice and must be the same bytes; the wheel is installed alone, with the pinned dependencies
of the image, and runs a simulated hour. Beside them: a bill of materials (CycloneDX), and the archive and manifest of
the kubectl plugin for krew. Nothing is uploaded.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
HASHES = re.compile(r"--hash=sha256:([0-9a-f]{64})")
WHEN = "1767225600"
"""The date in archives, so that equal sources make equal bytes."""
SECONDS = 600
"""How long a step may take, also on a machine that is busy with other work."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--into", type=Path, default=ROOT / "dist")
    options.add_argument("--url", default="", help="where the archive of the plugin will be published")
    options.add_argument("--no-demo", action="store_true", help="do not run the installed wheel")
    chosen = options.parse_args()
    files = build(chosen.into)
    check(files)
    version = next(file.name.split("-")[1] for file in files if file.suffix == ".whl")
    (chosen.into / "kubetide.cdx.json").write_text(json.dumps(bill_of_materials(version), indent=1) + "\n")
    archive = plugin(version, chosen.into)
    manifest = krew_manifest(version, archive, chosen.url or f"https://example.invalid/{archive.name}")
    (chosen.into / "tide.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    if not chosen.no_demo:
        run_alone(next(file for file in files if file.suffix == ".whl"))
    for file in sorted(chosen.into.iterdir()):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")


def build(into: Path) -> list[Path]:
    """Build wheel and sdist twice; raise if they differ."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as again:
        for folder in (str(into), again):
            command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
            dated = {**os.environ, "SOURCE_DATE_EPOCH": WHEN}
            subprocess.run(command, cwd=ROOT, env=dated, check=True, timeout=SECONDS)
        made = sorted(Path(again).iterdir())
        for second in made:
            if (into / second.name).read_bytes() != second.read_bytes():
                raise SystemExit(f"{second.name} differs between two builds of the same tree")
        return [into / each.name for each in made]


def check(files: list[Path]) -> None:
    """Let twine look at the metadata, as a package index would."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    subprocess.run(command, check=True, timeout=SECONDS)


def run_alone(wheel: Path) -> None:
    """Install the wheel and what it needs into an empty environment, and run a simulated hour."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=SECONDS)
        python = str(Path(folder) / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "runtime.lock")], check=True)
        subprocess.run([*pip, "--no-deps", str(wheel)], check=True, timeout=SECONDS)
        bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [str(Path(folder) / "bin" / "kubetide"), "demo", "--duration", "1h", "--speed", "max"]
        subprocess.run(command, cwd=folder, env=bare, check=True, timeout=3 * SECONDS, stdout=subprocess.DEVNULL)


def bill_of_materials(version: str) -> dict[str, Any]:
    """Return what the image is made of, from its lock: every component with its hashes."""
    lock = (ROOT / "requirements" / "image.lock").read_text()
    found = list(PINNED.finditer(lock))
    components = []
    for place, match in enumerate(found):
        entry = lock[match.start() : found[place + 1].start() if place + 1 < len(found) else None]
        name, pinned = match[1], match[2]
        components.append(
            {
                "type": "library",
                "name": name,
                "version": pinned,
                "purl": f"pkg:pypi/{name}@{pinned}",
                "hashes": [{"alg": "SHA-256", "content": each} for each in sorted(HASHES.findall(entry))],
            }
        )
    subject = {"type": "application", "name": "kubetide", "version": version, "purl": f"pkg:pypi/kubetide@{version}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "metadata": {"component": subject},
        "components": components,
    }


def plugin(version: str, into: Path) -> Path:
    """Pack the launcher and the licence for krew; equal sources make equal bytes."""
    launcher = (ROOT / "deploy" / "krew" / "kubectl-tide").read_text().replace("RELEASE-VERSION", version)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content, mode in (
            ("kubectl-tide", launcher.encode(), 0o755),
            ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, int(WHEN)
            archive.addfile(entry, io.BytesIO(content))
    target = into / f"kubectl-tide-{version}.tar.gz"
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=int(WHEN)))
    return target


def krew_manifest(version: str, archive: Path, url: str) -> dict[str, Any]:
    """Return the plugin's entry for krew's index."""
    systems = [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tide"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Explain, size and replay autoscaled workloads",
            "description": "Says why workloads are the size they are, what is wrong with their autoscalers and how to "
            "mend it, and what they should request. Needs Python 3.11 or newer.",
            "platforms": [
                {
                    "selector": {"matchExpressions": systems},
                    "uri": url,
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": "kubectl-tide",
                    "files": [{"from": "*", "to": "."}],
                }
            ],
        },
    }


if __name__ == "__main__":
    main()
