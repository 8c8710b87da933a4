"""Recordings on disk: what is written is read, and what cannot be read is one clear line."""

import zipfile
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kubetide.errors import InvalidInput
from kubetide.recording.core.layout import Blocks
from kubetide.recording.format import MANIFEST, TABLES, Manifest
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer

parquet = pytest.importorskip("pyarrow.parquet", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

T0 = 1_700_006_400
DAY = 86400


def written(path: Path, *, containers: int = 3, days: int = 2, step: int = 3600) -> Path:
    with Writer(path, Manifest(source="csv", interval_seconds=step, start=T0)) as writer:
        ids = [writer.container("shop", "Deployment", f"w{n // 2}", f"w{n // 2}-{n}", "app") for n in range(containers)]
        for day in range(days):
            times = (T0 + day * DAY + np.arange(0, DAY, step)) * 1_000_000
            for number in ids:
                cpu = np.arange(times.size) + 1000 * number
                writer.usage(np.full(times.size, number), times, cpu, cpu * 10)
        writer.row("sizes", container_id=0, time=T0 * 1_000_000, cpu_request_millis=500)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    recording = Recording(written(tmp_path / "a.tide"))
    assert recording.containers.workload == ("w0", "w0", "w1")
    grids = list(recording.grids(0))
    assert [grid.start_seconds for grid in grids] == [T0, T0 + DAY]
    assert grids[1].cpu[5, 2] == pytest.approx(2005e-6)
    assert grids[1].memory[5, 2] == 20050.0
    assert recording.rows("sizes")["cpu_request_millis"] == [500]
    assert recording.rows("sizes")["memory_request_bytes"] == [None]
    assert recording.manifest.rows["usage"] == 3 * 48


def test_another_tool_reads_the_tables(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    table = parquet.read_table(tmp_path / "out" / "usage.parquet")
    assert table.column_names == list(TABLES["usage"])
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"


def test_the_containers_of_a_workload_share_a_block(tmp_path: Path) -> None:
    blocks = Blocks(2)
    workloads = [("ns", "Deployment", name) for name in "aabbac"]
    found = [blocks.of(each) for each in workloads]
    assert found == [0, 0, 1, 1, 0, 2]


def test_samples_that_are_missing_stay_missing(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=300, start=T0)) as writer:
        number = writer.container("ns", "Deployment", "w", "w-1", "app")
        times = np.array([T0, T0 + 600, T0 + 1500]) * 1_000_000
        writer.usage([number] * 3, times, [5, -1, 7], [50, 60, -1])
    (grid,) = Recording(tmp_path / "a.tide").grids(0)
    assert np.isnan(grid.cpu[:, 0]).tolist() == [False, True, True, True, True, False]
    assert np.isnan(grid.memory[:, 0]).tolist() == [False, True, False, True, True, True]


def test_of_two_samples_in_one_interval_the_later_counts(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=300, start=T0)) as writer:
        number = writer.container("ns", "Deployment", "w", "w-1", "app")
        times = np.array([T0 + 200, T0 + 10, T0 + 10, T0 + 310]) * 1_000_000
        writer.usage([number] * 4, times, [9, 1, 2, 3], [90, 10, 20, 30])
    (grid,) = Recording(tmp_path / "a.tide").grids(0)
    assert grid.memory[:, 0].tolist() == [90.0, 30.0]
    assert grid.duplicates == 2


def test_late_samples_are_found_in_their_day(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=3600, start=T0)) as writer:
        number = writer.container("ns", "Deployment", "w", "w-1", "app")
        for second, amount in ((0, 1), (DAY, 2), (3600, 3)):
            writer.usage([number], [(T0 + second) * 1_000_000], [amount], [amount])
    first, later = Recording(tmp_path / "a.tide").grids(0)
    assert first.memory[:2, 0].tolist() == [1.0, 3.0]
    assert later.memory[0, 0] == 2.0


def test_an_interrupted_recording_leaves_nothing(tmp_path: Path) -> None:
    with suppress(ZeroDivisionError), Writer(tmp_path / "a.tide", Manifest(start=T0)) as writer:
        writer.container("ns", "Deployment", "w", "w-1", "app")
        writer.row("nodes", node="a", time=1 // 0)
    assert list(tmp_path.iterdir()) == []


def replaced(path: Path, manifest: bytes) -> Path:
    changed = path.with_name("changed.tide")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, manifest if name == MANIFEST else old.read(name))
    return changed


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param(
            {"format": "kubetide-recording", "version": "2.0"}, "is format 2.0, this kubetide reads 1.x", id="newer"
        ),
        pytest.param({"format": "kubetide-recording", "version": "x"}, "'x' is not a version", id="no-version"),
        pytest.param({"format": "else", "version": "1.0"}, "'else' is not 'kubetide-recording'", id="another-format"),
        pytest.param([], "the manifest cannot be read", id="no-object"),
    ],
)
def test_another_version_is_refused_by_name(tmp_path: Path, manifest: object, message: str) -> None:
    path = replaced(written(tmp_path / "a.tide"), msgspec.json.encode(manifest))
    with pytest.raises(InvalidInput, match=message):
        Recording(path)


def test_a_newer_minor_version_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    manifest = msgspec.to_builtins(Recording(path).manifest) | {"version": "1.7", "colour": "blue"}
    assert Recording(replaced(path, msgspec.json.encode(manifest))).manifest.version == "1.7"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_says_so(tmp_path: Path, share: float) -> None:
    path = written(tmp_path / "a.tide")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InvalidInput, match=r"a\.tide: (is not a recording, or was cut off|cannot be read)"):
        Recording(path)


def test_damage_inside_is_found_where_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("usage.parquet")
    content = bytearray(path.read_bytes())
    begin = member.header_offset + 60
    content[begin : begin + 200] = b"\xff" * 200
    path.write_bytes(bytes(content))
    with pytest.raises(InvalidInput, match="is damaged"):
        list(Recording(path).grids(0))


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        Recording(tmp_path / "none.tide")
    with pytest.raises(InvalidInput, match="2147 cores"), Writer(tmp_path / "a.tide", Manifest(start=T0)) as writer:
        writer.usage([writer.container("n", "k", "w", "p", "c")], [T0 * 1_000_000], [2**40], [1])
