"""The tool that fetches newer Debian packages for tests: whose word it takes, and what it refuses."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from tools.debian_packages import (
    NotFetched,
    Wanted,
    apt_mirror,
    fetch,
    has_program,
    index_hash,
    main,
    packages_in,
    why_not,
)

INDEX = """Package: containerd
Version: 1.7.24~ds1-6
Depends: libc6 (>= 2.34), runc (>= 1.1)
Filename: pool/main/c/containerd/containerd_1.7.24_amd64.deb
SHA256: 1111111111111111111111111111111111111111111111111111111111111111

Package: broken
Version: 1
"""
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg") is None, reason="no dpkg: versions are compared by it")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("sources.list", "deb http://a.example/debian sid main\n", "http://a.example/debian", id="line"),
        pytest.param(
            "sources.list",
            "deb [signed-by=/k.gpg] https://a.example/debian/ bookworm main\n",
            "https://a.example/debian",
            id="line-with-options",
        ),
        pytest.param(
            "sources.list.d/debian.sources",
            "Types: deb\nURIs: http://a.example/debian-security http://b.example/debian\nSuites: bookworm\n",
            "http://b.example/debian",
            id="block-whose-first-archive-is-security",
        ),
    ],
)
def test_the_mirror_is_the_one_that_apt_uses(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert apt_mirror(tmp_path) == expected


def test_without_a_debian_archive_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("# deb http://a.example/debian bookworm main\n", encoding="utf-8")
    with pytest.raises(NotFetched, match="no Debian archive"):
        apt_mirror(tmp_path)


def test_an_index_is_read_by_its_fields_and_half_an_entry_is_left_out() -> None:
    found = packages_in(INDEX)
    assert found.keys() == {"containerd"}
    assert found["containerd"].path == "pool/main/c/containerd/containerd_1.7.24_amd64.deb"


def test_the_hash_of_the_index_comes_from_the_release_file() -> None:
    path = "main/binary-amd64/Packages.xz"
    release = f"MD5Sum:\n {'0' * 32} 7 {path}\nSHA256:\n {'a' * 64} 7 {path}\n"
    assert index_hash(release, path) == "a" * 64
    with pytest.raises(NotFetched, match="no main/binary-s390x"):
        index_hash(release, "main/binary-s390x/Packages.xz")


@needs_dpkg
@pytest.mark.parametrize(
    ("lowest", "libc", "expected"),
    [
        pytest.param("1.7", "2.36-9", "", id="new-enough"),
        pytest.param("1.8", "2.36-9", "older than 1.8", id="too-old"),
        pytest.param("1.7", "2.31-1", "wants libc 2.34", id="another-libc"),
    ],
)
def test_a_package_must_be_new_enough_and_content_with_this_system(lowest: str, libc: str, expected: str) -> None:
    reason = why_not(packages_in(INDEX)["containerd"], Wanted("containerd", lowest), libc)
    assert expected in reason
    assert bool(reason) == bool(expected)


def test_what_the_suite_does_not_have_is_said() -> None:
    assert why_not(None, Wanted.parse("containerd=1.7"), "2.36") == "has no containerd"


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "package.deb"
    file.write_bytes(b"not what was promised")
    assert fetch(file.as_uri(), sha256(b"not what was promised").hexdigest())
    with pytest.raises(NotFetched, match="wrong SHA256"):
        fetch(file.as_uri(), sha256(b"promised").hexdigest())


def test_nothing_is_fetched_when_the_program_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "usr" / "bin" / "containerd"
    program.parent.mkdir(parents=True)
    program.write_text("", encoding="utf-8")
    assert not has_program(tmp_path, "containerd")
    program.chmod(0o755)
    assert main(["--into", str(tmp_path), "--program", "containerd", "containerd=1.7"]) == 0
    assert "already" in capsys.readouterr().out
