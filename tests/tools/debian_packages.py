"""Fetch Debian packages that are newer than this system's and unpack them into a folder; nothing is installed.

    python3 tests/tools/debian_packages.py --into ~/.cache/kubetide/cri --program containerd containerd=1.7

The mirror is the one that apt uses. The suites are tried in order (`--suite`, by default this system's, stable,
testing); the first one serves whose package is new enough (`NAME=LOWEST`) and content with this system's libc. What is
fetched is trusted as apt does: InRelease by its signature, the index by the SHA256 in it, each package by the SHA256
in the index. Only the standard library, gpgv and dpkg are needed. With `--program` nothing is done when the folder has
that program already.
"""

import argparse
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

APT = Path("/etc/apt")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SECONDS = 60


class NotFetched(Exception):
    """Why the packages could not be had."""


class NotThere(NotFetched):
    """The mirror answers, but does not have the file."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A package and the lowest version that will do."""

    name: str
    lowest: str = ""

    @staticmethod
    def parse(text: str) -> "Wanted":
        name, _, lowest = text.partition("=")
        return Wanted(name, lowest)


@dataclass(frozen=True, slots=True)
class Package:
    """One entry of a suite's index."""

    name: str
    version: str
    path: str
    sha256: str
    depends: str


def mirrors(texts: Iterable[str]) -> Iterator[str]:
    """Yield the Debian archives that apt's sources name; those of updates and security have no suites of their own."""
    for text in texts:
        for line in text.splitlines():
            found = re.match(r"(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S.*)", line)
            for word in found[1].split() if found else ():
                if re.match(r"https?://", word) and word.rstrip("/").endswith("/debian"):
                    yield word.rstrip("/")


def apt_mirror(folder: Path = APT) -> str:
    """Return the first Debian archive that apt is set up for."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    for mirror in mirrors(texts):
        return mirror
    raise NotFetched(f"no Debian archive in apt's sources under {folder}")


def packages_in(index: str) -> dict[str, Package]:
    """Return the entries of a Packages file by name."""
    found: dict[str, Package] = {}
    for entry in index.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", entry, re.MULTILINE))
        if {"Package", "Version", "Filename", "SHA256"} <= fields.keys():
            name = fields["Package"]
            found[name] = Package(
                name, fields["Version"], fields["Filename"], fields["SHA256"], fields.get("Depends", "")
            )
    return found


def index_hash(release: str, path: str) -> str:
    """Return the SHA256 that a Release file states for one of its indices."""
    _, _, sums = release.partition("\nSHA256:")
    found = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(path)}$", sums, re.MULTILINE)
    if found is None:
        raise NotFetched(f"the suite has no {path}")
    return found[1]


def at_least(version: str, lowest: str) -> bool:
    """Compare versions as Debian does."""
    return subprocess.run(["dpkg", "--compare-versions", version, "ge", lowest]).returncode == 0


def why_not(package: Package | None, wanted: Wanted, libc: str) -> str:
    """Return why a package of a suite cannot be used here; empty when it can."""
    if package is None:
        return f"has no {wanted.name}"
    if wanted.lowest and not at_least(package.version, wanted.lowest):
        return f"has {wanted.name} {package.version}, older than {wanted.lowest}"
    needed = re.search(r"\blibc6 \(>= ([^)]+)\)", package.depends)
    if needed is not None and not at_least(libc, needed[1]):
        return f"{wanted.name} {package.version} wants libc {needed[1]}, here is {libc}"
    return ""


def fetch(url: str, sha256: str = "") -> bytes:
    """Return what is at an address; refuse it when its hash is another one."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise NotThere(f"{url}: {error}") from error
    except OSError as error:
        raise NotFetched(f"{url}: {error}") from error
    if sha256 and hashlib.sha256(body).hexdigest() != sha256:
        raise NotFetched(f"{url} has a wrong SHA256")
    return body


def read_index(mirror: str, suite: str, architecture: str) -> dict[str, Package]:
    """Return the packages of a suite, with signature and hash checked."""
    signed = fetch(f"{mirror}/dists/{suite}/InRelease")
    with tempfile.NamedTemporaryFile(suffix=".InRelease") as file:
        file.write(signed)
        file.flush()
        checked = subprocess.run(
            ["gpgv", "--quiet", "--keyring", str(KEYRING), "--output", "-", file.name], capture_output=True
        )
    if checked.returncode != 0:
        raise NotFetched(f"the signature of {suite} is not good: {checked.stderr.decode()[-300:]}")
    folder = f"main/binary-{architecture}"
    digest = index_hash(checked.stdout.decode(), f"{folder}/Packages.xz")
    body = fetch(f"{mirror}/dists/{suite}/{folder}/by-hash/SHA256/{digest}", digest)
    return packages_in(lzma.decompress(body).decode())


def unpack(mirror: str, package: Package, into: Path) -> None:
    """Fetch one package and unpack it into the folder."""
    body = fetch(f"{mirror}/{package.path}", package.sha256)
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(body)
        file.flush()
        subprocess.run(["dpkg-deb", "--extract", file.name, str(into)], check=True, timeout=SECONDS)


def get(wanted: list[Wanted], into: Path, suites: list[str]) -> str:
    """Unpack the packages from the first suite that has all of them; return what was done."""
    for program in ("dpkg", "dpkg-deb", "gpgv"):
        if shutil.which(program) is None:
            raise NotFetched(f"{program} is not installed: this works on Debian and its relatives")
    mirror = apt_mirror()
    architecture = _output("dpkg", "--print-architecture")
    libc = _output("dpkg-query", "--show", "--showformat=${Version}", f"libc6:{architecture}")
    reasons: list[str] = []
    for suite in suites:
        try:
            index = read_index(mirror, suite, architecture)
        except NotThere as error:
            reasons.append(str(error))
            continue
        problems = [problem for one in wanted if (problem := why_not(index.get(one.name), one, libc))]
        if problems:
            reasons += [f"{suite} {problem}" for problem in problems]
            continue
        into.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into.parent, prefix=f".{into.name}-") as draft:
            for one in wanted:
                unpack(mirror, index[one.name], Path(draft))
            # Two runs at once end with one whole folder, not with two halves.
            shutil.rmtree(into, ignore_errors=True)
            os.replace(draft, into)
            Path(draft).mkdir()  # for the end of the block, which removes it
        return ", ".join(f"{one.name} {index[one.name].version}" for one in wanted) + f" of {suite}"
    raise NotFetched("; ".join(reasons))


def has_program(folder: Path, name: str) -> bool:
    """Return whether the folder has an unpacked program."""
    return any(os.access(folder / where / name, os.X_OK) for where in ("usr/bin", "usr/sbin", "bin", "sbin"))


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise NotFetched(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def _own_suite() -> str:
    found = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "stable"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", type=Wanted.parse, metavar="NAME[=LOWEST]")
    parser.add_argument("--into", required=True, type=Path, help="folder that gets the unpacked files")
    parser.add_argument("--suite", action="append", default=[], help="may be repeated")
    parser.add_argument("--program", default="", help="nothing is done when the folder has it")
    options = parser.parse_args(arguments)
    if options.program and has_program(options.into, options.program):
        print(f"{options.program} is in {options.into} already")
        return 0
    try:
        print(get(options.packages, options.into, options.suite or [_own_suite(), "stable", "testing"]))
    except (NotFetched, OSError, subprocess.SubprocessError) as error:
        print(f"not fetched: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
