"""Which wheel of each pinned dependency fits machines that this one is not: written down, with the hash that pins it.

    python tests/tools/wheels.py [--lock requirements/image.lock] [--table requirements/wheels.json]

Asks the package index for the files of each version and notes the wheel for Linux on arm64 and for macOS. A hash of the
lock does not tell for which platform its file is; the table does, and a test compares the two without any network:
after `make lock`, `make wheels` says whether all platforms are still served.
"""

import argparse
import json
import re
import subprocess
import sys
import urllib.request
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
PLATFORMS = {
    "linux-arm64": re.compile(r"manylinux\w*_aarch64"),
    "macos-arm64": re.compile(r"macosx_\w*(arm64|universal2)"),
}
PYTHONS = (11, 12, 13)
"""Minor versions of Python 3; a version of a package may be pinned for some of them only."""
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", re.MULTILINE)
_LINK = re.compile(r'href="[^"]*?([^"/#]+\.whl)#sha256=([0-9a-f]{64})"')
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

Pins = dict[tuple[str, str], frozenset[str]]


def pins(lock: Path) -> Pins:
    """Return the hashes of every pinned version."""
    text = lock.read_text(encoding="utf-8")
    starts = list(_PIN.finditer(text))
    ends = [*(match.start() for match in starts[1:]), len(text)]
    return {
        (match[1].lower(), match[2]): frozenset(_HASH.findall(text[match.end() : end]))
        for match, end in zip(starts, ends, strict=True)
    }


def pip_index() -> str:
    """Return the package index that pip asks."""
    models = import_module("pip._internal.models.index")
    asked = subprocess.run(
        (sys.executable, "-m", "pip", "config", "get", "global.index-url"), capture_output=True, text=True
    )
    found: str = asked.stdout.strip() or models.PyPI.simple_url
    return found.rstrip("/")


def files(name: str, index: str) -> list[dict[str, str]]:
    """Return file and hash of every wheel of a package, from the page that every index has."""
    request = urllib.request.Request(f"{index}/{name}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        page = answer.read().decode()
    return [{"file": unquote(file), "sha256": sha256} for file, sha256 in _LINK.findall(page)]


def fits(file: str, version: str, platform: re.Pattern[str]) -> bool:
    """Return whether a wheel is of this version, and installs on a platform for one of our Pythons."""
    parts = file.removesuffix(".whl").split("-")
    if len(parts) < 5 or parts[1] != version:
        return False
    python, abi, tags = parts[-3:]
    if not any(tag == "any" or platform.fullmatch(tag) for tag in tags.split(".")):
        return False
    if "py3" in python.split("."):
        return True
    minor = int(python[3:]) if re.fullmatch(r"cp3\d+", python) else 0
    return (minor in PYTHONS and abi == python) or (abi == "abi3" and 0 < minor <= max(PYTHONS))


def main() -> None:
    """Write the table, and report what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements/image.lock")
    parser.add_argument("--table", type=Path, default=ROOT / "requirements/wheels.json")
    parser.add_argument("--index", default=pip_index(), help="the package index that pip uses, unless given")
    options = parser.parse_args()
    table: dict[str, dict[str, dict[str, str]]] = {platform: {} for platform in PLATFORMS}
    listed = pins(options.lock)
    for (name, version), hashes in sorted(listed.items()):
        known = [one for one in files(name, options.index) if one["sha256"] in hashes]
        for platform, pattern in PLATFORMS.items():
            for one in sorted(known, key=lambda wheel: wheel["file"]):
                if fits(one["file"], version, pattern):
                    table[platform][f"{name}=={version}"] = one
                    break
    for platform, rows in table.items():
        missing = sorted({f"{name}=={version}" for name, version in listed} - rows.keys())
        print(f"{platform}: {len(rows)} of {len(listed)}", *missing)
    options.table.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
