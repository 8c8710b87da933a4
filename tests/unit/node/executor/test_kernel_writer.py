"""The executor: what it writes, skips, refuses and repairs, and in which order."""

import errno
from pathlib import Path

import pytest

from kubetide.api.values.cpuset import CpuSet
from kubetide.node.core import files
from kubetide.node.core.layout import Layout
from kubetide.node.core.outcomes import WriteStatus, failures
from kubetide.node.core.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.executor.audit_log import Audit
from kubetide.node.executor.kernel_writer import Executor, NotStarted
from unit.node.memory_host import ManualClock, MemoryHost

TIER = "kubepods.slice/kubepods-besteffort.slice"
POD = f"{TIER}/kubepods-besteffort-poda.slice"
CONTAINER = f"{POD}/cri-containerd-c.scope"


def made(
    contents: dict[tuple[files.CgroupFile, str], str], *, version: int = 1
) -> tuple[Executor, MemoryHost, ManualClock, Layout]:
    layout = Layout(version=version, cgroup_root="/cg")
    host = MemoryHost({layout.cgroup_file(file, place): text for (file, place), text in contents.items()})
    clock = ManualClock()
    executor = Executor(host, layout, clock)
    executor.start()
    return executor, host, clock, layout


def write(
    file: files.CgroupFile | files.SystemFile, value: str, place: str = TIER, target: Target = Target.TIER
) -> Write:
    return Write(file=file, value=value, directory=place, target=target)


def test_a_value_that_is_already_there_is_not_written() -> None:
    executor, host, _, _ = made({(files.CPU_SHARES, TIER): "1024\n"})
    assert executor.update(write(files.CPU_SHARES, "1024")).status is WriteStatus.UNCHANGED
    assert host.writes == []


def test_an_unchanged_value_is_not_even_read_until_it_is_old() -> None:
    executor, host, clock, layout = made({(files.CPU_SHARES, TIER): "2"})
    path = layout.cgroup_file(files.CPU_SHARES, TIER)
    assert executor.update(write(files.CPU_SHARES, "1024")).status is WriteStatus.WRITTEN
    host.files[path] = "7"
    assert executor.update(write(files.CPU_SHARES, "1024")).status is WriteStatus.UNCHANGED
    assert host.files[path] == "7"
    clock.advance(61)
    assert executor.update(write(files.CPU_SHARES, "1024")).status is WriteStatus.WRITTEN
    assert host.files[path] == "1024"


def test_cached_updates_need_a_started_executor() -> None:
    layout = Layout(cgroup_root="/cg")
    executor = Executor(MemoryHost(), layout, ManualClock())
    with pytest.raises(NotStarted):
        executor.update(write(files.CPU_SHARES, "2"))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("", id="empty"),
        pytest.param("kubepods.slice", id="kube-root"),
        pytest.param(TIER, id="tier"),
        pytest.param("kubepods.slice/../../etc", id="leaves-the-root"),
        pytest.param("..", id="above-the-root"),
    ],
)
@pytest.mark.parametrize("target", [Target.POD, Target.CONTAINER, Target.HOST_APPLICATION])
def test_a_value_made_for_one_never_lands_where_others_live(place: str, target: Target) -> None:
    executor, host, _, layout = made({(files.CPU_SHARES, TIER): "2", (files.CPU_SHARES, "kubepods.slice"): "2"})
    host.files[f"{layout.cgroup_root}/cpu/cpu.shares"] = "2"
    executor.apply(Plan(batches=(Batch.flat(write(files.CPU_SHARES, "5", place, target)),)))
    assert host.writes == []
    assert executor.counts.refused == 1


def test_hostile_names_never_leave_the_root() -> None:
    executor, host, _, _ = made({(files.CPU_SHARES, TIER): "2"})
    host.files["/etc/cpu.shares"] = "2"
    hostile = write(files.CPU_SHARES, "5", f"{TIER}/../../../../etc", Target.TIER)
    executor.apply(Plan(batches=(Batch.flat(hostile),)))
    assert host.writes == []
    assert executor.counts.refused == 1


def test_one_failing_file_does_not_stop_the_others() -> None:
    executor, host, _, layout = made({(files.CPU_SHARES, TIER): "2", (files.CPU_QUOTA, TIER): "-1"})
    host.failures[layout.cgroup_file(files.CPU_SHARES, TIER)] = OSError(errno.EIO, "broken")
    executor.apply(Plan(batches=(Batch.flat(write(files.CPU_SHARES, "5"), write(files.CPU_QUOTA, "1000")),)))
    assert [value for _, value in host.writes] == ["1000"]
    assert executor.counts.failed == 1


@pytest.mark.parametrize("leveled", [False, True])
def test_a_value_that_the_kernel_refuses_is_told_once_until_something_changes(
    leveled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    executor, host, _, _ = made({(files.CPU_QUOTA, TIER): "50000"})

    def refuse(path: str, value: str) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    def told() -> int:
        return sum(record.message.startswith("kernel value not written") for record in caplog.records)

    batch = Batch(levels=((write(files.CPU_QUOTA, "1000"),),), leveled=leveled)
    host.on_write = refuse
    for _ in range(3):
        executor.apply(Plan(batches=(batch,)))
    assert told() == 1
    host.on_write = None
    executor.apply(Plan(batches=(batch,)))
    host.on_write = refuse
    executor.apply(Plan(batches=(Batch(levels=((write(files.CPU_QUOTA, "900"),),), leveled=leveled),)))
    assert told() == 2


def test_a_cgroup_that_is_gone_is_skipped_quietly_and_not_remembered() -> None:
    executor, host, _, layout = made({})
    gone = write(files.CPU_SHARES, "5", POD, Target.POD)
    assert executor.update(gone).status is WriteStatus.MISSING
    host.files[layout.cgroup_file(files.CPU_SHARES, POD)] = "2"
    assert executor.update(gone).status is WriteStatus.WRITTEN
    assert [value for _, value in host.writes] == ["5"]


def test_a_kernel_without_the_file_is_asked_once() -> None:
    executor, host, _, layout = made({(files.CPU_IDLE, TIER): "0"})
    assert executor.update(write(files.CPU_IDLE, "1")).status is WriteStatus.UNSUPPORTED
    host.files[layout.cgroup_file(files.CPU_IDLE, "kubepods.slice")] = "0"
    again = executor.update(write(files.CPU_IDLE, "1"))
    assert again.status is WriteStatus.UNSUPPORTED, "support is remembered for the life of the process"


def test_before_the_kubelet_made_its_root_nothing_is_concluded_about_the_kernel() -> None:
    executor, host, _, layout = made({})
    assert executor.update(write(files.CPU_IDLE, "1")).status is WriteStatus.UNSUPPORTED
    for place in ("kubepods.slice", TIER):
        host.files[layout.cgroup_file(files.CPU_IDLE, place)] = "0"
    assert executor.update(write(files.CPU_IDLE, "1")).status is WriteStatus.WRITTEN
    assert [value for _, value in host.writes] == ["1"]


def test_a_cgroup_that_vanishes_between_reading_and_writing_is_no_failure() -> None:
    executor, host, _, layout = made({(files.CPU_SHARES, POD): "2"})

    def vanish(path: str, value: str) -> None:
        del host.files[path]
        raise OSError(errno.ENODEV, "No such device")

    host.on_write = vanish
    wanted = write(files.CPU_SHARES, "5", POD, Target.POD)
    assert executor.update(wanted).status is WriteStatus.MISSING
    host.on_write = None
    host.files[layout.cgroup_file(files.CPU_SHARES, POD)] = "2"
    assert executor.update(wanted).status is WriteStatus.WRITTEN, "it was not remembered as written"


def test_an_update_past_the_cache_looks_at_the_file_every_time() -> None:
    executor, host, _, layout = made({(files.CPU_SHARES, TIER): "1024"})
    wanted = write(files.CPU_SHARES, "1024")
    assert executor.update(wanted, cached=False).status is WriteStatus.UNCHANGED
    host.files[layout.cgroup_file(files.CPU_SHARES, TIER)] = "2"
    assert executor.update(wanted, cached=False).status is WriteStatus.WRITTEN
    assert executor.update(write(files.CPU_SHARES, "1024", POD), cached=False).status is WriteStatus.MISSING


def test_devices_of_one_file_are_remembered_each() -> None:
    executor, host, _, layout = made({(files.BLKIO_READ_BPS, place): "" for place in ("kubepods.slice", TIER)})
    path = layout.cgroup_file(files.BLKIO_READ_BPS, TIER)
    lines = ("253:0 100", "253:16 200")
    for line in lines:
        executor.update(write(files.BLKIO_READ_BPS, line))
    host.files[path] = "\n".join(lines)
    for line in lines:
        assert executor.update(write(files.BLKIO_READ_BPS, line)).status is WriteStatus.UNCHANGED
    assert [value for _, value in host.writes] == list(lines)


def test_unlimited_becomes_max_on_v2_and_is_recognised_again() -> None:
    executor, host, clock, _ = made({(files.CPU_QUOTA, TIER): "50000 100000\n"}, version=2)
    executor.update(write(files.CPU_QUOTA, "-1"))
    assert [value for _, value in host.writes] == ["max"]
    host.files[host.writes[0][0]] = "max 100000\n"
    clock.advance(61)
    executor.update(write(files.CPU_QUOTA, "-1"))
    assert len(host.writes) == 1


def test_shares_are_compared_as_weights_on_v2() -> None:
    executor, host, _, _ = made({(files.CPU_SHARES, TIER): "39\n"}, version=2)
    executor.update(write(files.CPU_SHARES, "1024"))
    assert host.writes == []


def test_changing_the_period_on_v2_keeps_the_quota() -> None:
    executor, host, _, _ = made({(files.CPU_PERIOD, TIER): "50000 100000\n"}, version=2)
    executor.update(write(files.CPU_PERIOD, "200000"))
    assert [value for _, value in host.writes] == ["50000 200000"]


def levels(file: files.CgroupFile, tier: str, pod: str, container: str) -> tuple[tuple[Write, ...], ...]:
    return (
        (write(file, tier, TIER, Target.TIER),),
        (write(file, pod, POD, Target.POD),),
        (write(file, container, CONTAINER, Target.CONTAINER),),
    )


def legal_cpusets(layout: Layout, host: MemoryHost) -> None:
    """Make the host refuse what cgroup v1 refuses: a child with CPUs that its parent lacks, and the reverse."""
    tree = [layout.cgroup_file(files.CPUSET, place) for place in (TIER, POD, CONTAINER)]

    def check(path: str, value: str) -> None:
        position = tree.index(path)
        new = CpuSet.parse(value)
        if position > 0 and not new <= CpuSet.parse(host.files[tree[position - 1]]):
            raise PermissionError(errno.EACCES, "not inside the parent")
        if position + 1 < len(tree) and not CpuSet.parse(host.files[tree[position + 1]]) <= new:
            raise OSError(errno.EBUSY, "a child has more")

    host.on_write = check


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("0-3", "0-1", id="narrower"),
        pytest.param("0-1", "0-3", id="wider"),
        pytest.param("0-1", "2-3", id="elsewhere"),
        pytest.param("0-2", "1-5", id="shifted"),
    ],
)
def test_a_whole_tree_of_cpusets_moves_through_legal_states(before: str, after: str) -> None:
    contents = {(files.CPUSET, place): before for place in (TIER, POD, CONTAINER)}
    executor, host, _, layout = made(contents)
    legal_cpusets(layout, host)
    executor.update_leveled(levels(files.CPUSET, after, after, after))
    assert executor.counts.failed == 0
    assert {host.files[layout.cgroup_file(files.CPUSET, place)] for place in (TIER, POD, CONTAINER)} == {after}


def test_memory_protection_grows_from_the_top_and_shrinks_from_the_bottom() -> None:
    contents = {(files.MEMORY_MIN, place): "0" for place in ("kubepods.slice", TIER, POD, CONTAINER)}
    executor, host, _, layout = made(contents)
    order = [layout.cgroup_file(files.MEMORY_MIN, place) for place in (TIER, POD, CONTAINER)]
    executor.update_leveled(levels(files.MEMORY_MIN, "200", "100", "100"))
    assert [path for path, _ in host.writes] == order
    host.writes.clear()
    executor.update_leveled(levels(files.MEMORY_MIN, "0", "0", "0"))
    assert [path for path, _ in host.writes] == order[::-1]


def test_an_unlimited_quota_counts_as_the_largest() -> None:
    executor, host, _, _ = made({(files.CPU_QUOTA, place): "-1" for place in (TIER, POD, CONTAINER)})
    executor.update_leveled(levels(files.CPU_QUOTA, "100000", "50000", "50000"))
    assert [value for _, value in host.writes] == ["50000", "50000", "100000"]


def test_a_value_that_somebody_widened_is_narrowed_again_after_a_minute() -> None:
    contents = {(files.CPUSET, place): "0-1" for place in (TIER, POD, CONTAINER)}
    executor, host, clock, layout = made(contents)
    wanted = levels(files.CPUSET, "0-1", "0-1", "0-1")
    executor.update_leveled(wanted)
    host.files[layout.cgroup_file(files.CPUSET, TIER)] = "0-7"
    executor.update_leveled(wanted)
    assert host.files[layout.cgroup_file(files.CPUSET, TIER)] == "0-7"
    clock.advance(61)
    executor.update_leveled(wanted)
    assert host.files[layout.cgroup_file(files.CPUSET, TIER)] == "0-1"


def test_every_write_is_audited_with_what_was_there_before(tmp_path: Path) -> None:
    layout = Layout(cgroup_root="/cg")
    host = MemoryHost({layout.cgroup_file(files.CPU_SHARES, POD): "2"})
    clock = ManualClock()
    audit = Audit(tmp_path, clock)
    executor = Executor(host, layout, clock, auditor=audit)
    executor.start()
    subject = Subject(type="pod", namespace="shop", name="web")
    wanted = Write(file=files.CPU_SHARES, value="512", directory=POD, target=Target.POD, subject=subject, reason="test")
    executor.update(wanted)
    executor.update(wanted)
    events, token = audit.query()
    assert token == ""
    assert [(event["name"], event["reason"]) for event in events] == [("web", "test")]
    assert "2 -> 512" in events[0]["message"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("leveled", [False, True])
def test_every_write_of_a_plan_has_one_outcome_in_the_order_of_the_plan(version: int, leveled: bool) -> None:
    places = ("kubepods.slice", TIER, POD, CONTAINER)
    executor, host, _, layout = made({(files.CPU_QUOTA, place): "-1" for place in places}, version=version)
    busy = layout.cgroup_file(files.CPU_QUOTA, POD)

    def refuse(path: str, value: str) -> None:
        if path == busy:
            raise OSError(errno.EBUSY, "Device or resource busy")

    host.on_write = refuse
    batch = Batch(
        levels=(
            (write(files.CPU_QUOTA, "200000"),),
            (
                write(files.CPU_QUOTA, "100000", POD, Target.POD),
                write(files.CPU_QUOTA, "100000", f"{POD}-gone", Target.POD),
                write(files.CPU_QUOTA, "100000", "kubepods.slice", Target.POD),
            ),
            (
                write(files.CPU_QUOTA, "50000", CONTAINER, Target.CONTAINER),
                write(files.CPU_IDLE, "1", CONTAINER, Target.CONTAINER),
            ),
        ),
        leveled=leveled,
    )
    outcomes = executor.apply(Plan(batches=(batch,)))
    assert [one.write for one in outcomes] == [one for level in batch.levels for one in level]
    assert [str(one.status) for one in outcomes] == [
        "written",
        "failed",
        "missing",
        "refused",
        "written",
        "unsupported",
    ]
    assert [one.in_force for one in outcomes] == [True, False, False, False, True, False]
    assert "Device or resource busy" in failures(outcomes)[f"{POD}/cpu.cfs_quota_us"]
    assert (executor.counts.failed, executor.counts.refused, executor.counts.skipped) == (1, 1, 2)
    host.on_write = None
    again = executor.apply(Plan(batches=(batch,)))
    assert [str(one.status) for one in again][:2] == ["unchanged", "written"]


def test_a_write_that_succeeds_on_the_second_way_is_in_force_though_the_first_failed() -> None:
    executor, host, _, layout = made({(files.CPU_QUOTA, TIER): "1000"})
    tried: list[str] = []

    def busy_once(path: str, value: str) -> None:
        tried.append(path)
        if len(tried) == 1:
            raise OSError(errno.EBUSY, "Device or resource busy")

    host.on_write = busy_once
    (outcome,) = executor.update_leveled([[write(files.CPU_QUOTA, "5000")]])
    assert (outcome.status, host.files[layout.cgroup_file(files.CPU_QUOTA, TIER)]) == (WriteStatus.WRITTEN, "5000")
    assert executor.counts.failed == 0
