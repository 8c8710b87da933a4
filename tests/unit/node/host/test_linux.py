"""The real machine: kept descriptors, files that vanish, commands."""

import contextlib
import os
import resource
import subprocess
from pathlib import Path

import pytest

from kubetide.node.host.linux import LinuxHost, cgroup_version


def made(tmp_path: Path, max_open: int = 1024) -> LinuxHost:
    return LinuxHost(keep_open=(str(tmp_path),), max_open=max_open)


def test_a_file_is_opened_once_and_read_again_as_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "cpu.stat"
    path.write_text("1")
    host = made(tmp_path)
    assert host.read(str(path)) == "1"
    kept = dict(host._open)
    path.write_text("22")
    assert host.read(str(path)) == "22"
    assert (len(kept), host._open) == (1, kept)
    host.close()


def test_long_files_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_text("x" * 50_000)
    host = made(tmp_path)
    assert len(host.read(str(path))) == 50_000
    host.close()


def test_the_least_used_descriptor_is_closed_first(tmp_path: Path) -> None:
    host = made(tmp_path, max_open=64)
    for number in range(200):
        (tmp_path / str(number)).write_text(str(number))
        assert host.read(str(tmp_path / str(number))) == str(number)
    assert len(host._open) == 64
    host.close()


def test_descriptors_of_vanished_files_are_swept(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    path.write_text("1")
    host = made(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    host.read(str(path))
    path.unlink()
    assert host.sweep() == 1
    assert len(os.listdir("/proc/self/fd")) == before
    host.close()


def test_out_of_descriptors_gives_back_half_of_those_kept_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        (tmp_path / str(number)).write_text(str(number))
    host = made(tmp_path)
    for number in range(80):
        host.read(str(tmp_path / str(number)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    others: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                others.append(os.dup(0))
        for number in range(80, 100):
            assert host.read(str(tmp_path / str(number))) == str(number)
        host.write(str(tmp_path / "1"), "x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in others:
            os.close(descriptor)
    assert len(host._open) <= 50
    assert len([one for one in caplog.records if "out of file descriptors" in one.getMessage()]) == 1
    assert host.read(str(tmp_path / "1")) == "x"
    host.close()


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        made(tmp_path).read(str(tmp_path / "none"))


def test_commands_answer_or_fail_as_os_errors() -> None:
    host = LinuxHost()
    assert host.run(["echo", "hello"]) == "hello\n"
    with pytest.raises(OSError, match="false failed"):
        host.run(["false"])
    with pytest.raises(FileNotFoundError):
        host.run(["no-such-command-anywhere"])
    with pytest.raises(OSError, match="sleep failed"):
        host.run(["sleep", "30"], timeout=0.05)


def test_a_tool_that_hangs_is_killed_by_its_own_id_and_the_next_run_is_a_new_one(tmp_path: Path) -> None:
    host = LinuxHost()
    told = tmp_path / "pid"
    with pytest.raises(OSError, match=r"no answer within 0\.3 s"):
        host.run(["sh", "-c", f"echo $$ > {told}; exec sleep 60"], timeout=0.3)
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
    assert host.run(["sh", "-c", "echo again"]) == "again\n"


def test_a_tool_that_cannot_even_be_killed_is_not_started_again_beside_it() -> None:
    host = LinuxHost()
    with subprocess.Popen(["sleep", "60"], text=True) as stuck:
        host._unended["sleep"] = stuck
        with pytest.raises(OSError, match=f"process {stuck.pid} of an earlier run still hangs"):
            host.run(["sleep", "0"])
        stuck.kill()
        stuck.wait()
    assert host.run(["sleep", "0"]) == ""


def test_what_a_tool_complains_about_is_in_the_error() -> None:
    with pytest.raises(OSError, match="sh failed with status 3: no such volume"):
        LinuxHost().run(["sh", "-c", "echo no such volume >&2; exit 3"])


def test_a_plain_directory_is_no_unified_hierarchy(tmp_path: Path) -> None:
    assert cgroup_version(str(tmp_path)) == 1


def test_directories_are_listed_without_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "file").write_text("")
    assert LinuxHost().list_dirs(str(tmp_path)) == ["a", "b"]
