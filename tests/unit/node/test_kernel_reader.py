"""Reading for decisions: what is there, what is not, and that one unreadable file stops nobody."""

import errno

import pytest

from kubetide.node.core import files
from kubetide.node.core.kernel_values import NOTHING, KernelValues, Needs
from kubetide.node.core.layout import Layout
from kubetide.node.kernel_reader import KernelReader
from unit.node.memory_host import MemoryHost

ROOT = "kubepods.slice"
TIER = f"{ROOT}/kubepods-besteffort.slice"
POD = f"{TIER}/kubepods-besteffort-poda.slice"


def machine(version: int) -> tuple[KernelReader, MemoryHost, Layout]:
    layout = Layout(version=version, cgroup_root="/cg", proc_root="/proc", sys_fs_root="/sysfs")
    texts = {
        files.CPU_QUOTA: "-1\n" if version == 1 else "max 100000\n",
        files.TASKS: "7\n8\n",
        files.MEMORY_MIN: "0\n",
        files.CPUSET: "0-1\n",
    }
    host = MemoryHost()
    for place in (ROOT, TIER, POD, f"{POD}/c1", f"{POD}/c2"):
        host.files |= {layout.cgroup_file(file, place): text for file, text in texts.items()}
    if version == 2:
        host.files |= {layout.cgroup_file(files.CPUSET_EFFECTIVE, TIER): "0-3\n"}
    host.files["/proc/sys/vm/min_free_kbytes"] = "67584\n"
    return KernelReader(host, layout), host, layout


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_needed_is_read_and_nothing_else(version: int) -> None:
    reader, host, layout = machine(version)
    host.files[layout.cgroup_file(files.CPU_QUOTA, POD)] = "5000" if version == 1 else "5000 100000"
    found = reader.read(
        Needs(
            quotas=[TIER, POD],
            cpus=[TIER],
            trees=[TIER],
            texts=[(files.MEMORY_MIN, TIER)],
            texts_below=[(files.TASKS, POD)],
            present=[(files.MEMORY_MIN, ROOT), (files.MEMORY_HIGH, ROOT)],
            settings=[files.MIN_FREE_KBYTES],
        )
    )
    assert found.quotas == {TIER: -1, POD: 5000}
    assert {place: str(cpus) for place, cpus in found.cpus.items()} == {TIER: "0-1" if version == 1 else "0-3"}
    assert found.children == {TIER: (POD.rpartition("/")[2],), POD: ("c1", "c2")}
    assert found.text(files.MEMORY_MIN, TIER) == "0"
    assert {place: found.text(files.TASKS, f"{POD}/{place}") for place in ("c1", "c2")} == dict.fromkeys(
        ("c1", "c2"), "7\n8"
    )
    assert (found.has(files.MEMORY_MIN, ROOT), found.has(files.MEMORY_HIGH, ROOT)) == (True, False)
    assert found.setting(files.MIN_FREE_KBYTES) == "67584"
    assert found.problems == {}
    assert reader.read(NOTHING) == KernelValues()


@pytest.mark.parametrize("version", [1, 2])
def test_what_cannot_be_read_is_absent_and_reports_why(version: int) -> None:
    reader, host, layout = machine(version)
    host.files[layout.cgroup_file(files.CPU_QUOTA, TIER)] = "many"
    host.failures[layout.cgroup_file(files.MEMORY_MIN, TIER)] = OSError(errno.EIO, "Input/output error")
    found = reader.read(
        Needs(
            quotas=[TIER, POD, "gone", "../escape"],
            cpus=["gone"],
            texts=[(files.MEMORY_MIN, TIER), (files.BLKIO_READ_BPS, POD)],
            present=[(files.MEMORY_MIN, "gone"), (files.MEMORY_IDLE_PAGES, ROOT)],
            settings=[files.SCHED_CORE],
        )
    )
    assert found.quotas == {POD: -1}
    assert found.cpus == {}
    assert found.texts == {}
    assert found.settings == {}
    assert found.has(files.MEMORY_MIN, "gone") is None, "a cgroup that is not there says nothing about the kernel"
    assert found.has(files.MEMORY_IDLE_PAGES, ROOT) is False
    assert "many" in found.problem(files.CPU_QUOTA, TIER)
    assert "No such file" in found.problem(files.CPU_QUOTA, "gone")
    assert "leads out of" in found.problem(files.CPU_QUOTA, "../escape")
    assert "No such file" in found.problem(files.CPUSET, "gone")
    assert "Input/output error" in found.problem(files.MEMORY_MIN, TIER)
    assert found.problem(files.SCHED_CORE) != found.problem(files.MIN_FREE_KBYTES) == "it was not read"


@pytest.mark.parametrize("version", [1, 2])
def test_a_cgroup_that_is_gone_has_no_children_and_one_that_cannot_be_listed_is_unknown(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, host, layout = machine(version)
    listed = host.list_dirs

    def fails(path: str) -> list[str]:
        if path == layout.cgroup_dir("cpuset", POD):
            raise OSError(errno.EIO, "Input/output error")
        return listed(path)

    monkeypatch.setattr(host, "list_dirs", fails)
    found = reader.read(Needs(trees=[TIER, "gone", "../escape"]))
    assert found.children == {TIER: (POD.rpartition("/")[2],), "gone": ()}
    assert sorted(found.problems) == ["../escape/", f"{POD}/"]


def test_values_are_read_anew_each_time() -> None:
    reader, host, layout = machine(1)
    assert reader.read(Needs(quotas=[TIER])).quotas == {TIER: -1}
    host.files[layout.cgroup_file(files.CPU_QUOTA, TIER)] = "9000"
    assert reader.read(Needs(quotas=[TIER])).quotas == {TIER: 9000}
